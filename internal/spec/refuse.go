package spec

import (
	"errors"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Unsupported is one reason why a policy cannot be held on this machine by this
// version. Nothing runs while there is one.
type Unsupported struct {
	Key    string // in the policy, for example "network.allowedDomains"
	Value  string // what it says there
	Reason string
	Fix    string // what to do about it
	// At is where the policy says it; zero if no file does.
	At policy.Pos
	// Here says that it is about the files of this machine, and not about what the
	// policy asks for: elsewhere, or once they are there, it may hold.
	Here bool
}

func (u *Unsupported) Error() string {
	var b strings.Builder
	if u.At.File != "" {
		b.WriteString(u.At.String() + ": ")
	}
	b.WriteString(u.Key)
	if u.Value != "" {
		b.WriteString(" " + plain.Text(u.Value))
	}
	b.WriteString(": " + plain.Text(u.Reason))
	if u.Fix != "" {
		b.WriteString("; " + plain.Text(u.Fix))
	}
	return b.String()
}

// Refused is the error of Compile: every reason, in a stable order, so that a
// person can mend them in one go.
type Refused struct {
	Reasons []*Unsupported
}

func (r *Refused) Error() string {
	lines := make([]string, len(r.Reasons))
	for i, u := range r.Reasons {
		lines[i] = u.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find the first reason.
func (r *Refused) Unwrap() []error {
	errs := make([]error, len(r.Reasons))
	for i, u := range r.Reasons {
		errs[i] = u
	}
	return errs
}

// Origins are the places of what a policy says, for those who carry a Spec out and know
// no policies.
type Origins = policy.Origins

// Locate gives the reasons of a *Refused their places in the policy, and returns err.
func Locate(err error, origins Origins) error {
	var refused *Refused
	if errors.As(err, &refused) {
		for _, u := range refused.Reasons {
			if u.At.File == "" {
				u.At = origins.Place(u.Key, u.Value)
			}
		}
	}
	return err
}

func (c *compiler) refuse(key, value, reason, fix string) {
	c.add(&Unsupported{Key: key, Value: value, Reason: reason, Fix: fix})
}

// refuseHere is refuse for what the files of this machine are the reason of.
func (c *compiler) refuseHere(key, value, reason, fix string) {
	c.add(&Unsupported{Key: key, Value: value, Reason: reason, Fix: fix, Here: true})
}

func (c *compiler) add(u *Unsupported) {
	for _, old := range c.reasons {
		if *old == *u {
			return
		}
	}
	c.reasons = append(c.reasons, u)
}

// refuseIf is refuse with a condition in front, for the tables below.
func (c *compiler) refuseIf(cond bool, key, value, reason, fix string) {
	if cond {
		c.refuse(key, value, reason, fix)
	}
}

// presentation refuses the remaining choices this version has no wall for.
func (c *compiler) presentation() {
	p := &c.policy
	c.refuseIf(is(p.Workspace.Mode, "overlay") && c.command.Overlay == nil, keyOverlay, "overlay", "only a command with a sandbox of its own has a workspace to write to",
		`run it by: bailey --overlay -- CMD; or use "direct"`)
	if p.Runtime != nil && !is(p.Runtime, "auto") {
		c.spec.Runtime = *p.Runtime
	}
	c.refuseIf(p.Runtime != nil && !is(p.Runtime, "auto") && !slices.Contains(Runtimes(), *p.Runtime), "runtime", text(p.Runtime),
		"this version does not have it", "use one of auto, "+strings.Join(Runtimes(), ", "))
	c.refuseIf(is(p.Devices.Mode, "host"), "devices.mode", "host", "the host's device nodes are not shown as a whole", "name the ones needed in devices.allow")
	c.refuseIf(p.AllowPty != nil && !*p.AllowPty, "allowPty", "false", "every sandbox has pseudo-terminals of its own, which reach nothing outside", "remove it")
}

// Names of runtimes.
const (
	RuntimeNative   = "native"
	RuntimeLandlock = "landlock"
	RuntimeBwrap    = "bwrap"
	RuntimeSeatbelt = "seatbelt"
)

// Brokerless are the runtimes under which nobody is asked while the command runs: those of
// gVisor, whose kernel answers by itself.
func Brokerless() []string { return []string{"gvisor", "docker+runsc"} }

func is(s *string, want string) bool { return s != nil && *s == want }

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
