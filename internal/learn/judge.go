package learn

import (
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Call is a call of a command that names a file.
type Call struct {
	Program string
	Op      string // as package broker names it: open, create, stat, exec and so on
	Path    string // absolute and clean, links not resolved
	Write   bool   // it wants to change what is there
	Gone    bool   // nothing will be there any more: it is removed, or gets another name
}

// Files is what has to be known about files of the host.
type Files interface {
	// Look follows the links of a path. It reports false if nothing is there.
	Look(path string) (File, bool)
	// Names lists a directory; nil if that cannot be done.
	Names(dir string) []string
	// May says whether the host lets the caller write a path, or read it.
	May(path string, write bool) bool
	// Interpreter returns the program that a script names in its first line; ""
	// if the file is no script.
	Interpreter(path string) string
}

// File is what a path leads to.
type File struct {
	Real string // its path without links
	Dir  bool
}

// Need is something that a call wants of the host and a Spec does not give it.
type Need struct {
	Call
	// Grant is the path that would have to be granted: the file itself, or the
	// directory in which a name is to come or go.
	Grant string
	Dir   bool // Grant is a directory
	// Change says that Grant would have to be writable. A call that writes can
	// also need to read, the link that it names the file by.
	Change bool
	// Denied is the rule that forbids it; empty if merely nothing grants it.
	Denied string
	// Brokered says that the broker denies it, and so tells about it itself.
	Brokered bool
	// ReadOnly says that reading is granted, and writing is what lacks. Around is
	// the path that is granted so.
	ReadOnly bool
	Around   string
	// Vain says that no grant would help: the host refuses it as well.
	Vain bool
	// Fix is the flag that lifts the rule, to be followed by Path; empty if none
	// does, or no rule forbids it.
	Fix string
}

// Rule says in a few words what stands in the way.
func (n *Need) Rule() string {
	switch {
	case n.Denied != "":
		return n.Denied
	case n.ReadOnly:
		return "only reading is granted"
	}
	return "not granted"
}

// Judge holds calls against a Spec. Any number of goroutines may use it at once.
type Judge struct {
	spec   *spec.Spec
	layers []layer
	// made are files and directories of the host that the command makes in
	// memory, since it does not find them there.
	made pathSet
}

// layer holds the broker's rules about reading and about writing.
type layer struct{ read, write ruleSet }

type ruleSet struct {
	set   *pattern.Set
	rules []*spec.PathRule
}

// NewJudge returns the Judge of a Spec, which must not change any more.
func NewJudge(s *spec.Spec) (*Judge, error) {
	j := &Judge{spec: s}
	if s.Broker == nil {
		return j, nil
	}
	for _, list := range s.Broker.Layers {
		read, err := newRuleSet(list, readVerdict)
		if err != nil {
			return nil, err
		}
		write, err := newRuleSet(list, writeVerdict)
		if err != nil {
			return nil, err
		}
		j.layers = append(j.layers, layer{read, write})
	}
	return j, nil
}

func readVerdict(r *spec.PathRule) spec.Verdict { return r.Read }

func writeVerdict(r *spec.PathRule) spec.Verdict { return r.Write }

func newRuleSet(list []spec.PathRule, verdict func(*spec.PathRule) spec.Verdict) (ruleSet, error) {
	var texts []string
	var s ruleSet
	for i := range list {
		if verdict(&list[i]) != "" {
			texts = append(texts, list[i].Pattern)
			s.rules = append(s.rules, &list[i])
		}
	}
	var err error
	if s.set, err = pattern.NewSet(texts); err != nil {
		return s, fmt.Errorf("learn: %w", err)
	}
	return s, nil
}

// denies returns the rule that decides about a path, if it denies.
func (s *ruleSet) denies(p string, verdict func(*spec.PathRule) spec.Verdict) *spec.PathRule {
	if n := s.set.First(p); n >= 0 && verdict(s.rules[n]) == spec.Denied {
		return s.rules[n]
	}
	return nil
}

// finding is what a Spec says about one path.
type finding struct {
	allowed  bool
	denied   string // the rule, if there is one
	brokered bool
	twice    bool // by a mount, and the broker would too
	readOnly bool // nothing but writing lacks
	around   string
	fix      string
}

var (
	allowed    = finding{allowed: true}
	notGranted = finding{}
)

// Readable says whether the sandbox shows what is at a path of the host.
func (j *Judge) Readable(p string) bool { return j.read(p, false).allowed }

// read judges whether the content at a path without links can be had, or, for a
// mere look, whether there is something at all.
func (j *Judge) read(p string, look bool) finding {
	_, m := j.spec.Access(p)
	switch {
	case m == nil, m.Kind == spec.Dir, m.Kind == spec.Tmpfs:
		if j.leadsToMount(p) {
			return allowed
		}
		return finding{denied: j.spec.DeniedBy(p, false)}
	case m.Kind == spec.Hide:
		if look && p == m.Target {
			return allowed // something empty stands in its place
		}
		return finding{denied: m.Why}
	case m.Kind == spec.Symlink:
		return allowed // what it leads to is judged by its own path
	}
	for i := range j.layers {
		if r := j.layers[i].read.denies(p, readVerdict); r != nil && !look {
			return finding{denied: r.Why, brokered: true}
		}
	}
	return allowed
}

// leadsToMount says whether a path is a directory that exists inside because
// something is mounted at it or below it.
func (j *Judge) leadsToMount(p string) bool {
	for i := range j.spec.Mounts {
		if spec.Covers(p, j.spec.Mounts[i].Target) {
			return true
		}
	}
	return false
}

// write judges whether a path without links can be made or changed, in a
// directory of the host that is its parent, or the nearest above it. A denial is
// what stands in the way even where nothing is granted: a grant would not help.
func (j *Judge) write(p, dir string) finding {
	v := j.writeGranted(p, dir)
	if !v.allowed && v.denied == "" {
		v.denied = j.spec.DeniedBy(p, true)
	}
	return v
}

func (j *Judge) writeGranted(p, dir string) finding {
	access, m := j.spec.Access(p)
	switch {
	case m == nil, m.Kind == spec.Dir, m.Kind == spec.Symlink:
		return notGranted
	case m.Kind == spec.Hide:
		return finding{denied: m.Why}
	case m.Kind == spec.Tmpfs:
		// What the host has there the sandbox does not, unless it made it anew.
		if j.leadsToMount(dir) || j.made.has(dir) {
			return allowed
		}
		return notGranted
	case access < spec.AccessPrivate:
		if isDenial(m.Why) {
			v := finding{denied: m.Why}
			if r := j.brokered(p); r != nil {
				v.twice, v.fix = true, r.Fix
			}
			return v
		}
		return finding{readOnly: true, around: m.Target}
	case access == spec.AccessPrivate:
		return allowed
	}
	if r := j.brokered(p); r != nil {
		return finding{denied: r.Why, brokered: true}
	}
	return allowed
}

// brokered returns the broker's rule that keeps a path from being written, if there
// is one.
func (j *Judge) brokered(p string) *spec.PathRule {
	for i := range j.layers {
		if r := j.layers[i].write.denies(p, writeVerdict); r != nil {
			return r
		}
	}
	return nil
}

// inMemory says whether a path lies in a directory that shows nothing of the
// host.
func (j *Judge) inMemory(p string) bool {
	_, m := j.spec.Access(p)
	return m != nil && m.Kind == spec.Tmpfs && p != m.Target
}

// Needs returns what a call would lack. There can be two: the file, and the link
// it is named by.
//
// Who asks for what the host does not have either lacks nothing. Neither does
// who looks at places that every sandbox has of its own, or at what every
// program looks at when it starts.
func (j *Judge) Needs(c Call, f Files) []Need {
	needs := j.needs(c, f)
	for i := range needs {
		n := &needs[i]
		n.Vain = !n.isLook() && n.Denied == "" && !f.May(n.Grant, n.Change)
	}
	return needs
}

func (j *Judge) needs(c Call, f Files) []Need {
	if isNoise(c.Path) {
		return nil
	}
	file, exists := f.Look(c.Path)
	switch {
	case c.goes() && !exists:
		j.made.drop(c.Path)
		return nil
	case !c.Write && !exists:
		return nil
	case c.goes():
		return j.needsSource(c, f)
	case c.Op == "exec":
		return j.needsProgram(c, file, f)
	case !c.Write:
		return j.needsReading(c, file)
	case c.Op == "mkdir" && exists:
		if j.inMemory(file.Real) && j.write(file.Real, path.Dir(file.Real)).allowed {
			j.made.add(file.Real) // there is none inside, so one is made
			return nil
		}
		c.Write = false // it learns that there is one
		return j.needsReading(c, file)
	case changesDirectory(c.Op, exists), c.Op == "create" && j.inMemory(file.Real):
		return j.needsDirectory(c, f)
	case !exists:
		return nil
	}
	needs := j.needsLink(c, file)
	v := j.write(file.Real, path.Dir(file.Real))
	if v.allowed && j.inMemory(file.Real) && !j.made.has(file.Real) {
		v = notGranted // what is to be changed is not there
	}
	if !v.allowed && !j.passes(c, v) {
		needs = append(needs, j.need(c, file.Real, file.Dir, true, v))
	}
	return needs
}

// passes says that the rule which stands in the way of a call is about names that
// are made or written, and not about removing or changing what has one: the broker
// is asked about that only where whole paths are ruled.
func (j *Judge) passes(c Call, v finding) bool {
	return v.brokered && !j.asks(c)
}

// asks says whether the broker is asked about a call that a rule about writing is in
// the way of.
func (j *Judge) asks(c Call) bool {
	return j.spec.Broker.Strict || c.Op != "remove" && c.Op != "change"
}

// maxScripts is how many scripts the kernel lets name another as interpreter.
const maxScripts = 4

// needsProgram judges a program, and those that the kernel starts in its place.
func (j *Judge) needsProgram(c Call, file File, f Files) []Need {
	needs := j.needsReading(c, file)
	for range maxScripts {
		c.Path = path.Clean(f.Interpreter(file.Real))
		next, exists := f.Look(c.Path)
		if c.Path[0] != '/' || !exists {
			break
		}
		file = next
		needs = append(needs, j.needsReading(c, file)...)
	}
	return needs
}

func (j *Judge) needsReading(c Call, file File) []Need {
	needs := j.needsLink(c, file)
	if v := j.read(file.Real, c.isLook()); !v.allowed {
		needs = append(needs, j.need(c, file.Real, file.Dir, false, v))
	}
	return needs
}

// needsLink adds the path as it was named, if links lead from it to the file.
func (j *Judge) needsLink(c Call, file File) []Need {
	if c.Path == file.Real {
		return nil
	}
	if v := j.read(c.Path, true); !v.allowed {
		return []Need{j.need(c, c.Path, file.Dir, false, v)}
	}
	return nil
}

// changesDirectory says whether a call makes or replaces a name, which takes the
// right to write the directory that holds it.
func changesDirectory(op string, exists bool) bool {
	switch op {
	case "rename", "link", "symlink", "mknod":
		return true
	case "create", "mkdir":
		return !exists
	}
	return false
}

// needsDirectory judges a name that comes. The directory to grant is the
// nearest that exists: a policy cannot grant one that does not.
func (j *Judge) needsDirectory(c Call, f Files) []Need {
	rest := path.Base(c.Path)
	for dir := path.Dir(c.Path); ; dir = path.Dir(dir) {
		file, ok := f.Look(dir)
		if ok && file.Dir {
			made := path.Join(file.Real, rest)
			v := j.write(made, file.Real)
			if v.allowed && j.inMemory(made) {
				j.made.add(made)
			}
			if v.allowed {
				return nil
			}
			return []Need{j.need(c, file.Real, true, true, v)}
		}
		if ok || dir == "/" {
			return nil // a file is in the way; the call fails anywhere
		}
		rest = path.Join(path.Base(dir), rest)
	}
}

// needsSource judges a name that is to go from a directory of the host. Where the
// sandbox has memory instead, it is not there, unless the command made it.
func (j *Judge) needsSource(c Call, f Files) []Need {
	dir, ok := f.Look(path.Dir(c.Path))
	if !ok {
		return nil
	}
	name := path.Join(dir.Real, path.Base(c.Path))
	v := j.write(name, dir.Real)
	if j.inMemory(name) && !j.made.has(name) {
		v = notGranted
	}
	if v.allowed || j.passes(c, v) {
		return nil
	}
	return []Need{j.need(c, dir.Real, true, true, v)}
}

func (j *Judge) need(c Call, grant string, dir, change bool, v finding) Need {
	return Need{
		Call: c, Grant: grant, Dir: dir, Change: change,
		Denied: v.denied, Brokered: v.brokered || v.twice && j.asks(c), ReadOnly: v.readOnly, Around: v.around, Fix: v.fix,
	}
}

// goes says that a call takes a name away.
func (c *Call) goes() bool { return c.Gone || c.Op == "remove" }

// isLook says that a call wants to know of a file no more than what it is.
func (c *Call) isLook() bool { return !c.Write && (c.Op == "stat" || c.Op == "mkdir") }

// Forgotten are the directories and files that the command made in a home that is
// memory, each by the first names of its path. Caches are none: they are there to
// be forgotten.
func (j *Judge) Forgotten(home string) []string {
	var out []string
	for p := range j.made.all() {
		rest, ok := below(home, p)
		if !ok || cacheOf(home, p) != "" {
			continue
		}
		names := strings.SplitN(rest, "/", 4)
		depth := 1
		switch names[0] {
		case ".config", ".cache":
			depth = 2
		case ".local":
			depth = 3 // such as .local/share/tool
		}
		if len(names) < depth {
			continue // it is there to be filled
		}
		out = append(out, path.Join(home, path.Join(names[:depth]...)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// pathSet holds a limited number of paths.
type pathSet struct {
	mu    sync.Mutex
	paths map[string]bool
}

func (s *pathSet) has(p string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paths[p]
}

// all returns the paths. Nothing is added meanwhile.
func (s *pathSet) all() iter.Seq[string] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Keys(s.paths)
}

func (s *pathSet) drop(p string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.paths, p)
}

func (s *pathSet) add(p string) {
	const most = 1 << 16
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paths == nil {
		s.paths = map[string]bool{}
	}
	if len(s.paths) < most {
		s.paths[p] = true
	}
}
