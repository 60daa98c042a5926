package foreign

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// translator builds one Translation. The first mistake in the file is kept in
// err, and the rest is read all the same.
type translator struct {
	Options
	*Translation
	err error

	// everyHost says that all of them were granted.
	everyHost bool
}

// entry is one entry of a list in a file, and its place.
type entry struct {
	text string
	pos  policy.Pos
	// literal says that nothing in a path is a wildcard.
	literal bool
	// reason is set for what stands in no file.
	reason string
}

// entries are those of a list, by the places that the decoder has noted.
func entries(origins policy.Origins, key string, list []string) []entry {
	out := make([]entry, len(list))
	for i, text := range list {
		out[i] = entry{text: text, pos: origins[policy.Origin{Key: key, Entry: text}]}
	}
	return out
}

// because makes entries of what stands in no file.
func because(reason string, list ...string) []entry {
	out := make([]entry, len(list))
	for i, text := range list {
		out[i] = entry{text: text, reason: reason}
	}
	return out
}

func (t *translator) fail(pos policy.Pos, format string, args ...any) {
	if t.err == nil {
		t.err = pos.Errorf(format, args...)
	}
}

// lose notes a grant that could not be carried, and loseRestriction one that
// something depends on.
func (t *translator) lose(pos policy.Pos, what, why string) {
	t.Lost = append(t.Lost, Note{Pos: pos, What: what, Why: why})
}

func (t *translator) loseRestriction(pos policy.Pos, what, why string) {
	t.Lost = append(t.Lost, Note{Pos: pos, What: what, Why: why, Restricts: true})
}

func (t *translator) idle(pos policy.Pos, what, why string) {
	t.Idle = append(t.Idle, Note{Pos: pos, What: what, Why: why})
}

// idleIf notes a key that has no effect, if the file has it.
func (t *translator) idleIf(origins policy.Origins, key, why string) {
	if pos, given := place(origins, key); given {
		t.idle(pos, key, why)
	}
}

// place finds a key, be it a single value or a list.
func place(origins policy.Origins, key string) (first policy.Pos, given bool) {
	for o, pos := range origins {
		if o.Key != key && !strings.HasPrefix(o.Key, key+".") && !strings.HasPrefix(o.Key, key+"[") {
			continue
		}
		if !given || pos.Line < first.Line || pos.Line == first.Line && pos.Column < first.Column {
			first, given = pos, true
		}
	}
	return first, given
}

// stricter notes something that Bailey does more strictly.
func (t *translator) stricter(text string) {
	if !slices.Contains(t.Stricter, text) {
		t.Stricter = append(t.Stricter, text)
	}
}

// add appends to a list of the policy, each text once, and keeps its place.
func (t *translator) add(list *[]string, key, text string, e entry) {
	if slices.Contains(*list, text) {
		return
	}
	*list = append(*list, text)
	t.keep(policy.Origin{Key: key, Entry: text}, e)
}

func (t *translator) keep(o policy.Origin, e entry) {
	if e.pos.File != "" {
		t.Policy.Origins[o] = e.pos
	}
	if e.reason != "" {
		t.Reasons[o] = e.reason
	}
}

// set says a single value of the policy, from the place that the file says it.
func set[T any](t *translator, to **T, key string, value T, e entry) {
	*to = &value
	t.keep(policy.Origin{Key: key}, e)
}

// texts carries a list as it is.
func (t *translator) texts(to *[]string, key, kind string, from []entry) {
	for _, e := range from {
		text := strings.TrimSpace(e.text)
		if err := policy.Valid(kind, text); err != nil {
			t.fail(e.pos, "%s: %q: %v", key, e.text, err)
			continue
		}
		if strings.HasPrefix(text, "!") {
			t.fail(e.pos, "%s: %q: an entry cannot begin with !, which takes an inherited one back", key, e.text)
			continue
		}
		t.add(to, key, text, e)
	}
}

// files is what a tool's settings say about files.
type files struct {
	allowRead, denyRead, allowWrite, denyWrite []entry
	// closed says that only what is named can be read.
	closed *bool
	// denyWins says that a denial to read holds for everything below it.
	denyWins bool
	// braces says that {a,b} in a pattern means a or b.
	braces bool
	// private are directories that the tool makes writable by itself.
	private []entry
}

const (
	keyAllowRead    = "filesystem.allowRead"
	keyDenyRead     = "filesystem.denyRead"
	keyAllowWrite   = "filesystem.allowWrite"
	keyDenyWrite    = "filesystem.denyWrite"
	keyPrivateWrite = "filesystem.privateWrite"
)

// files carries what is said about files, and hides what the tool leaves open
// although it is a secret.
func (t *translator) files(f files) {
	fs := &t.Policy.Filesystem
	closed := f.closed != nil && *f.closed
	for _, e := range f.denyRead {
		if path, ok := t.path(keyDenyRead, e, f.braces); ok && path == "/" && !f.denyWins {
			closed = true // and what is granted stays so
		} else if ok {
			t.add(&fs.DenyRead, keyDenyRead, path, e)
		}
	}
	for _, e := range f.allowRead {
		t.grant(&fs.AllowRead, keyAllowRead, e, f.braces)
	}
	for _, e := range f.allowWrite {
		t.grant(&fs.AllowWrite, keyAllowWrite, e, f.braces)
	}
	for _, e := range f.denyWrite {
		if path, ok := t.path(keyDenyWrite, e, f.braces); ok {
			t.add(&fs.DenyWrite, keyDenyWrite, path, e)
		}
	}
	fs.DefaultDenyRead = &closed
	if !closed {
		t.showOwn()
	}
	if f.denyWins && t.deniesAround() {
		strict := true
		fs.StrictDenyRead = &strict
	}
	t.dropMissing()
	t.hideSecrets()
	for _, e := range f.private {
		if !t.denied(e.text) {
			t.add(&fs.PrivateWrite, keyPrivateWrite, e.text, e)
		}
	}
	if slices.ContainsFunc(fs.AllowWrite, func(p string) bool { return t.absolute(p) == "/tmp" }) {
		t.stricter("/run is empty")
	} else {
		t.stricter("/tmp and /run are private")
	}
}

// showOwn shows the working directory and the home directory where they lie in a
// directory that the sandbox has its own of, and reading is open otherwise.
func (t *translator) showOwn() {
	for _, path := range []string{".", "~"} {
		for _, private := range []string{"/tmp", "/var/tmp", "/run"} {
			if dir := t.absolute(path); dir != private && within(private, dir) && !t.denied(path) {
				t.add(&t.Policy.Filesystem.AllowRead, keyAllowRead, t.rooted(path), entry{reason: "reading is open, and " + private + " is private"})
			}
		}
	}
}

// path writes a path of a file as a policy does.
func (t *translator) path(key string, e entry, braces bool) (string, bool) {
	text := e.text
	if text != "/" {
		text = strings.TrimRight(text, "/")
	}
	switch {
	case e.literal:
		text = escape(text, `*?[]{},\`)
	case !braces:
		text = escape(text, "{}")
	}
	if strings.HasPrefix(text, "!") {
		text = "./" + text
	}
	if err := policy.Valid("path", text); err != nil {
		t.fail(e.pos, "%s: %q: %v", key, e.text, err)
		return "", false
	}
	return t.rooted(text), true
}

// rooted writes a relative path from the root, unless the policy is kept: other
// tools mean the working directory where Bailey means the project. In a directory
// whose own name has wildcards it stays relative.
func (t *translator) rooted(path string) string {
	if t.Lasting || !isRelative(path) || pattern.Quote(t.Dir) != t.Dir {
		return path
	}
	if isPattern(path) {
		return strings.TrimSuffix(t.Dir, "/") + "/" + strings.TrimPrefix(path, "./")
	}
	return filepath.Join(t.Dir, path)
}

func isRelative(path string) bool {
	return !strings.HasPrefix(path, "/") && path != "~" && !strings.HasPrefix(path, "~/")
}

// escape puts a backslash before characters that would mean something.
func escape(s, special string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(special, s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// grant carries a path that may be read or written.
func (t *translator) grant(list *[]string, key string, e entry, braces bool) {
	path, ok := t.path(key, e, braces)
	if !ok {
		return
	}
	if here := t.absolute(path); !t.Lasting && isRelative(e.text) && t.isWide(here) {
		t.lose(e.pos, key+" "+e.text, here+" is not a project; cd into one, or name the directory in full")
		return
	}
	dir, name, wild := cutPattern(path)
	if !wild || !t.isWide(t.absolute(dir)) {
		t.add(list, key, path, e)
		return
	}
	// A pattern right in a directory such as the home directory would show
	// everything else in it by name; what it matches now is granted instead.
	for _, match := range t.matches(dir, name) {
		if e.reason == "" {
			e.reason = "one of " + e.text
		}
		t.add(list, key, match, e)
	}
}

// cutPattern cuts a pattern at the first name with a wildcard.
func cutPattern(path string) (dir, name string, wild bool) {
	if !isPattern(path) {
		return path, "", false
	}
	before := path[:strings.IndexAny(path, "*?[{")]
	i := strings.LastIndexByte(before, '/')
	if i < 0 {
		return ".", path, true
	}
	return path[:max(i, 1)], path[i+1:], true
}

// isPattern is true of what a policy takes for a pattern: a /** at the end is
// none.
func isPattern(path string) bool {
	return strings.ContainsAny(strings.TrimSuffix(path, "/**"), "*?[{")
}

// matches are the entries of a directory that a name with wildcards matches. It
// must begin with more than a dot: everything is not a name.
func (t *translator) matches(dir, name string) []string {
	name = strings.TrimSuffix(name, "/**")
	if strings.Contains(name, "/") || strings.IndexAny(strings.TrimPrefix(name, "."), "*?[{") <= 0 {
		return nil
	}
	found, err := os.ReadDir(t.absolute(dir))
	if err != nil {
		return nil
	}
	var out []string
	for _, f := range found {
		if ok, err := doublestar.Match(name, f.Name()); err == nil && ok {
			out = append(out, strings.TrimSuffix(dir, "/")+"/"+escape(f.Name(), `*?[]{},\`))
		}
	}
	return out
}

// absolute is where a path of the policy leads. A path and all below it are the
// same.
func (t *translator) absolute(path string) string {
	if path = strings.TrimSuffix(path, "/**"); path == "" {
		return "/"
	}
	switch {
	case path == "~" || strings.HasPrefix(path, "~/"):
		return filepath.Join(t.Home, path[1:])
	case filepath.IsAbs(path):
		return filepath.Clean(path)
	}
	return filepath.Join(t.Dir, path)
}

// isWide is true of directories that hold so much that no pattern is granted
// right in them.
func (t *translator) isWide(dir string) bool {
	if dir == "/" || t.Home != "" && within(dir, t.Home) || filepath.Dir(dir) == "/home" {
		return true
	}
	switch dir {
	case "/etc", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/usr", "/usr/local", "/var", "/var/lib", "/var/log", "/var/tmp":
		return true
	}
	return false
}

func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// deniesAround says whether something is granted inside of what is denied.
func (t *translator) deniesAround() bool {
	fs := &t.Policy.Filesystem
	grants := slices.Concat(fs.AllowRead, fs.AllowWrite)
	return slices.ContainsFunc(fs.DenyRead, func(deny string) bool {
		return slices.ContainsFunc(grants, func(grant string) bool { return t.covers(deny, t.absolute(grant)) })
	})
}

// covers says whether a path lies below an entry, or is one that a pattern names.
func (t *translator) covers(entry, path string) bool {
	if !isPattern(entry) {
		dir := t.absolute(entry)
		return dir != path && within(dir, path)
	}
	text := entry
	switch {
	case strings.HasPrefix(text, "~/"):
		text = pattern.Quote(t.Home) + text[1:]
	case !strings.HasPrefix(text, "/"):
		text = pattern.Quote(t.Dir) + "/" + strings.TrimPrefix(text, "./")
	}
	p, err := pattern.Compile(text)
	return err != nil || p.Match(path)
}

// denied says whether the file keeps a path from being read.
func (t *translator) denied(path string) bool {
	return slices.ContainsFunc(t.Policy.Filesystem.DenyRead, func(deny string) bool {
		return within(t.absolute(deny), t.absolute(path))
	})
}

// dropMissing takes out what cannot be granted because it does not exist, as the
// other tools do without a word. In a policy of one's own that is an error.
func (t *translator) dropMissing() {
	fs := &t.Policy.Filesystem
	exists := func(path string) bool {
		_, err := os.Stat(t.absolute(path))
		return isPattern(path) || err == nil
	}
	drop := func(path string) bool {
		inside := func(other string) bool {
			return other != path && exists(other) && within(t.absolute(other), t.absolute(path))
		}
		return !exists(path) && !slices.ContainsFunc(fs.AllowWrite, inside)
	}
	var ofTemplate []string
	file := ""
	for _, path := range slices.Clone(fs.AllowWrite) {
		if !drop(path) {
			continue
		}
		o := policy.Origin{Key: keyAllowWrite, Entry: path}
		if pos := t.Policy.Origins[o]; isTemplate(pos.File) {
			ofTemplate, file = append(ofTemplate, path), pos.File
		} else {
			t.lose(pos, path, "does not exist, so that writing to it cannot be granted")
		}
		delete(t.Policy.Origins, o)
		delete(t.Reasons, o)
	}
	if len(ofTemplate) > 0 {
		t.lose(policy.Pos{}, file, strings.Join(ofTemplate, ", ")+" do not exist, so that writing to them cannot be granted")
	}
	fs.AllowWrite = slices.DeleteFunc(fs.AllowWrite, drop)
}

// homeSecrets are credentials and private keys, where tools keep them.
func homeSecrets() []string {
	return []string{
		"~/.ssh", "~/.gnupg", "~/.password-store", "~/.local/share/keyrings", "~/.pki",
		"~/.aws", "~/.azure", "~/.config/gcloud", "~/.kube", "~/.oci", "~/.config/doctl", "~/.config/rclone",
		"~/.docker/config.json", "~/.config/containers/auth.json",
		"~/.netrc", "~/.npmrc", "~/.yarnrc.yml", "~/.pypirc", "~/.config/pip",
		"~/.config/gh/hosts.yml", "~/.config/glab-cli/config.yml", "~/.config/hub", "~/.terraform.d/credentials.tfrc.json",
		"~/.config/op", "~/.vault-token", "~/.pgpass", "~/.my.cnf",
		"~/.bash_history", "~/.zsh_history", "~/.python_history", "~/.psql_history",
		"~/.mozilla", "~/.config/google-chrome", "~/.config/chromium",
	}
}

// hideSecrets hides what the tool would leave open. Who names a secret in the
// file means it.
func (t *translator) hideSecrets() {
	fs := &t.Policy.Filesystem
	strict := fs.StrictDenyRead != nil && *fs.StrictDenyRead
	hidden := false
	for _, secret := range slices.Concat(policy.Default().Filesystem.DenyRead, homeSecrets()) {
		path := t.absolute(secret)
		meant := slices.ContainsFunc(slices.Concat(fs.AllowRead, fs.AllowWrite), func(grant string) bool {
			g := t.absolute(grant)
			return g == path || strict && within(path, g)
		})
		if meant || t.denied(secret) || *fs.DefaultDenyRead && !t.shown(path) {
			continue
		}
		if _, err := os.Lstat(path); err == nil || t.Lasting {
			t.add(&fs.DenyRead, keyDenyRead, secret, entry{reason: "a secret"})
			hidden = true
		}
	}
	if hidden {
		t.stricter("secrets are hidden")
	}
}

// shown says whether a grant shows a path.
func (t *translator) shown(path string) bool {
	fs := &t.Policy.Filesystem
	return slices.ContainsFunc(slices.Concat(fs.AllowRead, fs.AllowWrite), func(grant string) bool {
		return within(t.absolute(grant), path)
	})
}

// environment lets everything in that is no secret, which is what a tool means
// that says nothing about variables.
func (t *translator) environment() {
	t.add(&t.Policy.Env.Allow, "env.allow", "*", entry{reason: string(t.Tool) + " lets every variable in"})
	t.stricter("variables that look like secrets stay out")
}

// hosts is what a tool's settings say about the network.
type hosts struct {
	allowed, denied []entry
	// ports says that an entry may end in :PORT.
	ports bool
}

const (
	keyAllowed = "network.allowedDomains"
	keyDenied  = "network.deniedDomains"
	keyRules   = "network.rules"
	keyLocal   = "network.allowLocalOutbound"
	keyPorts   = "network.allowLocalOutboundPorts"
)

// hosts carries which hosts can be reached. Other tools grant every port of a
// host, which a policy says by a rule.
func (t *translator) hosts(h hosts) {
	n := &t.Policy.Network
	for _, e := range h.denied {
		host, port := t.host(keyDenied, e, h.ports)
		switch {
		case host == "":
		case port != "":
			t.rule(policy.NetworkRule{Host: host, Ports: []string{port}, Action: "deny"}, e)
		default:
			t.add(&n.DeniedDomains, keyDenied, host, e)
		}
	}
	for _, e := range h.allowed {
		if isTemplate(e.pos.File) && strings.HasPrefix(e.text, "@") {
			t.add(&n.AllowedDomains, keyAllowed, e.text, e)
			continue
		}
		host, port := t.host(keyAllowed, e, h.ports)
		switch {
		case host == "":
		case host == "*" && port == "":
			t.everyHost = true
			t.add(&n.AllowedDomains, keyAllowed, host, e)
		case isLoopback(host):
			t.local(port, e)
		case host == "localhost":
			t.lose(e.pos, keyAllowed+" "+e.text, "the sandbox has a loopback of its own; the host's is reached by allowLocalOutboundPorts")
		default:
			t.rule(policy.NetworkRule{Host: host, Ports: []string{orAll(port)}, Action: "allow"}, e)
		}
	}
	if len(n.Rules) > 0 || len(n.AllowedDomains) > 0 && !t.everyHost {
		t.stricter("names may not lead to private addresses")
	}
}

func orAll(port string) string {
	if port == "" {
		return "*"
	}
	return port
}

func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// host reads a host with or without a port; it is empty after a mistake.
func (t *translator) host(key string, e entry, ports bool) (host, port string) {
	host = strings.TrimSpace(e.text)
	if ports {
		host, port = cutPort(host)
	}
	err := policy.Valid("domain", host)
	if err == nil && port != "" {
		err = policy.Valid("port", port)
	}
	if err == nil && strings.HasPrefix(host, "@") {
		t.fail(e.pos, "%s: %q: %s has no groups; import the file, and name the group there", key, e.text, t.Tool)
		return "", ""
	}
	if err != nil {
		t.fail(e.pos, "%s: %q: %v", key, e.text, err)
		return "", ""
	}
	return host, port
}

// cutPort cuts host:port and [address]:port.
func cutPort(s string) (host, port string) {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		if host, port, ok := strings.Cut(rest, "]"); ok && (port == "" || strings.HasPrefix(port, ":")) {
			return host, strings.TrimPrefix(port, ":")
		}
		return s, ""
	}
	if host, port, ok := strings.Cut(s, ":"); ok && !strings.Contains(port, ":") {
		return host, port
	}
	return s, ""
}

// local grants a port of the host's loopback, or all.
func (t *translator) local(port string, e entry) {
	n := &t.Policy.Network
	set(t, &n.AllowLocalOutbound, keyLocal, true, e)
	t.add(&n.AllowLocalOutboundPorts, keyPorts, orAll(port), e)
}

func (t *translator) rule(r policy.NetworkRule, e entry) {
	n := &t.Policy.Network
	same := func(o policy.NetworkRule) bool {
		return o.Host == r.Host && o.Action == r.Action && slices.Equal(o.Ports, r.Ports)
	}
	if slices.ContainsFunc(n.Rules, same) {
		return
	}
	t.keep(policy.Origin{Key: keyRules, Entry: strconv.Itoa(len(n.Rules))}, e)
	n.Rules = append(n.Rules, r)
}
