package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/finding"
	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// questions are what can be asked about.
var questions = []string{"path", "host", "env", "command"}

// isQuestion says whether the words after "explain" ask about a single thing
// rather than name a command. A program of such a name stands behind "--".
func (r *request) isQuestion() bool {
	if !r.typed || len(r.args) == 0 {
		return false
	}
	if len(r.args) == 1 {
		return slices.Contains(questions, r.args[0]) && lookPath(r.args[0]) == ""
	}
	if len(r.args) == 2 && policy.Nearest(r.args[0], questions) != "" && lookPath(r.args[0]) == "" {
		return true
	}
	switch r.args[0] {
	case "path", "host", "command":
		return true
	case "env":
		// It is a program as well, which takes assignments and commands.
		return len(r.args) == 2 && !strings.ContainsAny(r.args[1], "=/ ")
	}
	return false
}

// explainOne answers a question.
func (r *request) explainOne() int {
	if err := r.checkQuestion(); err != nil {
		return fail(err)
	}
	m, err := r.manager()
	if err != nil {
		return fail(err)
	}
	s, err := r.supposed(m, []string{"sh"})
	if err != nil {
		return fail(err)
	}
	if !r.settledQuiet() && !r.json {
		say(tagNote, describeChain(m.Loaded()))
	}
	if r.args[0] == "host" && s.Network == spec.NetworkGate {
		return r.askGate(s)
	}
	f, err := find(r.args[0], r.args[1:], m, s)
	if err != nil {
		return fail(err)
	}
	text, err := f.Format(r.json)
	if err != nil {
		return fail(err)
	}
	return answer(text)
}

func (r *request) checkQuestion() error {
	switch {
	case !slices.Contains(questions, r.args[0]):
		return fmt.Errorf("explain %s: there is no such question, and no such program; did you mean %s?", printable(r.args[0]), policy.Nearest(r.args[0], questions))
	case len(r.args) == 1:
		return fmt.Errorf("explain %s wants to know about what: bailey explain %s WORD", r.args[0], r.args[0])
	case r.args[0] != "command" && len(r.args) > 2:
		return fmt.Errorf("explain %s is about one of them; for a command of that name: bailey explain -- %s", r.args[0], r.args[0])
	case r.args[1] == "":
		return errors.New("explain " + r.args[0] + ": an empty word is none")
	case r.args[0] == "host":
		return checkHost(r.args[1])
	}
	return nil
}

func find(kind string, words []string, m *sandbox.Manager, s *spec.Spec) (finding.Finding, error) {
	p := m.Loaded().Policy
	switch kind {
	case "path":
		return findPath(words[0], m, s)
	case "env":
		return findVariable(words[0], p, s), nil
	case "host":
		return findHost(words[0], p, s), nil
	}
	return findCommand(words, p), nil
}

// findPath says what a path of the host is inside: what its mount allows, and what
// the broker denies there.
func findPath(name string, manager *sandbox.Manager, s *spec.Spec) (finding.Finding, error) {
	origins := manager.Loaded().Policy.Origins
	path, err := fromHome(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return finding.Finding{}, err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	f := finding.Finding{Subject: path}
	access, mount := s.Access(path)
	fromMount(&f, access, mount, slices.ContainsFunc(s.Mounts, func(m spec.Mount) bool { return m.Target != path && spec.Covers(path, m.Target) }))
	if access == spec.AccessWrite && s.Overlay.Covers(path) {
		f.Verdict = "can be read; what is written goes to an overlay"
	}
	fromDenial(&f, s, s.Image == nil && !spec.IsOwn(path) && manager.IsClosed(path))
	fromRules(&f, s, access)
	if s.Image == nil {
		fromHost(&f, s, manager.Loaded().Policy.Network.AllowUnixSockets)
	}
	f.Where = cmp.Or(whereIs(f.Rule, origins), whereRule(f.Rule, &manager.Loaded().Policy))
	takeBackDenial(&f)
	return f, fromPermissions(&f, s, origins)
}

// takeBackDenial says how a denial of a policy is undone.
func takeBackDenial(f *finding.Finding) {
	for _, key := range []string{"filesystem.denyRead ", "filesystem.denyWrite "} {
		if strings.HasPrefix(f.Rule, key) {
			f.Fix = finding.TakeBack(f.Rule, f.Where)
		}
	}
}

// fromHome is a path that may begin with the home directory's short name.
func fromHome(name string) (string, error) {
	rest, ok := strings.CutPrefix(name, "~")
	if !ok || rest != "" && rest[0] != '/' {
		return name, nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, rest), err
}

// fromMount finds what the sandbox shows at a path, which may be a directory above
// something that is granted.
func fromMount(f *finding.Finding, access spec.Access, m *spec.Mount, holdsGrants bool) {
	const showIt = "--allow-read "
	switch {
	case m != nil && (m.Kind == spec.Proc || m.Kind == spec.Dev):
		fromOwn(f, m)
	case (m == nil || m.Kind == spec.Dir) && holdsGrants:
		f.Verdict, f.Rule, f.Fix = "holds nothing but what is granted below it", "no rule grants the whole of it", showIt+f.Subject
	case m == nil || m.Kind == spec.Dir:
		f.Verdict, f.Rule, f.Fix = "does not exist inside", "no rule grants it", showIt+f.Subject
	case m.Kind == spec.Hide:
		f.Verdict, f.Rule, f.Fix = "is hidden", m.Why, ruleFix(m)
	case m.Way && f.Subject == m.Target:
		f.Verdict, f.Rule, f.Fix = "is hidden, and shows only the way to what is granted below it", m.Why, ruleFix(m)
	case m.Way:
		f.Verdict, f.Rule, f.Fix = "does not exist inside", m.Why, ruleFix(m)
	case m.Kind == spec.Tmpfs && (holdsGrants || m.Target == f.Subject):
		f.Verdict, f.Rule, f.Fix = "holds nothing but what is granted below it; what is written there is forgotten", m.Why, showIt+f.Subject
	case m.Kind == spec.Tmpfs:
		f.Verdict, f.Rule, f.Fix = "does not exist inside; what is written there is forgotten", m.Why, showIt+f.Subject
	case access == spec.AccessWrite:
		f.Allowed, f.Verdict, f.Rule = true, "can be read and written", m.Why
	case access == spec.AccessPrivate:
		f.Allowed, f.Verdict, f.Rule = true, "can be read; what is written is forgotten", m.Why
	default:
		f.Allowed, f.Verdict, f.Rule, f.Fix = true, "can be read", m.Why, ruleFix(m)
		if f.Fix == "" && !strings.HasPrefix(m.Why, "filesystem.denyWrite ") && !strings.HasPrefix(m.Why, "protected ") {
			f.Fix = "to write it: --allow-write " + f.Subject
		}
	}
}

// ruleFix is what changes what a path permission takes away: no grant does.
func ruleFix(m *spec.Mount) string {
	if strings.HasPrefix(m.Why, "workspace.rules ") {
		return "another workspace.rules"
	}
	return ""
}

// fromOwn finds what is in /proc and /dev, which are not the host's.
func fromOwn(f *finding.Finding, m *spec.Mount) {
	f.Rule = "the sandbox has a " + m.Target + " of its own"
	switch {
	case m.Kind == spec.Proc && isOfInit(f.Subject):
		f.Verdict, f.Rule = "cannot be read", "process 1 is Bailey's own, and nothing inside can look into it"
	case m.Kind == spec.Proc:
		f.Allowed, f.Verdict = true, "can be read, and is about the sandbox's own processes"
	case strings.HasPrefix(f.Subject, "/dev/shm/"):
		f.Verdict, f.Fix = "does not exist inside; what is written there is forgotten", "--allow-read "+f.Subject
	case f.Subject == m.Target || spec.IsStandardDevice(f.Subject):
		f.Allowed, f.Verdict = true, "can be read and written"
	default:
		f.Verdict, f.Fix = "does not exist inside", `in a policy: "devices": {"allow": ["`+f.Subject+`"]}`
	}
}

// isOfInit says whether a file of /proc holds what the kernel shows of a process only
// to those that may trace it, and that process is the first.
func isOfInit(path string) bool {
	rest, ok := strings.CutPrefix(path, "/proc/1/")
	if !ok {
		return false
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(rest, "task/1/"), "/")
	switch name {
	case "auxv", "clear_refs", "cwd", "environ", "exe", "fd", "fdinfo", "io", "map_files", "maps", "mem", "ns", "numa_maps", "pagemap",
		"personality", "root", "smaps", "smaps_rollup", "stack", "syscall", "timers", "timerslack_ns":
		return true
	}
	return false
}

// fromDenial finds the denials that need no mount: of files that do not exist, and of
// those that their own permissions close to the caller, and so to the command.
func fromDenial(f *finding.Finding, s *spec.Spec, closed bool) {
	named := slices.ContainsFunc(s.Denials, func(d spec.Denial) bool { return d.Read && d.Path == f.Subject })
	if !f.Allowed || !closed && !named {
		return
	}
	f.Allowed, f.Verdict, f.Fix = false, "cannot be read", ""
	f.Rule = cmp.Or(s.DeniedBy(f.Subject, false), "its permissions on the host, where you cannot read it either")
}

// fromRules finds what the broker denies of that. In every layer the first rule about
// a path decides.
func fromRules(f *finding.Finding, s *spec.Spec, access spec.Access) {
	if !f.Allowed || s.Broker == nil {
		return
	}
	inArea := slices.ContainsFunc(s.Broker.Areas, func(dir string) bool { return spec.Covers(dir, f.Subject) })
	for _, layer := range s.Broker.Layers {
		read := firstRule(layer, f.Subject, func(r *spec.PathRule) spec.Verdict { return r.Read })
		if s.Broker.Read && read != nil && read.Read == spec.Denied {
			f.Allowed, f.Verdict, f.Rule, f.Fix = false, "cannot be read", read.Why, withPath(read.Fix, f.Subject)
			return
		}
		write := firstRule(layer, f.Subject, func(r *spec.PathRule) spec.Verdict { return r.Write })
		if inArea && access == spec.AccessWrite && write != nil && write.Write == spec.Denied {
			f.Verdict, f.Rule, f.Fix = "can be read, and neither written nor made", write.Why, withPath(write.Fix, f.Subject)
		}
	}
}

// fromHost finds what else there is to know of what is, or is not, on the host: a
// socket is there to be connected to, and nothing can be granted that does not exist,
// but for protected names.
func fromHost(f *finding.Finding, s *spec.Spec, entries []string) {
	info, err := os.Lstat(f.Subject)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if name := protectedName(f.Subject); name != "" && strings.HasPrefix(f.Fix, "--allow-write ") {
			f.Fix = "--allow-write " + name
			return
		}
		f.Fix = strings.Replace(f.Fix, "--allow-", "make it, then --allow-", 1)
	case err == nil && info.Mode().Type() == fs.ModeSocket && !spec.IsOwn(f.Subject):
		fromSocket(f, s, entries)
	}
}

// protectedName is the protected name that a path ends in or leads through, or "".
func protectedName(path string) string {
	for ; path != "/"; path = filepath.Dir(path) {
		if spec.IsProtectedName(path) {
			return path
		}
	}
	return ""
}

// fromSocket finds whether a socket of the host can be connected to: it has to be
// shown, and to be named.
func fromSocket(f *finding.Finding, s *spec.Spec, entries []string) {
	named := ""
	switch {
	case s.Broker == nil || s.Broker.Sockets.All:
		named = "network.allowAllUnixSockets"
	case matches(s.Broker.Sockets.Allowed, f.Subject):
		named = "network.allowUnixSockets"
		if i := slices.IndexFunc(entries, func(e string) bool { return namesSocket(e, f.Subject) }); i >= 0 {
			named += " " + entries[i]
		}
	}
	switch {
	case named != "" && f.Allowed:
		f.Verdict, f.Rule, f.Fix = "can be connected to", named, ""
	case named != "":
		f.Fix = "--allow-read " + filepath.Dir(f.Subject)
	default:
		if f.Allowed {
			f.Allowed, f.Verdict, f.Rule = false, "can be seen, and not connected to", "network.allowUnixSockets does not name it"
		}
		f.Fix = `in a policy: "network": {"allowUnixSockets": ["` + f.Subject + `"]}`
	}
}

// namesSocket says whether an entry of a policy names a socket.
func namesSocket(entry, path string) bool {
	name, err := fromHome(entry)
	return err == nil && (name == path || matches([]string{name}, path))
}

// matches says whether one of some patterns names a path.
func matches(patterns []string, path string) bool {
	set, err := pattern.NewSet(patterns)
	return err == nil && set.First(path) >= 0
}

func withPath(fix, path string) string {
	if strings.HasPrefix(fix, "--") {
		return fix + " " + path
	}
	return fix
}

func firstRule(layer []spec.PathRule, path string, says func(*spec.PathRule) spec.Verdict) *spec.PathRule {
	for i := range layer {
		r := &layer[i]
		if says(r) == "" {
			continue
		}
		if matches([]string{r.Pattern}, path) {
			return r
		}
	}
	return nil
}

// whereIs returns the place of a rule that is named by its key and its entry: in a file or a
// preset, of which the default one is the only one that has no places at a start.
func whereIs(rule string, origins policy.Origins) string {
	key, entry, _ := strings.Cut(rule, " ")
	for _, said := range []func() policy.Origins{func() policy.Origins { return origins }, policy.DefaultOrigins} {
		if pos, ok := said()[policy.Origin{Key: key, Entry: entry}]; ok {
			return pos.String()
		}
	}
	return ""
}

// findVariable says what becomes of a variable of the environment.
func findVariable(name string, p policy.Policy, s *spec.Spec) finding.Finding {
	v := s.Variable(&p, name, cmp.Or(os.Getenv(name), "value")) // it is asked what would happen to it
	f := finding.Finding{Subject: name, Allowed: v.Enters || v.Set, Verdict: "is kept out", Rule: v.Rule, Fix: v.Fix}
	switch {
	case v.Set:
		f.Verdict = "is set"
	case v.Enters:
		f.Verdict = "enters"
	}
	f.Where = whereIs(f.Rule, p.Origins)
	return f
}

// findHost answers for a network without a gate.
func findHost(name string, p policy.Policy, s *spec.Spec) finding.Finding {
	if s.Network == spec.NetworkHost {
		return finding.Finding{Subject: name, Allowed: true, Verdict: "can be reached", Rule: "the network is the host's, without any limit"}
	}
	host, port := cutPort(name)
	f := finding.Finding{Subject: name, Verdict: "cannot be reached", Rule: "the network is closed", Fix: finding.GrantOf(host, port)}
	if denied := p.Network.DeniedBy(host); denied != "" {
		f.Rule, f.Where = denied, whereIs(denied, p.Origins)
		f.Fix = finding.TakeBackAndGrant(denied, f.Where, f.Fix)
	}
	return f
}

// cutPort splits what a question names. An IPv6 address has colons of its own.
func cutPort(name string) (host, port string) {
	i := strings.LastIndexByte(name, ':')
	if i < 0 || strings.HasSuffix(name, "]") || strings.Count(name, ":") > 1 && !strings.HasPrefix(name, "[") {
		return name, ""
	}
	return name[:i], name[i+1:]
}

// checkHost says what is wrong with the host of a question, and how it is written.
func checkHost(name string) error {
	host, port := cutPort(name)
	if strings.Contains(name, "/") {
		host = name // a URL
	}
	err := policy.CheckHost(host)
	if strings.ContainsAny(host, "*@") {
		err = errors.New("it is no single host")
	}
	if n, wrong := strconv.ParseUint(port, 10, 16); err == nil && (port != "" || strings.HasSuffix(name, ":")) && (wrong != nil || n == 0) {
		err = errors.New("a port is a number from 1 to 65535")
	}
	if err != nil {
		return fmt.Errorf("explain host %s: %w; write NAME or NAME:PORT, such as example.com:443", printable(name), err)
	}
	return nil
}

// findCommand judges what somebody would type.
func findCommand(argv []string, p policy.Policy) finding.Finding {
	f := finding.Finding{Subject: strings.Join(argv, " "), Allowed: true, Verdict: "may be run", Rule: "no rule about commands denies it"}
	if v := judgeTyped(p, argv); !v.Allowed {
		f.Allowed, f.Verdict, f.Rule, f.Where, f.Fix = false, "is refused", strings.TrimSpace(v.Key+" "+v.Rule), v.Where, v.Fix
	}
	return f
}
