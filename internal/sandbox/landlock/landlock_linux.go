package landlock

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/seccomp"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Plan is a Spec that can be carried out here.
type Plan struct {
	// Warnings say what the command will not find as its policy has it. It gets
	// less than that in all of these, never more.
	Warnings []string
	// Shared says what it has in common with the sandbox around it, which with
	// namespaces it would have for itself.
	Shared []string

	spec    *spec.Spec
	abi     int
	rules   []rule
	streams [3]uint64 // rights on the streams' own files
	filter  seccomp.Profile
}

// Options are what a Spec does not say.
type Options struct {
	// Streams are the command's stdin, stdout and stderr, which have these numbers.
	Streams [3]*os.File
	// Denied are the paths that the policy denies, free of links.
	Denied []Denial
	// Begun, if not nil, is called with a descriptor of the process that becomes the
	// command, before it can, and must not keep it. It is for who starts one alone.
	Begun func(pidfd int)
}

// Denial is a path that must not be read, or not be written. A Spec says nothing
// of one in a directory that would be private and empty. Here such a directory is
// that of the sandbox around this one, and has what others put there.
type Denial struct {
	Path string
	Read bool   // it may be read
	Why  string // the rule of the policy
}

// minABI is the interface that keeps signals within: there is no process
// namespace to do that.
const minABI = 6

// Prepare decides whether a Spec can be carried out here, and how. It changes
// nothing but what a broker around this process does for it, which the command must
// not have either. If a part cannot be held the error is a *spec.Refused with every such
// part.
func Prepare(s *spec.Spec, o Options) (*Plan, error) {
	if u := s.Overlay.Refused(spec.RuntimeLandlock); u != nil {
		return nil, &spec.Refused{Reasons: []*spec.Unsupported{u}}
	}
	if u := s.Rules.Refused(spec.RuntimeLandlock); u != nil {
		return nil, &spec.Refused{Reasons: []*spec.Unsupported{u}}
	}
	abi, err := interfaceFor(s)
	if err != nil {
		return nil, err
	}
	w, err := look()
	if err != nil {
		return nil, err
	}
	c := &check{spec: s, denied: o.Denied, world: w, abi: abi, terminal: hasTerminal(o.Streams)}
	if err := c.run(); err != nil {
		return nil, err
	}
	p := &Plan{Warnings: c.warnings, Shared: c.shared, spec: s, abi: abi, rules: c.rules, filter: c.filter()}
	p.streams, err = native.StreamRights(s, o.Streams, abi)
	return p, err
}

// check decides about one Spec.
type check struct {
	spec     *spec.Spec
	denied   []Denial
	world    *world
	abi      int
	terminal bool // a stream is one
	// alone says that there is no sandbox around this one; see Alone.
	alone bool

	points []point
	rules  []rule
	// brokered says that a broker performs calls for the command, so that Landlock
	// does not judge all of them.
	brokered bool
	closed   bool // there is no network here but loopback

	reasons  []*spec.Unsupported
	warnings []string
	shared   []string
}

// run judges every part of the Spec. What is mounted comes first: the rest is
// about what is left to do.
func (c *check) run() error {
	c.mounts()
	c.network()
	c.broker()
	c.limits()
	if len(c.reasons) == 0 {
		c.findPoints()
		c.pinned()
		c.names()
		if err := c.restrictions(); err != nil {
			return err
		}
	}
	if len(c.reasons) == 0 {
		c.grant()
	}
	if len(c.reasons) > 0 {
		return &spec.Refused{Reasons: c.reasons}
	}
	return nil
}

func (c *check) refuse(key, value, reason, fix string) {
	u := &spec.Unsupported{Key: key, Value: value, Reason: reason, Fix: fix}
	for _, old := range c.reasons {
		if *old == *u {
			return
		}
	}
	c.reasons = append(c.reasons, u)
}

// refuseAt refuses what a rule of the policy says about a point, or, where none
// does, that the policy leaves it out.
func (c *check) refuseAt(p *point, reason, fix string) {
	if p.why == "" {
		c.refuse(p.path, "", "is not granted, and "+reason, fix)
		return
	}
	c.refuseWhy(p.why, reason, fix)
}

// refuseWhy is refuse for what a Spec says about where a part comes from:
// "filesystem.denyWrite src", "protected .git/hooks".
func (c *check) refuseWhy(why, reason, fix string) {
	key, value, _ := strings.Cut(why, " ")
	c.refuse(key, value, reason, fix)
}

func (c *check) warn(text string) { c.warnings = append(c.warnings, text) }

func hasTerminal(streams [3]*os.File) bool {
	for _, f := range streams {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			return true
		}
	}
	return false
}
