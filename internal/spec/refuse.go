package spec

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// Unsupported is one reason why a policy cannot be held on this machine by this
// version. Nothing runs while there is one.
type Unsupported struct {
	Key    string // in the policy, for example "network.allowedDomains"
	Value  string // what it says there
	Reason string
	Fix    string // what to do about it
}

func (u *Unsupported) Error() string {
	var b strings.Builder
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

func (c *compiler) refuse(key, value, reason, fix string) {
	u := &Unsupported{key, value, reason, fix}
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

const (
	needsCgroup = "needs control groups, which this version does not use"
)

// limits sets resource limits, and refuses those rlimits cannot hold.
func (c *compiler) limits() {
	// One byte, not zero: at zero a core_pattern that is a pipe still starts its
	// program on the host, at one the kernel declines.
	c.spec.Rlimits = []Rlimit{{"core", 1}}
	r := &c.policy.Resources
	if r.OpenFiles != nil {
		c.spec.Rlimits = append(c.spec.Rlimits, Rlimit{"nofile", uint64(max(*r.OpenFiles, 0))})
	}
	if r.Pids != nil {
		if c.host.UID == 0 {
			c.refuse("resources.pids", strconv.Itoa(*r.Pids), "the kernel does not count processes of root", "run as an ordinary user, or remove it")
		}
		c.spec.Rlimits = append(c.spec.Rlimits, Rlimit{"nproc", uint64(max(*r.Pids, 0))})
	}
	if r.Timeout != nil {
		// Rounded up: zero would mean no limit.
		c.spec.TimeoutMillis = (int64(*r.Timeout) + 999_999) / 1_000_000
	}
	if r.Memory != nil {
		c.refuse("resources.memory", r.Memory.String(), needsCgroup, "remove it")
	}
	if r.Disk != nil {
		c.refuse("resources.disk", r.Disk.String(), needsCgroup, "remove it")
	}
	if r.CPU != nil {
		c.refuse("resources.cpu", fmt.Sprint(*r.CPU), needsCgroup, "remove it")
	}
}

// presentation refuses the remaining choices this version has no wall for.
func (c *compiler) presentation() {
	p := &c.policy
	c.refuseIf(is(p.Workspace.Mode, "overlay"), "workspace.mode", "overlay", "needs workspaces, which this version does not have",
		`use "direct", or filesystem.privateWrite for changes that may be lost`)
	c.refuseIf(len(p.Workspace.Rules) > 0, "workspace.rules", "", "needs workspaces, which this version does not have", "remove it")
	c.refuseIf(p.Runtime != nil && !is(p.Runtime, "auto") && !is(p.Runtime, "native"), "runtime", text(p.Runtime),
		"this version has only the native runtime", `use "auto" or "native"`)
	c.refuseIf(is(p.Devices.Mode, "host"), "devices.mode", "host", "the host's device nodes are not shown as a whole", "name the ones needed in devices.allow")
	c.refuseIf(p.AllowPty != nil && !*p.AllowPty, "allowPty", "false", "every sandbox has pseudo-terminals of its own, which reach nothing outside", "remove it")
}

func is(s *string, want string) bool { return s != nil && *s == want }

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
