package oci

import (
	"path"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Refuses names the parts of a Spec that the runtime cannot hold, and what the machine does
// not have.
func (e *Engine) Refuses(s *spec.Spec) error {
	if _, err := e.find(); err != nil {
		return err
	}
	return engine.Refused(Refusals(e.name, s, e.name == Gvisor))
}

// Refusals are the parts of a Spec that no container holds, for a runtime called name;
// second says that gVisor's kernel stands between.
func Refusals(name string, s *spec.Spec, second bool) []*spec.Unsupported {
	return (&refusal{name: name, spec: s, second: second, bare: second}).all()
}

type refusal struct {
	name    string
	spec    *spec.Spec
	second  bool
	bare    bool // commands put up no walls of their own
	reasons []*spec.Unsupported
}

func (r *refusal) all() []*spec.Unsupported {
	r.broker()
	r.network()
	r.files()
	r.limits()
	return r.reasons
}

func (r *refusal) refuse(key, value, reason string) {
	r.reasons = append(r.reasons, engine.Refuse(r.name, key, value, reason))
}

// refuseWhy refuses what a rule asks for, which names its key and value.
func (r *refusal) refuseWhy(why, reason string) {
	key, value, _ := strings.Cut(why, " ")
	r.refuse(key, value, reason)
}

// broker: gVisor answers calls itself, and asks nobody.
func (r *refusal) broker() {
	b := r.spec.Broker
	if b == nil {
		return
	}
	if !r.bare {
		return
	}
	if b.Observe {
		r.refuse("--monitor", "", "does not tell what a command looks at")
	}
	reason := "has no broker, which would have to be asked each time"
	if !r.second {
		reason = "has no broker for a sandbox that stays, which would have to be asked each time"
	}
	if b.Commands != nil {
		r.refuse("command", "", reason)
	}
	if len(b.Sockets.Allowed) > 0 && !b.Sockets.All && gateSocket(r.spec) == "" {
		r.refuse("network.allowUnixSockets", strings.Join(b.Sockets.Allowed, ", "), reason)
	}
	names := false
	for _, layer := range b.Layers {
		for i := range layer {
			rule := &layer[i]
			matters := rule.Read == spec.Denied || rule.Write == spec.Denied && len(b.Areas) > 0
			switch {
			case !matters:
			case strings.HasPrefix(rule.Why, "filesystem."):
				r.refuseWhy(rule.Why, reason)
			default:
				names = true
			}
		}
	}
	if names {
		r.reasons = append(r.reasons, &spec.Unsupported{
			Key: "filesystem.protectMissing", Reason: "the " + r.name + " runtime has no broker, which would keep protected names from being made in " + strings.Join(b.Areas, ", "),
			Fix: "to let them be made use --allow-degraded, or set it to false; otherwise use --runtime native",
		})
	}
}

// network: without a guard that can enter it, it is closed, or the host's, or the gate's by
// a unix socket. Without a broker nobody tells that socket from others.
func (r *refusal) network() {
	if r.bare && r.spec.Network == spec.NetworkGate && gateSocket(r.spec) != "" && !allowsUnix(r.spec) {
		r.refuse("network.egress", "socket", "cannot tell the gate's socket from others; set \"allowAllUnixSockets\" if there are none in what is granted")
	}
	if !r.second { // the guard can enter the sandbox's network
		if len(r.spec.Expose) > 0 && gateSocket(r.spec) != "" {
			r.refuse("network.exposePorts", "", "has no way in where the gate is only at a socket")
		}
		return
	}
	if r.spec.Network == spec.NetworkGate && gateSocket(r.spec) == "" {
		r.refuse("network.allowedDomains", "", "has no ports that lead to the network gate; \"egress\": \"socket\" with \"allowAllUnixSockets\" leads there, and \"*\" is the host's network")
	}
	if len(r.spec.Expose) > 0 {
		r.refuse("network.exposePorts", "", "has no way in")
	}
}

// files: what mounts cannot hold.
func (r *refusal) files() {
	if u := r.spec.Rules.Refused(r.name); u != nil {
		r.reasons = append(r.reasons, u)
	}
	for i := range r.spec.Mounts {
		m := &r.spec.Mounts[i]
		switch {
		case m.Kind == spec.Symlink && spec.Covers("/dev", m.Target):
			r.refuse("devices.allow", m.Target, "makes no links in /dev; name the device that it leads to")
		case m.Link && r.second:
			r.refuseWhy(m.Why, "would let the link "+m.Target+" be replaced: it is no mountpoint of gVisor's own kernel")
		}
	}
	for _, rule := range r.spec.Landlock.Rules {
		_, m := r.spec.Access(rule.Path)
		if r.bare && rule.Execute && m != nil && m.Target != rule.Path && executing(r.spec, m) == "noexec" {
			r.refuse("filesystem.allowExecute", rule.Path, "executes from all of "+path.Clean(m.Target)+", or from nothing in it")
		}
	}
}

// minPids leaves the command some: the threads of the first process count as well.
const minPids = 24

const rootsGroups = "makes control groups for root only"

// limits: runtimes hold them by control groups, which are root's to make.
func (r *refusal) limits() {
	root := r.spec.Identity.UID == 0
	r.spec.Limits.Each(func(key, value string) {
		switch {
		case key == "resources.disk":
			r.refuse(key, value, "does not count what is written")
		case !root:
			u := engine.Refuse(r.name, key, value, rootsGroups)
			u.Fix = "run it as root, remove it, or where this user has a control group (see: bailey doctor) use --runtime native"
			r.reasons = append(r.reasons, u)
		case key == "resources.pids" && r.second:
			r.refuse(key, value, "would count gVisor's own threads, not the command's processes")
		case key == "resources.pids" && r.spec.Limits.Pids < minPids:
			r.refuse(key, value, "needs some for the first process's threads; "+strconv.Itoa(minPids)+" or more")
		}
	})
	if n, ok := r.spec.UserPids(); ok {
		r.refuse("resources.pids", strconv.FormatUint(n, 10), rootsGroups)
	}
}
