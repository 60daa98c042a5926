package seatbelt

import (
	"path"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Options are what a profile says besides the Spec.
type Options struct {
	// Scratch is an empty directory of this run's own, without symbolic links in
	// its path: it stands for every private directory of the Spec.
	Scratch string
	// Ports of loopback are those at which the network gate listens.
	Ports []uint16
}

// Profile is the text of a profile and the values of its parameters.
type Profile struct {
	Text   string
	Params []Param
}

// Param is a value that the profile's text names.
type Param struct{ Name, Value string }

// Arguments are those of sandbox-exec, to run a command under the profile.
func (p *Profile) Arguments(argv []string) []string {
	args := make([]string, 0, 3+2*len(p.Params)+len(argv))
	args = append(args, "-p", p.Text)
	for _, v := range p.Params {
		args = append(args, "-D", v.Name+"="+v.Value)
	}
	return append(append(args, "--"), argv...)
}

// New makes the profile of a Spec. It fails, with a *spec.Refused, for a Spec that
// Refuses names reasons for.
func New(s *spec.Spec, o Options) (*Profile, error) {
	if err := Refuses(s, o); err != nil {
		return nil, err
	}
	w := &writer{spec: s, options: o, names: make(map[string]string)}
	w.text.WriteString(base)
	w.network()
	for i := range s.Mounts {
		w.mount(&s.Mounts[i])
	}
	w.scratch()
	w.parents()
	w.sockets()
	w.brokered()
	w.text.WriteString(last)
	return &Profile{Text: w.text.String(), Params: w.params}, nil
}

// Operations that are allowed and denied together.
const (
	reading   = "file-read* file-test-existence file-map-executable"
	writing   = "file-write*"
	executing = "process-exec*"
	// moving is what a directory must not do that leads to something protected:
	// go away, or come from elsewhere.
	moving    = "file-write-unlink file-write-create"
	metadata  = "file-read-metadata file-test-existence"
	connected = "network-outbound"
)

type writer struct {
	spec    *spec.Spec
	options Options
	text    strings.Builder
	params  []Param
	names   map[string]string // of parameters, by value
}

// param names a value. The text of the profile holds nothing but the name.
func (w *writer) param(value string) string {
	name, ok := w.names[value]
	if !ok {
		name = "P" + strconv.Itoa(len(w.params))
		w.names[value] = name
		w.params = append(w.params, Param{name, value})
	}
	return `(param "` + name + `")`
}

func (w *writer) subpath(p string) string { return "(subpath " + w.param(p) + ")" }

func (w *writer) literal(p string) string { return "(literal " + w.param(p) + ")" }

func (w *writer) regex(r string) string { return "(regex " + w.param(r) + ")" }

func (w *writer) allow(operations string, filters ...string) { w.rule("allow", operations, filters) }

func (w *writer) deny(operations string, filters ...string) { w.rule("deny", operations, filters) }

// rule writes nothing without a filter: such a rule would be about everything.
func (w *writer) rule(action, operations string, filters []string) {
	if len(filters) == 0 {
		return
	}
	w.text.WriteString("(" + action + " " + operations)
	for _, f := range filters {
		w.text.WriteString("\n  " + f)
	}
	w.text.WriteString(")\n")
}

// network allows what the Spec's kind of network reaches. The filter must be the
// remote end: a local one does not restrict where connections go.
func (w *writer) network() {
	switch w.spec.Network {
	case spec.NetworkHost:
		w.text.WriteString(openNetwork)
	case spec.NetworkGate:
		for _, port := range w.options.Ports {
			w.allow(connected, `(remote ip "localhost:`+strconv.Itoa(int(port))+`")`)
		}
	}
}

// mount says what holds at a mount's place and below, whatever was said before.
func (w *writer) mount(m *spec.Mount) {
	switch m.Kind {
	case spec.Bind:
		w.bind(m)
	case spec.Symlink:
		w.allow("file-read* file-test-existence", "(require-all "+w.literal(m.Target)+" (vnode-type SYMLINK))")
	case spec.Dir, spec.Tmpfs, spec.Hide:
		w.deny(reading+" "+writing+" "+executing, w.subpath(m.Target))
	}
}

func (w *writer) bind(m *spec.Mount) {
	at := w.subpath(m.Target)
	if m.File {
		at = w.literal(m.Target)
	}
	w.allow(reading, at)
	if m.Devices {
		w.allow("file-ioctl", at)
	}
	if m.Write {
		w.allow(writing, at)
		w.deny("file-write-unlink", w.literal(m.Target))
	} else {
		w.deny(writing, at)
	}
	w.execute(m, at)
}

// execute lets programs be executed where the Spec's second wall would.
func (w *writer) execute(m *spec.Mount, at string) {
	if w.executable(m.Target) {
		w.allow(executing, at)
		return
	}
	w.deny(executing, at)
	for i := range w.spec.Landlock.Rules {
		r := &w.spec.Landlock.Rules[i]
		if _, in := w.spec.Access(r.Path); !r.Execute || in != m {
			continue
		}
		if r.File {
			w.allow(executing, w.literal(r.Path))
		} else {
			w.allow(executing, w.subpath(r.Path))
		}
	}
}

func (w *writer) executable(p string) bool {
	for i := range w.spec.Landlock.Rules {
		if r := &w.spec.Landlock.Rules[i]; r.Execute && spec.Covers(r.Path, p) && (!r.File || r.Path == p) {
			return true
		}
	}
	return false
}

// scratch gives the command the directory that stands for its private ones.
func (w *writer) scratch() {
	if w.options.Scratch == "" {
		return
	}
	at := w.subpath(w.options.Scratch)
	w.allow(reading+" "+writing, at)
	w.deny("file-write-unlink", w.literal(w.options.Scratch))
	for i := range w.spec.Mounts {
		if m := &w.spec.Mounts[i]; m.Kind == spec.Tmpfs && w.executable(m.Target) {
			w.allow(executing, at)
			return
		}
	}
}

// parents lets the directories above what is granted be passed, not listed.
func (w *writer) parents() {
	var list []string
	seen := map[string]bool{"/": true} // which every profile shows
	above := func(p string) {
		for dir := path.Dir(p); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			list = append(list, w.literal(dir))
		}
	}
	for i := range w.spec.Mounts {
		if m := &w.spec.Mounts[i]; m.Kind == spec.Bind || m.Kind == spec.Symlink {
			above(m.Target)
		}
	}
	if w.options.Scratch != "" {
		above(w.options.Scratch)
	}
	w.allow(metadata, list...)
}

// sockets lets unix sockets be reached: those of the Spec, and those that the
// command makes in its scratch directory. It can make them wherever it can write.
func (w *writer) sockets() {
	remote := func(filter string) string { return "(remote unix-socket " + filter + ")" }
	var reached, bound []string
	if w.options.Scratch != "" {
		at := w.subpath(w.options.Scratch)
		reached, bound = append(reached, remote(at)), append(bound, "(local unix-socket "+at+")")
	}
	for _, p := range literalSockets(w.spec) {
		reached = append(reached, remote("(path-literal "+w.param(p)+")"))
	}
	for i := range w.spec.Mounts {
		m := &w.spec.Mounts[i]
		if m.Kind != spec.Bind || m.Devices {
			continue
		}
		if allSockets(w.spec) {
			reached = append(reached, remote(w.subpath(m.Target)))
		}
		if m.Write && !m.File {
			bound = append(bound, "(local unix-socket "+w.subpath(m.Target)+")")
		}
	}
	w.allow("system-socket", "(socket-domain AF_UNIX)")
	w.allow(connected, reached...)
	w.allow("network-bind network-inbound", bound...)
	w.concealSockets()
}

// concealSockets keeps a socket closed that is in a hidden place of a granted
// directory.
func (w *writer) concealSockets() {
	if !allSockets(w.spec) {
		return
	}
	for i := range w.spec.Mounts {
		m := &w.spec.Mounts[i]
		if m.Kind == spec.Hide || m.Kind == spec.Dir || m.Kind == spec.Tmpfs {
			if w.insideBind(m.Target) {
				w.deny(connected, "(remote unix-socket "+w.subpath(m.Target)+")")
			}
		}
	}
}

func (w *writer) insideBind(p string) bool {
	for i := range w.spec.Mounts {
		if m := &w.spec.Mounts[i]; m.Kind == spec.Bind && !m.File && m.Target != p && spec.Covers(m.Target, p) {
			return true
		}
	}
	return false
}
