package seatbelt

import (
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Refuses is nil if Seatbelt holds every part of a Spec, and otherwise a
// *spec.Refused with each part that it cannot hold.
func Refuses(s *spec.Spec, o Options) error {
	r := &refusals{}
	if s.Runtime != "" && s.Runtime != spec.RuntimeSeatbelt {
		r.add("runtime", s.Runtime, "is not for this system", "use auto or seatbelt")
	}
	r.files(s)
	r.resources(s)
	r.network(s, o)
	r.rules(s, o)
	if len(r.reasons) > 0 {
		return &spec.Refused{Reasons: r.reasons}
	}
	return nil
}

type refusals struct{ reasons []*spec.Unsupported }

func (r *refusals) add(key, value, reason, fix string) {
	u := &spec.Unsupported{Key: key, Value: value, Reason: reason, Fix: fix}
	for _, have := range r.reasons {
		if *have == *u {
			return
		}
	}
	r.reasons = append(r.reasons, u)
}

const seatbelt = "the seatbelt runtime "

// files refuses what only a mount can show.
func (r *refusals) files(s *spec.Spec) {
	if u := s.Overlay.Refused("seatbelt"); u != nil {
		r.reasons = append(r.reasons, u)
	}
	if u := s.Rules.Refused("seatbelt"); u != nil {
		r.reasons = append(r.reasons, u)
	}
	for i := range s.Mounts {
		m := &s.Mounts[i]
		switch {
		case m.Kind == spec.Private:
			_, entry, _ := strings.Cut(m.Why, " ")
			r.add("filesystem.privateWrite", entry, seatbelt+"cannot keep changes apart from the files themselves",
				`grant it in filesystem.allowRead or allowWrite, and take it out of privateWrite with a "!" before it`)
		case m.Kind == spec.Bind && m.Source != m.Target:
			key, _, _ := strings.Cut(m.Why, " ")
			r.add(key, m.Target, seatbelt+"cannot show a file at another place than its own", "remove what asks for it")
		}
	}
}

func (r *refusals) resources(s *spec.Spec) {
	const fix = "remove it"
	s.Limits.Each(func(key, value string) {
		r.add(key, value, seatbelt+"has nothing that limits a sandbox as a whole", fix)
	})
	for _, l := range s.Rlimits {
		switch l.Name {
		case "core", "nofile":
		case "nproc":
			r.add("resources.pids", "", seatbelt+"cannot count the processes of a sandbox", fix)
		default:
			r.add("resources", l.Name, seatbelt+"does not know this limit", fix)
		}
	}
}

func (r *refusals) network(s *spec.Spec, o Options) {
	for _, e := range s.Expose {
		r.add("network.exposePorts", strconv.Itoa(int(e.Inside)), seatbelt+"has no network of the sandbox's own", "remove it")
	}
	g := s.Gate
	if g == nil {
		return
	}
	if len(o.Ports) == 0 {
		r.add("network.allowedDomains", "", seatbelt+"does not start the network gate in this version",
			`grant no hosts, or with "*" all of them`)
	}
	if g.Socket != "" {
		r.add("network.egress", "socket", seatbelt+"has the gate at ports of loopback only", "remove it")
	}
	if g.Must {
		r.add("network.transparent", "true", seatbelt+"cannot capture connections", "remove it, and have programs use the proxy variables")
	}
	if slices.ContainsFunc(g.Config.Rules, func(rule config.Rule) bool { return strings.HasPrefix(rule.Name, spec.LocalOutbound) }) {
		r.add("network.allowLocalOutboundPorts", "", seatbelt+"has no loopback of the sandbox's own", "remove it")
	}
}

// rules refuses what somebody would have to decide while the command runs.
func (r *refusals) rules(s *spec.Spec, o Options) {
	b := s.Broker
	if b == nil {
		return
	}
	if b.Commands != nil {
		r.add("command.deny", "", seatbelt+"sees which program is executed, and not with which arguments", "remove the rules about commands")
	}
	if b.Observe {
		r.add("--monitor", "", seatbelt+"cannot tell what a command misses", "run it without")
	}
	for _, text := range b.Sockets.Allowed {
		if _, ok := pattern.Literal(text); !ok {
			r.add("network.allowUnixSockets", text, seatbelt+"takes no patterns of sockets", "name the socket")
		}
	}
	w := &writer{spec: s, options: o}
	for _, layer := range b.Layers {
		for i := range layer {
			r.pattern(w, &layer[i])
		}
	}
}

func (r *refusals) pattern(w *writer, rule *spec.PathRule) {
	var err error
	if rule.Read == spec.Denied || rule.Write == spec.Denied {
		_, err = w.denial(rule.Pattern)
	}
	if _, isLiteral := pattern.Literal(rule.Pattern); err == nil && !isLiteral && (rule.Read == spec.Allowed || rule.Write == spec.Allowed) {
		_, err = exact(rule.Pattern)
	}
	if err != nil {
		key, entry, _ := strings.Cut(rule.Why, " ")
		r.add(key, entry, seatbelt+"cannot say this pattern: "+err.Error(), "name the files, or use another pattern")
	}
}

// CheckSpelling refuses a Spec that names a file otherwise than the file system
// does. Seatbelt compares paths as they are on disk, where names that differ in
// case or in composition can be the same file: a denial in another spelling would
// hold nothing. Truename returns a file's path as it is on disk, and an error if
// there is no such file.
func CheckSpelling(s *spec.Spec, truename func(string) (string, error)) error {
	r := &refusals{}
	for i := range s.Mounts {
		m := &s.Mounts[i]
		if m.Kind != spec.Bind && m.Kind != spec.Hide && m.Kind != spec.Tmpfs && m.Kind != spec.Dir {
			continue
		}
		if real, err := truename(m.Target); err == nil && real != m.Target {
			key, entry, _ := strings.Cut(m.Why, " ")
			r.add(key, entry, "is "+real+" on disk", "write it so")
		}
	}
	if len(r.reasons) > 0 {
		return &spec.Refused{Reasons: r.reasons}
	}
	return nil
}
