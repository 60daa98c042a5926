package spec

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/grants"
	"github.com/bailey-sandbox/bailey/internal/plain"
)

// groups knows what @npm and its like stand for on this machine: the hosts that
// the tools themselves are configured to use. No registry's name is written
// here. What nobody configured is looked up where the tool keeps its own
// default, so that a mirror is found and a default that changes is followed.
// Nothing is executed; a group costs a handful of small files.
type groups struct {
	facts   *lookups
	home    string
	project string // without links; empty if there is none
	environ []string
	// believe says whether a file counts, by its path without links; it is asked
	// about the links that led there as well. Whoever can write a file that
	// counts can open the network: a configuration that came with the code, or
	// that the command of an earlier run left. Nil believes every file.
	believe func(file string) bool
	// notes tell what was missing or passed over although hosts were found, for
	// people.
	notes   []string
	answers map[string]answer
}

var _ grants.Groups = (*groups)(nil)

type answer struct {
	endpoints []grants.Endpoint
	err       error
}

func newGroups(f Facts, home, project string, environ []string) *groups {
	g := &groups{facts: newLookups(f), home: home, environ: environ, answers: map[string]answer{}}
	if r, err := g.facts.resolve(project); project != "" && err == nil && !r.missing {
		g.project = r.path
	}
	return g
}

const (
	// maxEndpoints is far more than tools have registries.
	maxEndpoints = 256
	// maxGroupFile is what facts of a live machine read, too.
	maxGroupFile = 1 << 20
	// maxGroupNames bounds directories that hold one entry a source or version.
	maxGroupNames = 512
	// maxValue is longer than any URL, and than any list of them.
	maxValue = 16 << 10
	// maxDepth is deeper than people nest tables.
	maxDepth = 8
	// maxProblems are as many as somebody would read.
	maxProblems = 16
)

// unresolved is the error for a group that stands for nothing here.
type unresolved struct {
	group, reason string
}

func (u *unresolved) Error() string {
	return u.reason + "; write the host by name instead of " + u.group
}

// Endpoints returns the hosts of a group, each with where it was found. A group
// whose tool is configured to use none, as by GOPROXY=off, has none; one of
// which nothing is known is an error.
func (g *groups) Endpoints(group string) ([]grants.Endpoint, error) {
	a, ok := g.answers[group]
	if !ok {
		a.endpoints, a.err = g.find(group)
		g.answers[group] = a
	}
	return a.endpoints, a.err
}

func (g *groups) find(group string) ([]grants.Endpoint, error) {
	f := &finding{groups: g}
	switch group {
	case "@npm":
		f.npm()
	case "@pip":
		f.pip()
	case "@go":
		f.golang()
	case "@cargo":
		f.cargo()
	case "@apt":
		f.apt()
	case "@git-remotes":
		f.gitRemotes()
	default:
		return nil, errors.New("there is no such group")
	}
	if len(f.endpoints) > maxEndpoints {
		return nil, &unresolved{group, fmt.Sprintf("stands for more than %d hosts", maxEndpoints)}
	}
	if len(f.endpoints) == 0 && len(f.problems) > 0 {
		return nil, &unresolved{group, strings.Join(f.problems, "; ")}
	}
	for _, p := range f.problems {
		g.notes = append(g.notes, group+": "+p)
	}
	return f.endpoints, nil
}

// finding collects the hosts of one group.
type finding struct {
	*groups
	endpoints []grants.Endpoint
	problems  []string
}

// problem tells what is missing or was passed over. It is all there is to say if
// no host is found.
func (f *finding) problem(text string) {
	if text = plain.Text(text); len(f.problems) < maxProblems && !slices.Contains(f.problems, text) {
		f.problems = append(f.problems, text)
	}
}

// add takes the host of a URL. Tools may be told to use a directory instead,
// which needs no network.
func (f *finding) add(raw, from string) {
	scheme, e, ok := parseURL(raw)
	switch {
	case ok && isWeb(scheme):
		f.addEndpoint(e, from)
	case scheme != "file":
		f.problem(from + " names no host that can be granted")
	}
}

// addWeb is add for what may be something else than a URL of the web.
func (f *finding) addWeb(raw, from string) {
	if scheme, _, _ := parseURL(raw); isWeb(scheme) {
		f.add(raw, from)
	}
}

func isWeb(scheme string) bool { return scheme == "http" || scheme == "https" }

func (f *finding) addEndpoint(e grants.Endpoint, from string) {
	isWebPort := e.Port == 80 || e.Port == 443
	for _, old := range f.endpoints {
		if old.Host == e.Host && old.SSH == e.SSH && (old.Port == e.Port || old.Port == 0 && isWebPort) {
			return
		}
	}
	if len(f.endpoints) <= maxEndpoints { // one more tells that there are more
		e.From = plain.Text(from)
		f.endpoints = append(f.endpoints, e)
	}
}

// setting is one line of a configuration, and where it stands. Of several with
// the same key the first counts: the strongest source is read first.
type setting struct {
	key, value, from string
}

func first(settings []setting, key string) (setting, bool) {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key })
	if i < 0 {
		return setting{}, false
	}
	return settings[i], true
}

// locate finds what a path leads to, if there is something that counts. A path
// that is not absolute leads nowhere: it comes of a variable that is not set.
func (f *finding) locate(p string) (resolved, bool) {
	if !strings.HasPrefix(p, "/") || strings.IndexByte(p, 0) >= 0 {
		return resolved{}, false
	}
	r, err := f.facts.resolve(p)
	if err != nil || r.missing {
		return r, false
	}
	isDoubtful := func(l link) bool { return !f.believe(l.path) }
	if f.believe != nil && (!f.believe(r.path) || slices.ContainsFunc(r.links, isDoubtful)) {
		f.problem(p + " does not count, because it came with the code or the command can write it")
		return r, false
	}
	return r, true
}

func (f *finding) exists(p string) bool {
	_, ok := f.locate(p)
	return ok
}

// read returns the content of a file.
func (f *finding) read(file string) (string, bool) {
	r, ok := f.locate(file)
	if !ok || r.info.Type != TypeRegular {
		return "", false
	}
	data, err := f.facts.ReadFile(r.path)
	if err == nil && len(data) > maxGroupFile {
		err = errors.New("too large to be a configuration file")
	}
	if err != nil {
		f.problem(file + " cannot be read: " + cause(err))
		return "", false
	}
	return string(data), true
}

// cause is an error without the path that the message names anyway.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// list returns the names in a directory.
func (f *finding) list(dir string) []string {
	r, ok := f.locate(dir)
	if !ok || r.info.Type != TypeDirectory {
		return nil
	}
	names, err := f.facts.ReadDir(r.path, maxGroupNames)
	if err != nil {
		f.problem(dir + " cannot be read: " + cause(err))
	}
	return names
}

// lookup finds a variable; the last of several counts.
func (g *groups) lookup(name string) (string, bool) {
	for _, v := range slices.Backward(g.environ) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

func (g *groups) variable(name string) string {
	value, _ := g.lookup(name)
	return value
}

// inHome is a file of the home directory; without one it is none.
func (g *groups) inHome(name string) string {
	if g.home == "" {
		return ""
	}
	return path.Join(g.home, name)
}

// inConfig lists where a program keeps a file below the user's configuration,
// here and on macOS.
func (g *groups) inConfig(name string) []string {
	if dir := g.variable("XDG_CONFIG_HOME"); strings.HasPrefix(dir, "/") {
		return []string{path.Join(dir, name)}
	}
	return []string{g.inHome(".config/" + name), g.inHome("Library/Application Support/" + name)}
}

// projectDirs are the directories from the working directory up to the project:
// where tools look for the configuration of one project, nearest first.
func (g *groups) projectDirs() []string {
	if g.project == "" {
		return nil
	}
	dir := g.project
	if r, err := g.facts.resolve(g.facts.Host().Dir); err == nil && Covers(g.project, r.path) {
		dir = r.path
	}
	dirs := []string{dir}
	for dir != g.project {
		dir = path.Dir(dir)
		dirs = append(dirs, dir)
	}
	return dirs
}

// programs are the files of a name in PATH.
func (f *finding) programs(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		search := f.variable("PATH")
		if search == "" {
			search = defaultPath
		}
		for dir := range strings.SplitSeq(search, ":") {
			file := path.Join(dir, name)
			if r, ok := f.locate(file); ok && r.info.Type == TypeRegular && !yield(file) {
				return
			}
		}
	}
}

// prefixes are the directories that programs of PATH may be installed in, so
// that their bin lies in them: going by the name in PATH, by the file it leads
// to, and for the shims of a version manager by the versions that it keeps in
// one of the given directories beside them, newest first.
func (f *finding) prefixes(program string, versions ...string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for file := range f.programs(program) {
			base := path.Dir(path.Dir(file))
			r, _ := f.facts.resolve(file) // found a moment ago
			if !yield(base) || !yield(path.Dir(path.Dir(r.path))) {
				return
			}
			for _, v := range versions {
				names := f.list(path.Join(base, v))
				slices.SortFunc(names, func(a, b string) int { return compareVersions(b, a) })
				for _, name := range names {
					if !yield(path.Join(base, v, name)) {
						return
					}
				}
			}
		}
	}
}

// compareVersions orders 3.9 before 3.12.
func compareVersions(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x == "" || y == "" {
			if a[0] != b[0] {
				return int(a[0]) - int(b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		a, b = a[len(x):], b[len(y):]
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if len(x) != len(y) {
			return len(x) - len(y)
		}
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
	}
	return len(a) - len(b)
}

// digits are those at the beginning.
func digits(s string) string {
	return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
}

// parseURL takes scheme, host and port out of a URL. Who logs in, and where the
// path leads, is nobody's business here. The scheme is returned in any case.
func parseURL(raw string) (string, grants.Endpoint, bool) {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(raw), "://")
	scheme = strings.ToLower(scheme)
	if !ok {
		scheme, _, _ = strings.Cut(scheme, ":")
		return scheme, grants.Endpoint{}, false
	}
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	// Programs disagree on which side of a backslash the host is.
	if strings.IndexByte(authority, '\\') >= 0 {
		return scheme, grants.Endpoint{}, false
	}
	e, ok := parseHostPort(authority[strings.LastIndexByte(authority, '@')+1:])
	return scheme, e, ok
}

func parseHostPort(s string) (grants.Endpoint, bool) {
	host, port := s, ""
	if colon := strings.LastIndexByte(s, ':'); colon > strings.LastIndexByte(s, ']') {
		host, port = s[:colon], s[colon+1:]
	}
	var e grants.Endpoint
	var ok bool
	if e.Host, ok = hostOf(host); !ok {
		return e, false
	}
	if port == "" {
		return e, true
	}
	n, err := strconv.ParseUint(port, 10, 16)
	e.Port = uint16(n)
	return e, err == nil && n != 0 && digits(port) == port
}

// hostOf brings a host into the spelling of a policy. It is not ok for what a
// policy could not say, above all for patterns: a file that names "*" must not
// open the network.
func hostOf(s string) (string, bool) {
	bare, bracket := strings.CutPrefix(s, "[")
	if bracket {
		bare, bracket = strings.CutSuffix(bare, "]")
		if a, err := netip.ParseAddr(bare); bracket && err == nil && a.Is6() && a.Zone() == "" {
			return a.Unmap().String(), true
		}
		return "", false
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return a.String(), a.Is4()
	}
	name := strings.ToLower(strings.TrimSuffix(s, "."))
	if len(name) > 253 || len(name) < len(s)-1 { // letters of other scripts may become shorter
		return "", false
	}
	var label string
	for label = range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", false
		}
	}
	// Resolvers read 127.1, 0x7f.1 and 2130706433 as addresses.
	_, err := strconv.ParseUint(label, 0, 64)
	return name, err != nil && digits(label) != label
}
