package foreign

import (
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// claudeFile is what Claude Code's settings say about permissions, its sandbox
// and variables. The other keys are about the agent itself.
type claudeFile struct {
	Permissions claudePermissions `json:"permissions,omitempty"`
	Sandbox     claudeSandbox     `json:"sandbox,omitempty"`
	Env         map[string]string `json:"env,omitempty" check:"name"`
}

type claudePermissions struct {
	Allow                 []string     `json:"allow,omitempty"`
	Deny                  []string     `json:"deny,omitempty"`
	Ask                   []string     `json:"ask,omitempty"`
	AdditionalDirectories []string     `json:"additionalDirectories,omitempty"`
	DefaultMode           hujson.Value `json:"defaultMode,omitempty"`
	DisableBypass         hujson.Value `json:"disableBypassPermissionsMode,omitempty"`
	DisableAuto           hujson.Value `json:"disableAutoMode,omitempty"`
}

type claudeSandbox struct {
	Enabled                      *bool          `json:"enabled,omitempty"`
	FailIfUnavailable            *bool          `json:"failIfUnavailable,omitempty"`
	AutoAllowBashIfSandboxed     *bool          `json:"autoAllowBashIfSandboxed,omitempty"`
	AllowUnsandboxedCommands     *bool          `json:"allowUnsandboxedCommands,omitempty"`
	ExcludedCommands             []string       `json:"excludedCommands,omitempty"`
	Network                      srtNetwork     `json:"network,omitempty"`
	Filesystem                   srtFilesystem  `json:"filesystem,omitempty"`
	Credentials                  srtCredentials `json:"credentials,omitempty"`
	IgnoreViolations             hujson.Value   `json:"ignoreViolations,omitempty"`
	EnableWeakerNestedSandbox    *bool          `json:"enableWeakerNestedSandbox,omitempty"`
	EnableWeakerNetworkIsolation *bool          `json:"enableWeakerNetworkIsolation,omitempty"`
	AllowAppleEvents             *bool          `json:"allowAppleEvents,omitempty"`
	Ripgrep                      hujson.Value   `json:"ripgrep,omitempty"`
	BwrapPath                    hujson.Value   `json:"bwrapPath,omitempty"`
	SocatPath                    hujson.Value   `json:"socatPath,omitempty"`
	EnabledPlatforms             hujson.Value   `json:"enabledPlatforms,omitempty"`
}

// claudeRules are what permission rules come to: files and hosts, beside those of
// the sandbox section.
type claudeRules struct {
	srt
	files files
	hosts hosts
}

// claude translates Claude Code's settings: what its sandbox lets a command do
// by itself, and the permission rules that are about commands, files and hosts.
func (t *translator) claude(doc *policy.Document) error {
	dropNulls(doc.Root())
	keepMembers(doc.Root(), "permissions", "sandbox", "env")
	t.loseUnknown(doc, doc.Root(), reflect.TypeFor[claudeFile](), "")
	var f claudeFile
	origins, err := doc.Decode(&f)
	if err != nil {
		return err
	}
	s := srt{section: section{t, origins}, doc: doc, prefix: "sandbox."}
	t.environment()
	r := claudeRules{srt: s, files: s.claudePaths(&f.Sandbox.Filesystem)}
	n := &f.Sandbox.Network
	r.hosts = hosts{
		allowed: s.allowedHosts(n), denied: s.list("sandbox."+keyDenied, n.DeniedDomains), ports: true,
	}
	r.permissions(&f.Permissions)
	s.filesystem(&f.Sandbox.Filesystem, r.files, s.credentials(&f.Sandbox.Credentials))
	s.network(n)
	t.hosts(r.hosts)
	s.localBinding(n.AllowLocalBinding)
	s.claudeSockets(n)
	s.claudeKeys(&f.Sandbox)
	s.variables(f.Env)
	if len(t.Policy.Command.Deny) > 0 {
		t.stricter("Bailey's built-in list of commands is denied too")
	}
	return nil
}

// keepMembers leaves of an object only the keys that are read.
func keepMembers(v *hujson.Value, keys ...string) {
	if object, ok := v.Value.(*hujson.Object); ok {
		object.Members = slices.DeleteFunc(object.Members, func(m hujson.ObjectMember) bool {
			return !slices.Contains(keys, strings.Trim(string(literal(&m.Name)), `"`))
		})
	}
}

// loseUnknown takes out keys that nothing is known of. They may be new, and are
// no mistake of whoever imports the file.
func (t *translator) loseUnknown(doc *policy.Document, v *hujson.Value, schema reflect.Type, at string) {
	object, ok := v.Value.(*hujson.Object)
	if !ok || schema.Kind() != reflect.Struct || schema == reflect.TypeFor[hujson.Value]() {
		return
	}
	object.Members = slices.DeleteFunc(object.Members, func(m hujson.ObjectMember) bool {
		name, _ := doc.Text(m.Name)
		field, known := fieldOf(schema, name)
		if !known {
			t.loseRestriction(doc.Pos(m.Name), at+name, "is a key that is not known")
			return true
		}
		t.loseUnknown(doc, &m.Value, field, at+name+".")
		return false
	})
}

// claudePaths reads the section's lists, in which the working directory can be
// written without being named.
func (s srt) claudePaths(f *srtFilesystem) files {
	w := s.paths(f)
	w.allowWrite = append(because("the working directory", "."), w.allowWrite...)
	for _, list := range [][]entry{w.allowRead, w.denyRead, w.allowWrite, w.denyWrite} {
		for i := range list {
			if rest, ok := strings.CutPrefix(list[i].text, "//"); ok {
				list[i].text = "/" + rest
			}
		}
	}
	return w
}

func (s srt) claudeSockets(n *srtNetwork) {
	const key = "network.allowUnixSockets"
	for _, e := range s.list("sandbox."+key, n.AllowUnixSockets) {
		if path, ok := s.path(key, e, false); ok {
			s.add(&s.Policy.Network.AllowUnixSockets, key, path, e)
		}
	}
	if on(n.AllowAllUnixSockets) {
		set(s.translator, &s.Policy.Network.AllowAllUnixSockets, "network.allowAllUnixSockets", true, s.at("network.allowAllUnixSockets"))
	}
}

func (s srt) claudeKeys(f *claudeSandbox) {
	s.macos(&srtFile{
		Network: f.Network, EnableWeakerNestedSandbox: f.EnableWeakerNestedSandbox,
		EnableWeakerNetworkIsolation: f.EnableWeakerNetworkIsolation, AllowAppleEvents: f.AllowAppleEvents,
	})
	for _, e := range s.list("sandbox.excludedCommands", f.ExcludedCommands) {
		s.lose(e.pos, "sandbox.excludedCommands "+e.text, "no command runs outside of the sandbox")
	}
	s.idleKeys()
	for _, key := range []string{"enabled", "failIfUnavailable", "autoAllowBashIfSandboxed", "allowUnsandboxedCommands", "enabledPlatforms"} {
		s.idleIf(key, "whoever runs bailey has decided that")
	}
	for _, key := range []string{"network.allowManagedDomainsOnly", "filesystem.allowManagedReadPathsOnly"} {
		s.idleIf(key, "there is one file")
	}
}

// variables carries what the agent sets for its commands, but no secret: a
// policy is a file.
func (s srt) variables(env map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		e := entry{pos: s.origins[policy.Origin{Key: "env", Entry: name}]}
		if looksSecret(name) || spec.SecretShape(env[name]) != "" {
			s.lose(e.pos, "env."+name, "looks like a secret, and is not copied; let it in with env.allow, or add it to requests with network.inject")
			continue
		}
		if s.Policy.Env.Set == nil {
			s.Policy.Env.Set = map[string]string{}
		}
		s.Policy.Env.Set[name] = env[name]
		s.keep(policy.Origin{Key: "env.set", Entry: name}, e)
	}
}

func looksSecret(name string) bool {
	upper := strings.ToUpper(name)
	return slices.ContainsFunc([]string{"TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL", "AUTH", "HEADERS"}, func(word string) bool {
		return strings.Contains(upper, word)
	})
}

// permissions reads the rules, in the order in which Claude Code does: a denial
// wins over a question, which wins over an allowance.
func (r *claudeRules) permissions(p *claudePermissions) {
	for _, e := range r.list("permissions.deny", p.Deny) {
		r.deny(e, "")
	}
	for _, e := range r.list("permissions.ask", p.Ask) {
		r.deny(e, "asks there")
	}
	for _, e := range r.list("permissions.allow", p.Allow) {
		r.allow(e)
	}
	r.files.allowWrite = append(r.files.allowWrite, r.list("permissions.additionalDirectories", p.AdditionalDirectories)...)
	for _, key := range []string{"permissions.defaultMode", "permissions.disableBypassPermissionsMode", "permissions.disableAutoMode"} {
		r.translator.idleIf(r.origins, key, "it is about the agent's questions")
	}
}

// cutRule cuts Tool(argument).
func cutRule(rule string) (tool, argument string) {
	rule = strings.TrimSpace(rule)
	if tool, rest, ok := strings.Cut(rule, "("); ok && strings.HasSuffix(rest, ")") {
		return tool, strings.TrimSpace(strings.TrimSuffix(rest, ")"))
	}
	return rule, ""
}

const wholeTool = "is about a whole tool of the agent, which Bailey does not see"

// deny carries a rule that forbids. What asks there is forbidden here, where
// nobody is asked.
func (r *claudeRules) deny(e entry, reason string) {
	tool, argument := cutRule(e.text)
	rule := e
	rule.text, rule.reason = argument, reason
	lost := len(r.Lost)
	switch {
	case argument == "" || argument == "*":
		r.loseRestriction(e.pos, e.text, wholeTool)
	case tool == "Bash":
		r.denyCommand(e, rule)
	case tool == "Read" || tool == "Grep" || tool == "Glob" || tool == "LS":
		rule.text = r.rulePath(argument, true)
		r.files.denyRead = append(r.files.denyRead, rule)
	case isEdit(tool):
		rule.text = r.rulePath(argument, true)
		r.files.denyWrite = append(r.files.denyWrite, rule)
	case tool == "WebFetch" && strings.HasPrefix(argument, "domain:"):
		rule.text = strings.TrimPrefix(argument, "domain:")
		r.hosts.denied = append(r.hosts.denied, rule)
	default:
		r.loseRestriction(e.pos, e.text, "is about a tool of the agent, which Bailey does not see")
	}
	if reason != "" && len(r.Lost) == lost {
		r.lose(e.pos, e.text, "asks there, and is refused here")
	}
}

func isEdit(tool string) bool {
	return tool == "Edit" || tool == "Write" || tool == "MultiEdit" || tool == "NotebookEdit"
}

// denyCommand carries Bash(words), Bash(words:*) and Bash(words *).
func (r *claudeRules) denyCommand(e, rule entry) {
	words := strings.Fields(commandWords(rule.text))
	c := &r.Policy.Command
	switch {
	case len(words) == 0:
		r.loseRestriction(e.pos, e.text, wholeTool)
	case strings.Contains(words[0], "*"):
		r.loseRestriction(e.pos, e.text, "a program is named in full")
	case strings.ContainsAny(rule.text, "\"'`\\|;&<>$"):
		r.loseRestriction(e.pos, e.text, "is text for a shell, and a rule here is plain words")
	default:
		if slices.Contains(words, "*") {
			r.lose(e.pos, e.text, "is narrower here: * stands for one word")
		}
		r.add(&c.Deny, "command.deny", strings.Join(words, " "), rule)
	}
}

// commandWords is a command without what stands for everything after it.
func commandWords(argument string) string {
	argument = strings.TrimSuffix(argument, ":*")
	return strings.TrimSuffix(argument, " *")
}

// allow carries a rule that spares a question and that grants something here.
func (r *claudeRules) allow(e entry) {
	tool, argument := cutRule(e.text)
	rule := e
	rule.text = argument
	switch {
	case tool == "Bash":
		r.lose(e.pos, e.text, "is not needed: what nothing denies may run")
	case tool == "Read" || tool == "Grep" || tool == "Glob" || tool == "LS":
		if argument == "" || argument == "*" || argument == "**" {
			r.lose(e.pos, e.text, "is not needed: what nothing denies can be read")
			return
		}
		rule.text = r.rulePath(argument, false)
		r.files.allowRead = append(r.files.allowRead, rule)
	case isEdit(tool) && argument != "" && argument != "*" && argument != "**":
		rule.text = r.rulePath(argument, false)
		r.files.allowWrite = append(r.files.allowWrite, rule)
	case tool == "WebFetch" && strings.HasPrefix(argument, "domain:"):
		rule.text = strings.TrimPrefix(argument, "domain:")
		r.hosts.allowed = append(r.hosts.allowed, rule)
	default:
		r.lose(e.pos, e.text, wholeTool)
	}
}

// rulePath writes a path of a rule as a policy does. It is relative to the
// working directory; with one slash in front, to the project that the settings
// belong to; with two, it is absolute. As in a .gitignore, what is denied by a
// name alone is denied at every depth.
func (r *claudeRules) rulePath(path string, anywhere bool) string {
	switch {
	case strings.HasPrefix(path, "//"):
		return path[1:]
	case strings.HasPrefix(path, "/"):
		if r.settingsRoot() == r.Dir {
			return "." + path
		}
		return filepath.Join(r.settingsRoot(), path)
	case strings.HasPrefix(path, "~"), strings.HasPrefix(path, "./"):
		return path
	}
	if anywhere && !strings.Contains(strings.TrimRight(path, "/"), "/") {
		return "**/" + path
	}
	return path
}

// settingsRoot is what the settings belong to: for P/.claude/settings.json, P.
func (r *claudeRules) settingsRoot() string {
	dir := filepath.Dir(r.doc.Name())
	if filepath.Base(dir) == ".claude" {
		return filepath.Dir(dir)
	}
	return dir
}
