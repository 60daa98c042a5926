package command

import (
	"slices"
	"strings"
)

// Exec is a program about to run.
type Exec struct {
	// Path is the program as the caller names it, and Real the file this leads
	// to, without symbolic links. Either may be empty if it is not known.
	Path string
	Real string
	// Argv are the words the caller gives, the program's own name first. That
	// name may be a lie, so it only ever adds to the others.
	Argv []string
	// Same names those of Rules.Programs whose file this is, or has the content
	// of. A file that the sandbox cannot write needs none: it is known by Path
	// and Real.
	Same []string
	// Interpreters are, for a script, the programs that its "#!" line leads to:
	// its own interpreter first, then, if that is a script too, that one's.
	Interpreters []Interpreter
}

// Interpreter is what a "#!" line leads to.
type Interpreter struct {
	Line string // the line, with or without "#!"
	Real string
	Same []string
}

// Judge says whether an exec may go on, by the rules that Reach covers. It does
// not look at what the program will execute in turn: that is judged when it
// happens.
//
// The work is bounded by the length of argv, and Judge takes whatever it is
// given: an empty argv, names that are no names, words that are no text.
func (r *Rules) Judge(e Exec) Verdict {
	if r.reach == ReachOff {
		return allowed
	}
	if v := r.judge(&e, r.reach); !v.Allowed {
		return v
	}
	// The kernel puts the interpreter in front, and the script's path in the
	// place of its name.
	for _, in := range e.Interpreters {
		interpreter, argument := Shebang(in.Line)
		argv := make([]string, 0, len(e.Argv)+2)
		argv = append(argv, interpreter)
		if argument != "" {
			argv = append(argv, argument)
		}
		argv = append(argv, e.Path)
		if len(e.Argv) > 0 {
			argv = append(argv, e.Argv[1:]...)
		}
		e = Exec{Path: interpreter, Real: in.Real, Argv: argv, Same: in.Same}
		if v := r.judge(&e, r.reach); !v.Allowed {
			return v
		}
	}
	return allowed
}

// maxInside is how many programs may hide in one another within a single argv,
// such as an applet of busybox given to the dynamic loader.
const maxInside = 8

// judge looks at one program, and at those it becomes without another exec.
func (r *Rules) judge(e *Exec, reach Reach) Verdict {
	now := *e
	for range maxInside {
		if v := r.judgeProgram(&now, reach); !v.Allowed {
			return v
		}
		now = inside(&now)
		if len(now.Argv) == 0 {
			return allowed
		}
	}
	return Verdict{
		Command: summary(e.Argv), Key: "command.deny", Reason: "programs are given to one another too many times to look at",
		Fix: "run the last one directly",
	}
}

// candidate is one reading of a program: a name that rules know, and the
// arguments under that name.
type candidate struct {
	own     *program // nil if the policy says nothing about the name
	builtIn []rule
	tool    *tool
	// derived is how far the name is from the one it comes from: python3.11 is
	// python3, and, further away, python.
	derived int
	// least is how many words a rule needs to apply.
	least int
	args  []string
}

// judgeProgram looks at all names of one program. Each stands for itself: an
// allowed name does not excuse a denied one, since a caller chooses some of
// them. Only the names in Same are judged together, because they are all true.
func (r *Rules) judgeProgram(e *Exec, reach Reach) Verdict {
	var names [3]string
	own := names[:0]
	for _, n := range [...]string{argv0(e.Argv), baseName(e.Path), baseName(e.Real)} {
		if n != "" && len(n) <= maxName && !slices.Contains(own, n) {
			own = append(own, n)
		}
	}
	var args []string
	if len(e.Argv) > 0 {
		args = e.Argv[1:]
	}
	var space [8]candidate
	for _, n := range own {
		if v := decide(e, r.candidates(space[:0], n, own[0], args), reach); !v.Allowed {
			return v
		}
	}
	if len(e.Same) > 0 {
		found := space[:0]
		many := slices.ContainsFunc(own, isManyInOne) || slices.ContainsFunc(e.Same, isManyInOne)
		for _, s := range e.Same {
			n := baseName(s)
			// What a program of many is depends on how it is called.
			if !many || isManyInOne(n) {
				found = r.candidates(found, n, n, args)
			}
		}
		if v := decide(e, found, reach); !v.Allowed {
			return v
		}
	}
	if r.ssh != nil && reach == ReachArgv && isSSH(own, e.Same) {
		return r.ssh.judge(args)
	}
	return allowed
}

// maxName is the longest name a file can have.
const maxName = 255

// argv0 is the name a program is called by. A login shell has a dash before it.
func argv0(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	return strings.TrimPrefix(baseName(argv[0]), "-")
}

// candidates appends the readings of a name that any rule is about. called is
// the name in argv.
func (r *Rules) candidates(found []candidate, name, called string, args []string) []candidate {
	if isByName(name) && strings.HasPrefix(called, name) && called != name && called[len(name)] == '-' {
		// Called as git-fetch, git reads its arguments as those of fetch.
		args = nil
	}
	const furthest = 4
	derived := 0
	for n := name; n != "" && derived < furthest; n = shorterName(n) {
		found = r.candidate(found, n, candidate{derived: derived, least: 1, args: args})
		derived++
	}
	if n := frontName(name); n != "" {
		found = r.candidate(found, n, candidate{derived: 1, least: 1, args: args})
	}
	// git-push is git push.
	if head, tail, ok := strings.Cut(name, "-"); ok && tail != "" {
		n := len(found)
		if found = r.candidate(found, head, candidate{derived: 1, least: 2}); len(found) > n {
			c := &found[n]
			c.args = append([]string{tail}, args...)
			if c.tool != nil && c.tool.helpers {
				c.least = 1
			}
		}
	}
	return found
}

// candidate appends c if there is a rule about the name.
func (r *Rules) candidate(found []candidate, name string, c candidate) []candidate {
	c.own = r.programs[name]
	if r.defaults {
		c.builtIn = findDefaults(name)
	}
	if c.own == nil && c.builtIn == nil {
		return found
	}
	c.tool = findTool(name)
	return append(found, c)
}

// fit is a rule that matches, and how well.
type fit struct {
	rule    *rule
	derived int
}

// atLeast compares by the number of words, then by how close the name is.
func (f fit) atLeast(g fit) bool {
	switch {
	case f.rule == nil:
		return false
	case g.rule == nil:
		return true
	case f.rule.size() != g.rule.size():
		return f.rule.size() > g.rule.size()
	}
	return f.derived <= g.derived
}

// decide sets the most specific denial against the most specific allowance. The
// allowance wins a tie. A policy's denial and a built-in one are two questions:
// what the built-in list allows is no answer to the first.
func decide(e *Exec, found []candidate, reach Reach) Verdict {
	for _, builtIn := range [...]bool{false, true} {
		denial := bestDenial(e, found, reach, builtIn)
		if denial.rule == nil {
			continue
		}
		if !bestAllowance(e, found, builtIn).atLeast(denial) {
			return denial.rule.refuse(e.Argv)
		}
	}
	return allowed
}

func bestDenial(e *Exec, found []candidate, reach Reach, builtIn bool) (best fit) {
	for i := range found {
		c := &found[i]
		list := c.builtIn
		if !builtIn {
			list = c.own.denials()
		}
		for j := range list {
			ru := &list[j]
			f := fit{ru, c.derived}
			if ru.allow || ru.size() < c.least || reach == ReachPath && ru.size() > 1 || best.atLeast(f) {
				continue
			}
			if ru.isAbout(e) && ru.deniesAny(c.tool, c.args) && !c.own.takesBack(ru) {
				best = f
			}
		}
	}
	return best
}

func bestAllowance(e *Exec, found []candidate, builtIn bool) (best fit) {
	for i := range found {
		c := &found[i]
		consider := func(ru *rule) {
			f := fit{ru, c.derived}
			if ru.size() >= c.least && !best.atLeast(f) && ru.isAbout(e) && ru.allows(c.tool, c.args, true) {
				best = f
			}
		}
		if c.own != nil {
			for j := range c.own.allow {
				consider(&c.own.allow[j])
			}
		}
		for j := range c.builtIn {
			if builtIn && c.builtIn[j].allow {
				consider(&c.builtIn[j])
			}
		}
	}
	return best
}

func (p *program) denials() []rule {
	if p == nil {
		return nil
	}
	return p.deny
}

// takesBack reports whether a denial is also allowed, word for word. It is void
// then, in whatever order a command has its words.
func (p *program) takesBack(denial *rule) bool {
	return p != nil && slices.ContainsFunc(p.allow, func(ru rule) bool { return slices.Equal(ru.all, denial.all) })
}

// isAbout holds a rule that names a path to that file.
func (ru *rule) isAbout(e *Exec) bool {
	if ru.path == "" {
		return true
	}
	if ru.path[0] != '/' {
		// ./gradlew is any gradlew, scripts/deploy any deploy in a scripts.
		return hasTail(e.Path, ru.path) || hasTail(e.Real, ru.path) || slices.Contains(e.Same, ru.path)
	}
	return e.Path == ru.path || e.Real == ru.path || slices.Contains(e.Same, ru.path)
}

func hasTail(p, tail string) bool {
	head, ok := strings.CutSuffix(p, tail)
	return ok && (head == "" || strings.HasSuffix(head, "/"))
}

// deniesAny looks at a command as it stands and, for git, as its aliases on the
// same command line make it.
func (ru *rule) deniesAny(t *tool, args []string) bool {
	if ru.denies(t, args) {
		return true
	}
	if t == nil || !t.aliases || ru.size() == 1 {
		return false
	}
	const mostOptions = 64
	for i := 0; i < mostOptions && len(args) > 1 && isOption(args[0]); i++ {
		flag, value := t.takes(args[0])
		if alias, ok := strings.CutPrefix(args[1], "alias."); ok && args[0] == "-c" {
			_, meaning, _ := strings.Cut(alias, "=")
			if ru.denies(t, append(strings.Fields(meaning), args[2:]...)) {
				return true
			}
		}
		args = args[1:]
		if value && !flag {
			args = args[1:]
		}
	}
	return false
}
