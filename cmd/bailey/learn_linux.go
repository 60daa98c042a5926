package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/learn"
	"github.com/bailey-sandbox/bailey/internal/monitor"
	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// lesson is one run of "bailey learn".
type lesson struct {
	*request
	argv []string

	config  sandbox.Config // of the base: what the proposal is besides
	loaded  *policy.Loaded
	base    *spec.Spec
	names   learn.Names
	seen    monitor.Observer
	hosts   contacts
	prop    learn.Proposal
	granted []string // by flags
	started bool
}

func runLearn(r *request) int {
	if insideSandbox() {
		return fail(errInside)
	}
	argv, err := r.command()
	if err != nil {
		return fail(err)
	}
	l := &lesson{request: r, argv: argv}
	if err := l.begin(); err != nil {
		return fail(err)
	}
	status, err := l.observe()
	if err != nil {
		return fail(err)
	}
	if !l.started {
		return status // it was said why
	}
	l.prop = learn.Propose(l.seen.All(), l.options())
	if l.askForSecrets() {
		l.prop = learn.Propose(l.seen.All(), l.options())
	}
	if status != 0 {
		say(tagWarning, fmt.Sprintf("the command ended with status %d, so it may not have come to everything it does", status))
	}
	if len(l.prop.Hosts) > 0 && !l.hosts.open {
		say(tagNote, "the hosts were not reached, and others may follow them; learn again under the proposal, or let it reach all of them while it learns: --allow-network")
	}
	l.noteForgotten()
	if l.seen.IsFull() || l.hosts.full {
		say(tagWarning, "the command asked for more than is remembered, so something may be missing")
	}
	if err := l.deliver(); err != nil {
		return fail(err)
	}
	if r.learn.prove {
		return l.prove()
	}
	return status
}

// noteForgotten says what a command leaves in a home that is the sandbox's own, and
// that nothing of it will be there the next time.
func (l *lesson) noteForgotten() {
	const most = 4
	list := l.seen.Judge.Forgotten(l.names.Home)
	if len(list) == 0 {
		return
	}
	rest := ""
	if n := len(list) - most; n > 0 {
		list, rest = list[:most], fmt.Sprintf(" and %d more", n)
	}
	for i, p := range list {
		list[i] = printable(l.names.Of(p))
	}
	say(tagNote, "what it makes in the home directory is forgotten when it ends: "+strings.Join(list, ", ")+rest+"; to keep something, make it outside and add it to allowWrite")
}

// begin compiles the base policy. Grants on the command line are no part of it:
// no file would hold them, so what the command needs of them is proposed.
func (l *lesson) begin() error {
	switch {
	case l.learn.save != "" && l.learn.merge != "":
		return errors.New("--save and --merge exclude each other")
	case len(l.inline) > 0:
		return errors.New("learn cannot build on --policy, which no file can extend; put it into a file and use --settings")
	case l.monitor:
		return errors.New("learn observes the command already; leave --monitor away")
	}
	var err error
	if l.config, err = l.request.config(); err != nil {
		return err
	}
	given := &l.config.Overrides.Filesystem
	flags := slices.Concat(given.AllowRead, given.AllowWrite)
	given.AllowRead, given.AllowWrite = nil, nil
	l.hosts.open = l.config.Overrides.Network.AllowedDomains != nil
	l.config.Overrides.Network.AllowedDomains = nil
	m := sandbox.New(l.config)
	if err := m.Initialize(); err != nil {
		return err
	}
	over, err := supposedOverlay(m)
	if err != nil {
		return err
	}
	if over != nil && l.learn.write {
		return errors.New("learn --write changes files, and the policy keeps changes in an overlay; leave --write away")
	}
	if l.base, err = m.CompileOver(l.argv, over); err != nil {
		return err
	}
	if v := judgeTyped(m.Loaded().Policy, l.argv); !v.Allowed {
		return errors.New(v.String())
	}
	l.loaded = m.Loaded()
	if err := l.beginNetwork(); err != nil {
		return err
	}
	l.names = learn.Names{Home: monitor.RealHome(), Project: projectOf(l.base)}
	for _, entry := range flags {
		l.granted = append(l.granted, l.names.Path(entry))
	}
	l.seen.Judge, err = learn.NewJudge(l.base)
	return err
}

// projectOf finds what relative paths of the policy are relative to: the mount
// of the entry ".".
func projectOf(s *spec.Spec) string {
	for i := range s.Mounts {
		if m := &s.Mounts[i]; strings.HasPrefix(m.Why, "filesystem.allow") && strings.HasSuffix(m.Why, " .") {
			return m.Target
		}
	}
	return ""
}

// observe runs the command where it can read nearly everything and change
// nothing. The broker makes the thread that it runs on unfit for another
// sandbox, so if a proof is to follow it gets one of its own.
func (l *lesson) observe() (status int, err error) {
	s, err := l.permissive()
	if err != nil {
		return 0, err
	}
	if !l.learn.prove {
		return l.run(s)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		status, err = l.run(s)
	}()
	<-done
	return status, err
}

func (l *lesson) run(s *spec.Spec) (int, error) {
	p := &prepared{lesson: l}
	err := p.begin(native.Options{
		Streams: learnStreams(),
		Observe: func(o broker.Observation) { l.seen.Lacks(o) },
	})
	if err != nil {
		return startFailed(nil, err), nil
	}
	status := p.run(l.request, s)
	l.started = p.started
	return status, nil
}

// learnStreams keep stdout for the proposal: what the command writes there goes
// to stderr, unless a person looks at both.
func learnStreams() [3]*os.File {
	if isTerminal(os.Stdout) {
		return [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	}
	return [3]*os.File{os.Stdin, os.Stderr, os.Stderr}
}

// permissive compiles the policy of the run that is observed: the base policy,
// with everything readable but what it denies and what is known to hold secrets,
// and with all writes kept in memory.
func (l *lesson) permissive() (*spec.Spec, error) {
	c := l.config
	given, err := l.request.overrides()
	if err != nil {
		return nil, err
	}
	c.Overrides = given
	l.hosts.observe(&c.Overrides.Network)
	c.Overrides.Workspace.Mode = new("direct") // nothing is written anyway
	add := &c.Overrides.Filesystem
	everything := false
	add.DefaultDenyRead = &everything
	add.DenyRead = append(slices.Clone(add.DenyRead), entries(l.secrets())...)
	if !l.learn.write {
		l.keepInMemory(add)
	} else if l.names.Home != "" {
		add.PrivateWrite = append(add.PrivateWrite, pattern.Entry(l.names.Home))
	}
	m := sandbox.New(c)
	if err := m.Initialize(); err != nil {
		return nil, err
	}
	s, err := m.Compile(l.argv)
	if err != nil {
		return nil, fmt.Errorf("the policy to learn with: %w", err)
	}
	if changed := firstWritable(s); changed != "" && !l.learn.write {
		return nil, fmt.Errorf("%s could be changed while learning; if that may be: --write", printable(changed))
	}
	l.warnOfOwners(s)
	monitor.MakeObservable(s)
	return s, nil
}

// warnOfOwners says where writes to memory will fail: the kernel can copy only
// files whose owner and group exist inside.
func (l *lesson) warnOfOwners(s *spec.Spec) {
	for i := range s.Mounts {
		m := &s.Mounts[i]
		var st unix.Stat_t
		if m.Kind != spec.Private || s.Identity.Full || unix.Stat(m.Source, &st) != nil {
			continue
		}
		if int(st.Uid) != s.Identity.UID || int(st.Gid) != s.Identity.GID {
			say(tagWarning, printable(m.Target)+" belongs to another user or group, so that what is written there cannot be kept in memory; if the command fails: --write")
		}
	}
}

// secrets are the well-known ones that exist and that neither the base policy
// shows nor a flag.
func (l *lesson) secrets() []string {
	var out []string
	for _, p := range learn.SecretPaths(l.names.Home) {
		named := slices.ContainsFunc(l.granted, func(g string) bool { return spec.Covers(p, g) })
		if _, ok := (monitor.HostFiles{}).Look(p); ok && !named && !l.seen.Judge.Readable(p) {
			out = append(out, p)
		}
	}
	return out
}

// keepInMemory replaces every grant of writing by one whose writes are lost, and
// adds the home directory.
func (l *lesson) keepInMemory(add *policy.Filesystem) {
	var private []string
	for _, entry := range add.AllowWrite { // of the command line
		if file, ok := (monitor.HostFiles{}).Look(l.names.Path(entry)); ok && file.Dir {
			private = append(private, file.Real)
		}
	}
	for _, entry := range slices.Concat(l.loaded.Policy.Filesystem.AllowWrite, add.AllowWrite) {
		add.AllowWrite = append(add.AllowWrite, "!"+entry)
	}
	for i := range l.base.Mounts {
		m := &l.base.Mounts[i]
		inside := slices.ContainsFunc(private, func(dir string) bool { return spec.Covers(dir, m.Target) })
		if m.Kind == spec.Bind && m.Write && !m.File && !inside {
			private = append(private, m.Target)
		}
	}
	if home := l.names.Home; home != "" && home != "/" {
		private = append(private, home)
	}
	add.PrivateWrite = append(add.PrivateWrite, entries(private)...)
}

// firstWritable returns a path of the host that a Spec lets the command write.
func firstWritable(s *spec.Spec) string {
	for i := range s.Mounts {
		if m := &s.Mounts[i]; m.Kind == spec.Bind && m.Write && !m.Devices {
			return m.Target
		}
	}
	return ""
}

// askForSecrets asks the person at the terminal about what was asked for and looks
// like a secret, a few at most, and reports whether one is to be granted. Without a
// person nothing is.
func (l *lesson) askForSecrets() (any bool) {
	const most = 5
	if !isTerminal(os.Stdin) || !isTerminal(os.Stderr) {
		return false
	}
	asked := 0
	for i := range l.prop.Left {
		r := &l.prop.Left[i]
		if r.Why != learn.Secret || asked == most {
			continue
		}
		asked++
		text := "bailey: " + r.Who() + " asked for " + plain.Text(l.names.Of(r.Path)) + ", which looks like a secret. Propose to grant it? [y/N] "
		line, err := terminal.Ask(context.Background(), nil, text)
		if err != nil {
			return any // nobody is there, or does not want to be asked
		}
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			l.granted, any = append(l.granted, r.Path), true
		}
	}
	return any
}

// deliver puts the proposal where it was asked for.
func (l *lesson) deliver() error {
	switch {
	case l.learn.save != "":
		return l.save(l.learn.save)
	case l.learn.merge != "":
		return l.merge(l.learn.merge)
	case isTerminal(os.Stdout):
		return l.display()
	}
	_, err := os.Stdout.Write(l.render())
	return err
}

func (l *lesson) render() []byte {
	head := "What " + sandbox.Quote(l.argv) + " needed besides the policy it extends."
	if l.prop.IsEmpty() {
		head = sandbox.Quote(l.argv) + " needed nothing besides the policy it extends."
	}
	return l.prop.Render(head, l.extends(), l.names)
}

// extends names the base policy for a file.
func (l *lesson) extends() string {
	switch {
	case l.config.Settings != "":
		return l.config.Settings
	case l.config.Preset != "":
		return l.config.Preset
	case l.loaded.Project != "":
		return l.loaded.Project
	}
	for _, link := range l.loaded.Chain {
		if link.Kind == policy.KindUser {
			return "@user"
		}
	}
	return "default"
}

// display shows what would change in the project's policy, or the proposal if
// there is none.
func (l *lesson) display() error {
	file := l.loaded.Project
	if file == "" {
		_, err := os.Stdout.Write(l.render())
		return err
	}
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	merged, err := l.prop.Merge(file, old, l.names)
	if err != nil {
		return err
	}
	text := policy.Diff(string(old), string(merged))
	if text == "" {
		text = printable(file) + " grants everything that was needed\n"
	} else {
		text = printable(file) + " would become (--merge " + plain.Word(file) + " does it):\n" + text
	}
	if _, err = os.Stdout.WriteString(text); err != nil {
		return err
	}
	l.sayRemarks()
	return nil
}

func (l *lesson) sayRemarks() {
	for _, line := range l.prop.Remarks(l.names) {
		say(tagNote, line)
	}
}

// save writes the proposal to a file that is not there yet.
func (l *lesson) save(file string) error {
	err := writeNew(file, l.render())
	if errors.Is(err, fs.ErrExist) {
		return errors.New(printable(file) + " is there already; to add to it: --merge " + plain.Word(file))
	}
	if err == nil {
		say(tagNote, "wrote "+printable(file)+"; read it before you use it: bailey -s "+plain.Word(file)+" -- …")
	}
	return err
}

// merge adds the proposal to a file. It is replaced as a whole, so that nobody
// finds half of it.
func (l *lesson) merge(name string) error {
	file, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	merged, err := l.prop.Merge(name, old, l.names)
	if err != nil {
		return err
	}
	defer l.sayRemarks()
	if string(merged) == string(old) {
		say(tagNote, printable(name)+" stays as it is: nothing is to be added")
		return nil
	}
	if err := replaceFile(file, merged); err != nil {
		return err
	}
	say(tagNote, "added to "+printable(name)+":\n"+policy.Diff(string(old), string(merged)))
	return nil
}

// prove runs the command again under the base policy and the proposal, and says
// whether it went through.
func (l *lesson) prove() int {
	c := l.config
	add := &c.Overrides.Filesystem
	for _, list := range []struct {
		to     *[]string
		grants []learn.Grant
	}{{&add.AllowRead, l.prop.Read}, {&add.AllowWrite, l.prop.Write}, {&add.PrivateWrite, l.prop.Private}, {&add.DenyRead, l.prop.Hide}} {
		for _, g := range list.grants {
			*list.to = append(*list.to, pattern.Entry(g.Path))
		}
	}
	for i := range l.prop.Hosts {
		l.prop.Hosts[i].Allow(&c.Overrides)
	}
	m := sandbox.New(c)
	if err := m.Initialize(); err != nil {
		return fail(err)
	}
	w, err := dryWorkspace(m)
	if err != nil {
		return fail(err)
	}
	defer w.abandon()
	s, err := m.CompileOver(l.argv, w.overlay())
	if err != nil {
		return fail(fmt.Errorf("the proposal: %w", err))
	}
	p := &prepared{}
	p.report.Monitor = newMonitor(&p.report, false)
	p.report.Monitor.Silence()
	err = p.begin(native.Options{Streams: learnStreams(), Observe: p.report.Monitor.Observe})
	if err != nil {
		return startFailed(nil, err)
	}
	status := p.run(l.request, s)
	l.sayProof(status, p.report.Monitor)
	return status
}

func (l *lesson) sayProof(status int, m *monitor.Monitor) {
	lines := m.Summary()
	switch {
	case status != 0:
		say(tagWarning, fmt.Sprintf("not proved: under the proposal the command ended with status %d; what it did not get:", status))
	case len(lines) == 0:
		say(tagNote, "proved: the command went through under the proposal, and nothing was denied")
		return
	default:
		say(tagNote, "proved: the command went through under the proposal, without:")
	}
	for _, line := range lines {
		say(tagNote, "  "+line)
	}
}
