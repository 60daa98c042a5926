// Package command decides whether a program may be run with its arguments. It
// is pure: whoever starts programs, or watches them being started, says what is
// about to run and asks.
//
// The rules are guard rails. They keep a command that means no harm from what
// nobody wanted; they do not hold one that means harm, which can bring a changed
// copy of any program. Files, network and credentials are the wall.
//
// There are two moments to ask. Judge is for the moment of an exec, when the
// file and every word are known, and is asked again for whatever that program
// executes in turn. Typed is for the moment before anything runs, when a refusal
// is friendliest: it looks through sudo, env, xargs or "sh -c" at what they
// would run, and passes over what only the shell will know.
package command

import (
	"cmp"
	"slices"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Reach says how far rules follow the processes that a command starts.
type Reach string

const (
	// ReachOff leaves what a command starts alone.
	ReachOff Reach = "off"
	// ReachPath holds the rules of one word, which are about whole programs.
	ReachPath Reach = "path"
	// ReachArgv holds every rule.
	ReachArgv Reach = "argv"
)

// List is what a policy says about commands, as data: it can be carried,
// printed and compared. Compile makes it ready to judge.
type List struct {
	Reach    Reach   `json:"reach"`
	Defaults bool    `json:"defaults,omitempty"`
	Deny     []Entry `json:"deny,omitempty"`
	Allow    []Entry `json:"allow,omitempty"`
	// SSH is nil if the policy says nothing about ssh, which is then a program
	// like every other.
	SSH *SSH `json:"ssh,omitempty"`
}

// SSH is what a policy says about hosts, and about commands run there.
type SSH struct {
	AllowedHosts    []Entry `json:"allowedHosts,omitempty"`
	DeniedHosts     []Entry `json:"deniedHosts,omitempty"`
	AllowedCommands []Entry `json:"allowedCommands,omitempty"`
	DeniedCommands  []Entry `json:"deniedCommands,omitempty"`
	AllowAll        bool    `json:"allowAll,omitempty"`
	InheritDeny     bool    `json:"inheritDeny,omitempty"`
}

// Entry is one entry of a list in a policy, and the place it was written at.
type Entry struct {
	Text  string `json:"text"`
	Where string `json:"where,omitempty"`
}

// FromPolicy takes out of a policy what it says about commands.
func FromPolicy(p policy.Policy) List {
	entries := func(key string, texts []string) []Entry {
		var out []Entry
		for _, text := range texts {
			out = append(out, Entry{text, p.Origins[policy.Origin{Key: key, Entry: text}].String()})
		}
		return out
	}
	c := &p.Command
	l := List{
		Reach:    ReachArgv,
		Defaults: c.UseDefaults == nil || *c.UseDefaults,
		Deny:     entries("command.deny", c.Deny),
		Allow:    entries("command.allow", c.Allow),
	}
	if c.RuntimeExecPolicy != nil {
		l.Reach = Reach(*c.RuntimeExecPolicy)
	}
	if s := &p.SSH; saysAnything(s) {
		l.SSH = &SSH{
			AllowedHosts:    entries("ssh.allowedHosts", s.AllowedHosts),
			DeniedHosts:     entries("ssh.deniedHosts", s.DeniedHosts),
			AllowedCommands: entries("ssh.allowedCommands", s.AllowedCommands),
			DeniedCommands:  entries("ssh.deniedCommands", s.DeniedCommands),
			AllowAll:        s.AllowAllCommands != nil && *s.AllowAllCommands,
			InheritDeny:     s.InheritDeny != nil && *s.InheritDeny,
		}
	}
	return l
}

// saysAnything counts an empty list as said: no host at all.
func saysAnything(s *policy.SSH) bool {
	return s.AllowedHosts != nil || s.DeniedHosts != nil || s.AllowedCommands != nil || s.DeniedCommands != nil ||
		s.AllowAllCommands != nil || s.InheritDeny != nil
}

// Warnings names entries that can never match, because they are written as a
// shell would read them and rules are plain words. In a policy file such a denial
// is an error; what comes another way is warned about.
func (l List) Warnings() []string {
	var out []string
	warn := func(key string, entries []Entry) {
		for _, e := range entries {
			if err := policy.CheckCommand(e.Text); err != nil {
				out = append(out, key+" "+quote(e.Text)+at(e.Where)+" has no effect: "+err.Error())
			}
		}
	}
	warn("command.deny", l.Deny)
	warn("command.allow", l.Allow)
	if l.SSH != nil {
		warn("ssh.deniedCommands", l.SSH.DeniedCommands)
		warn("ssh.allowedCommands", l.SSH.AllowedCommands)
	}
	return out
}

// Rules are ready to judge. They do not change, and may be used by several
// goroutines at once.
type Rules struct {
	reach    Reach
	programs map[string]*program
	defaults bool
	ssh      *sshRules
}

// program holds what a policy says about one program, by the last part of its
// name.
type program struct {
	deny, allow []rule
}

// Compile makes rules of a list. The built-in list needs no work. A reach that is
// not known holds every rule.
func (l List) Compile() *Rules {
	r := &Rules{reach: l.Reach, defaults: l.Defaults, programs: make(map[string]*program, len(l.Deny)+len(l.Allow))}
	if r.reach != ReachOff && r.reach != ReachPath {
		r.reach = ReachArgv
	}
	for _, e := range l.Deny {
		r.deny("command.deny", e)
	}
	for _, e := range l.Allow {
		r.allow("command.allow", e)
	}
	if l.SSH != nil {
		r.ssh = l.SSH.compile(r)
	}
	return r
}

func (r *Rules) deny(key string, e Entry) {
	if ru := newRule(key, e); len(ru.all) > 0 {
		p := r.about(ru.all[0])
		p.deny = append(p.deny, ru)
	}
}

func (r *Rules) allow(key string, e Entry) {
	if ru := newRule(key, e); len(ru.all) > 0 {
		p := r.about(ru.all[0])
		p.allow = append(p.allow, ru)
	}
}

func (r *Rules) about(name string) *program {
	name = baseName(name)
	p := r.programs[name]
	if p == nil {
		p = &program{}
		r.programs[name] = p
	}
	return p
}

// Reach says how far these rules follow the processes of a command.
func (r *Rules) Reach() Reach { return r.reach }

// Programs lists the programs that any rule is about, sorted: names to look for
// on PATH, and paths. Among them are the programs that are many in one file,
// such as busybox, because their copies are not known by what they contain.
//
// Whoever judges execs compares files with these to fill in Exec.Same. It need
// not do so at start: only a file that the sandbox could have written can be a
// copy, so the first exec of such a file is soon enough.
func (r *Rules) Programs() []string {
	out := slices.Clone(manyInOne)
	for name, p := range r.programs {
		for _, list := range [][]rule{p.deny, p.allow} {
			for i := range list {
				out = append(out, cmp.Or(list[i].path, name))
			}
		}
	}
	if r.defaults {
		for i := range defaults {
			out = append(out, defaults[i].all[0])
		}
	}
	if r.ssh != nil {
		out = append(out, "ssh")
	}
	slices.Sort(out)
	return slices.Compact(out)
}
