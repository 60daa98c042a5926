package foreign

import (
	"embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// fenceFile is Fence's settings file. The tags are those of policy.Policy; merge
// says how a file adds to what it extends: or, for what is on if either says so.
type fenceFile struct {
	Schema          hujson.Value    `json:"$schema,omitempty"`
	Extends         string          `json:"extends,omitempty"`
	Network         fenceNetwork    `json:"network,omitempty"`
	Filesystem      fenceFilesystem `json:"filesystem,omitempty"`
	Devices         fenceDevices    `json:"devices,omitempty"`
	MacOS           fenceMacOS      `json:"macos,omitempty"`
	Command         fenceCommand    `json:"command,omitempty"`
	SSH             fenceSSH        `json:"ssh,omitempty"`
	AllowPty        *bool           `json:"allowPty,omitempty" merge:"or"`
	ForceNewSession *bool           `json:"forceNewSession,omitempty"`
}

type fenceNetwork struct {
	AllowedDomains          []string `json:"allowedDomains,omitempty"`
	DeniedDomains           []string `json:"deniedDomains,omitempty"`
	AllowUnixSockets        []string `json:"allowUnixSockets,omitempty"`
	AllowAllUnixSockets     *bool    `json:"allowAllUnixSockets,omitempty" merge:"or"`
	AllowLocalBinding       *bool    `json:"allowLocalBinding,omitempty" merge:"or"`
	AllowLocalOutbound      *bool    `json:"allowLocalOutbound,omitempty"`
	AllowLocalOutboundPorts []string `json:"allowLocalOutboundPorts,omitempty" check:"port"`
	HTTPProxyPort           *int     `json:"httpProxyPort,omitempty" max:"65535"`
	SOCKSProxyPort          *int     `json:"socksProxyPort,omitempty" max:"65535"`
	UpstreamProxy           *string  `json:"upstreamProxy,omitempty"`
	DefaultAction           *string  `json:"defaultAction,omitempty" enum:"deny,proxy"`
}

type fenceFilesystem struct {
	DefaultDenyRead *bool    `json:"defaultDenyRead,omitempty" merge:"or"`
	StrictDenyRead  *bool    `json:"strictDenyRead,omitempty" merge:"or"`
	WSLInterop      *bool    `json:"wslInterop,omitempty"`
	AllowRead       []string `json:"allowRead,omitempty"`
	AllowExecute    []string `json:"allowExecute,omitempty"`
	DenyRead        []string `json:"denyRead,omitempty"`
	AllowWrite      []string `json:"allowWrite,omitempty"`
	DenyWrite       []string `json:"denyWrite,omitempty"`
	AllowGitConfig  *bool    `json:"allowGitConfig,omitempty" merge:"or"`
}

type fenceDevices struct {
	Mode  *string  `json:"mode,omitempty" enum:"auto,minimal,host"`
	Allow []string `json:"allow,omitempty" check:"device"`
}

type fenceMacOS struct {
	Mach fenceMach `json:"mach,omitempty"`
	GPU  *bool     `json:"gpu,omitempty"`
}

type fenceMach struct {
	Lookup   []string `json:"lookup,omitempty"`
	Register []string `json:"register,omitempty"`
}

type fenceCommand struct {
	Deny                                []string `json:"deny,omitempty"`
	Allow                               []string `json:"allow,omitempty"`
	UseDefaults                         *bool    `json:"useDefaults,omitempty"`
	RuntimeExecPolicy                   *string  `json:"runtimeExecPolicy,omitempty" enum:"path,argv"`
	AcceptSharedBinaryCannotRuntimeDeny []string `json:"acceptSharedBinaryCannotRuntimeDeny,omitempty"`
}

type fenceSSH struct {
	AllowedHosts     []string `json:"allowedHosts,omitempty"`
	DeniedHosts      []string `json:"deniedHosts,omitempty"`
	AllowedCommands  []string `json:"allowedCommands,omitempty"`
	DeniedCommands   []string `json:"deniedCommands,omitempty"`
	AllowAllCommands *bool    `json:"allowAllCommands,omitempty" merge:"or"`
	InheritDeny      *bool    `json:"inheritDeny,omitempty" merge:"or"`
}

// fence translates Fence's settings.
func (t *translator) fence(doc *policy.Document) error {
	f, origins, err := t.fenceChain(doc, nil)
	if err != nil {
		return err
	}
	s := section{t, origins}
	t.environment()
	s.fenceFiles(&f.Filesystem)
	s.fenceNetwork(&f.Network)
	s.sockets(f.Network.AllowUnixSockets, f.Network.AllowAllUnixSockets)
	s.commands(&f.Command)
	s.ssh(&f.SSH)
	s.devices(&f.Devices)
	s.strings(&t.Policy.MacOS.Mach.Lookup, "macos.mach.lookup", f.MacOS.Mach.Lookup)
	s.strings(&t.Policy.MacOS.Mach.Register, "macos.mach.register", f.MacOS.Mach.Register)
	t.idleIf(origins, "macos.gpu", "only macOS has it")
	t.idleIf(origins, "filesystem.wslInterop", "Windows programs are not started from a sandbox")
	t.idleIf(origins, "forceNewSession", "every sandbox has terminals of its own")
	return nil
}

// section translates parts of a file whose places are known.
type section struct {
	*translator
	origins policy.Origins
}

func (s section) list(key string, list []string) []entry { return entries(s.origins, key, list) }

func (s section) at(key string) entry {
	return entry{pos: s.origins[policy.Origin{Key: key}]}
}

func (s section) strings(to *[]string, key string, from []string) {
	s.texts(to, key, "", s.list(key, from))
}

// denied carries commands that are refused. One that could never match is no policy's.
func (s section) denied(to *[]string, key string, from []string) {
	var kept []entry
	for _, e := range s.list(key, from) {
		if err := policy.CheckCommand(e.text); err != nil {
			s.loseRestriction(e.pos, key+" "+e.text, err.Error())
			continue
		}
		kept = append(kept, e)
	}
	s.texts(to, key, "command", kept)
}

func on(b *bool) bool { return b != nil && *b }

// fenceFiles: a denial to read holds whatever is allowed below it, and
// allowExecute grants, where a policy's own restricts.
func (s section) fenceFiles(f *fenceFilesystem) {
	closed := on(f.DefaultDenyRead) || on(f.StrictDenyRead)
	w := files{
		allowRead: s.list(keyAllowRead, f.AllowRead), denyRead: s.list(keyDenyRead, f.DenyRead),
		allowWrite: s.list(keyAllowWrite, f.AllowWrite), denyWrite: s.list(keyDenyWrite, f.DenyWrite),
		closed: &closed, denyWins: true, braces: true,
		private: because("Fence lets it be written", "~/.npm/_logs", "~/.fence/debug"),
	}
	for _, e := range s.list("filesystem.allowExecute", f.AllowExecute) {
		if info, err := os.Stat(s.absolute(e.text)); closed && (isPattern(e.text) || err == nil && info.IsDir()) {
			s.lose(e.pos, "filesystem.allowExecute "+e.text, "a directory whose files can be executed and not listed is not to be had here; name the programs")
			continue
		}
		w.allowRead = append(w.allowRead, e)
	}
	if closed && !on(f.StrictDenyRead) {
		w.allowRead = append(w.allowRead, because("readable under Fence's defaultDenyRead", fenceReadable()...)...)
	}
	s.files(w)
	if on(f.AllowGitConfig) {
		set(s.translator, &s.Policy.Filesystem.AllowGitConfig, "filesystem.allowGitConfig", true, s.at("filesystem.allowGitConfig"))
	}
}

// fenceReadable is what Fence leaves readable when reading is denied: the system
// and tool chains.
func fenceReadable() []string {
	return []string{
		"/bin", "/sbin", "/usr", "/lib", "/lib64", "/etc", "/sys", "/opt", "/var", "/nix", "/snap",
		"~/.nvm", "~/.fnm", "~/.volta", "~/.n", "~/.pyenv", "~/.local/pipx", "~/.rbenv", "~/.rvm", "~/.cargo/bin", "~/.rustup",
		"~/go/bin", "~/.go", "~/.local/bin", "~/bin", "~/.bun/bin", "~/.deno/bin",
	}
}

// fenceNetwork: on Linux, loopback is the host's only at ports that are listed.
func (s section) fenceNetwork(f *fenceNetwork) {
	s.hosts(hosts{allowed: s.list(keyAllowed, f.AllowedDomains), denied: s.list(keyDenied, f.DeniedDomains)})
	n := &s.Policy.Network
	local := on(f.AllowLocalBinding)
	if f.AllowLocalOutbound != nil {
		local = *f.AllowLocalOutbound
	}
	if local && len(f.AllowLocalOutboundPorts) > 0 {
		set(s.translator, &n.AllowLocalOutbound, keyLocal, true, s.at(keyLocal))
		s.texts(&n.AllowLocalOutboundPorts, keyPorts, "port", s.list(keyPorts, f.AllowLocalOutboundPorts))
	}
	s.localBinding(f.AllowLocalBinding)
	if f.DefaultAction != nil && *f.DefaultAction == "proxy" {
		if f.UpstreamProxy == nil {
			s.fail(s.at("network.defaultAction").pos, `network.defaultAction "proxy" needs network.upstreamProxy`)
			return
		}
		s.upstream("network.upstreamProxy", *f.UpstreamProxy)
		set(s.translator, &n.DefaultAction, "network.defaultAction", "proxy", s.at("network.defaultAction"))
		s.stricter("allowed hosts are reached through the upstream proxy too")
	} else {
		s.idleIf(s.origins, "network.upstreamProxy", `Fence uses it only with the defaultAction "proxy"`)
	}
	s.idleIf(s.origins, "network.httpProxyPort", "the gate has ports of its own")
	s.idleIf(s.origins, "network.socksProxyPort", "the gate has ports of its own")
}

// localBinding matters only where the sandbox has the host's network: in one of
// its own it may listen on every port, as in the other tools' on Linux.
func (s section) localBinding(allowed *bool) {
	if n := &s.Policy.Network; on(allowed) && s.everyHost && len(n.DeniedDomains)+len(n.Rules) == 0 {
		set(s.translator, &s.Policy.Network.AllowLocalBinding, "network.allowLocalBinding", true, s.at("network.allowLocalBinding"))
	}
}

// upstream names a proxy through which connections leave.
func (s section) upstream(key, proxy string) {
	e := s.at(key)
	address := strings.TrimSuffix(proxy, "/")
	address = strings.Replace(address, "socks5h://", "socks5://", 1)
	if err := policy.Valid("proxy", address); err != nil {
		s.fail(e.pos, "%s: %v", key, err) // without the text, in which there may be a password
		return
	}
	set(s.translator, &s.Policy.Network.UpstreamProxy, "network.upstreamProxy", address, e)
}

func (s section) sockets(allowed []string, all *bool) {
	const key = "network.allowUnixSockets"
	n := &s.Policy.Network
	for _, e := range s.list(key, allowed) {
		if path, ok := s.path(key, e, true); ok {
			s.add(&n.AllowUnixSockets, key, path, e)
		}
	}
	if on(all) {
		const key = "network.allowAllUnixSockets"
		set(s.translator, &n.AllowAllUnixSockets, key, true, s.at(key))
	}
}

// fenceDenied are commands of Fence's built-in list that Bailey's own denies
// only in part.
func fenceDenied() []string { return []string{"mkfs", "fdisk", "parted", "dd if="} }

func (s section) commands(f *fenceCommand) {
	c := &s.Policy.Command
	s.denied(&c.Deny, "command.deny", f.Deny)
	s.strings(&c.Allow, "command.allow", f.Allow)
	useDefaults := f.UseDefaults == nil || *f.UseDefaults
	c.UseDefaults = &useDefaults
	if f.UseDefaults != nil {
		s.keep(policy.Origin{Key: "command.useDefaults"}, s.at("command.useDefaults"))
	} else {
		s.keep(policy.Origin{Key: "command.useDefaults"}, entry{reason: "as in " + string(s.Tool)})
	}
	if useDefaults {
		s.texts(&c.Deny, "command.deny", "", because("in "+string(s.Tool)+"'s built-in list", fenceDenied()...))
	}
	s.strings(&c.AcceptSharedBinaryCannotRuntimeDeny, "command.acceptSharedBinaryCannotRuntimeDeny", f.AcceptSharedBinaryCannotRuntimeDeny)
	if f.RuntimeExecPolicy != nil {
		set(s.translator, &c.RuntimeExecPolicy, "command.runtimeExecPolicy", *f.RuntimeExecPolicy, s.at("command.runtimeExecPolicy"))
	} else if len(c.Deny) > 0 {
		s.stricter("denied commands are denied to child processes too")
	}
}

// ssh: Fence looks at ssh only if hosts are named, and then only at the words of
// the command: what can be reached is said under network. A policy's
// allowedHosts grant the network as well, which rules take back.
func (s section) ssh(f *fenceSSH) {
	if len(f.AllowedHosts)+len(f.DeniedHosts) == 0 {
		for _, key := range []string{"ssh.allowedCommands", "ssh.deniedCommands", "ssh.allowAllCommands", "ssh.inheritDeny"} {
			s.idleIf(s.origins, key, "without hosts there are no rules about ssh")
		}
		return
	}
	p := &s.Policy.SSH
	s.sshHosts(&p.DeniedHosts, "ssh.deniedHosts", f.DeniedHosts, s.loseRestriction)
	s.sshHosts(&p.AllowedHosts, "ssh.allowedHosts", f.AllowedHosts, s.lose)
	switch {
	case len(f.AllowedHosts) == 0:
		s.add(&p.AllowedHosts, "ssh.allowedHosts", "*", entry{reason: "every host that is not denied"})
	case len(p.AllowedHosts) == 0:
		s.add(&p.DeniedHosts, "ssh.deniedHosts", "*", entry{reason: "no host of the list could be carried"})
	}
	s.strings(&p.AllowedCommands, "ssh.allowedCommands", f.AllowedCommands)
	s.denied(&p.DeniedCommands, "ssh.deniedCommands", f.DeniedCommands)
	for _, b := range []struct {
		to   **bool
		key  string
		from *bool
	}{{&p.AllowAllCommands, "ssh.allowAllCommands", f.AllowAllCommands}, {&p.InheritDeny, "ssh.inheritDeny", f.InheritDeny}} {
		if on(b.from) {
			set(s.translator, b.to, b.key, true, s.at(b.key))
		}
	}
	if s.everyHost {
		return
	}
	for _, host := range p.AllowedHosts {
		s.rule(policy.NetworkRule{Host: host, Ports: []string{"22"}, Action: "deny"}, entry{reason: "ssh.allowedHosts grants no network in " + string(s.Tool)})
	}
}

func (s section) sshHosts(to *[]string, key string, from []string, lose func(policy.Pos, string, string)) {
	for _, e := range s.list(key, from) {
		err := policy.Valid("host", e.text)
		switch {
		case err == nil && !strings.HasPrefix(e.text, "!"):
			s.add(to, key, e.text, e)
		case strings.Contains(e.text, "*"):
			lose(e.pos, key+" "+e.text, `a host is named in full, or as "*.example.com"`)
		default:
			s.fail(e.pos, "%s: %q: %v", key, e.text, errors.Join(err))
		}
	}
}

func (s section) devices(f *fenceDevices) {
	d := &s.Policy.Devices
	if f.Mode != nil && *f.Mode == "host" {
		s.lose(s.at("devices.mode").pos, "devices.mode host", "the host's device nodes are not shown as a whole; name the ones needed in devices.allow")
	} else if f.Mode != nil {
		set(s.translator, &d.Mode, "devices.mode", *f.Mode, s.at("devices.mode"))
	}
	for _, e := range s.list("devices.allow", f.Allow) {
		if _, err := os.Lstat(e.text); err != nil {
			s.lose(e.pos, "devices.allow "+e.text, "does not exist")
			continue
		}
		s.add(&d.Allow, "devices.allow", e.text, e)
	}
}

// maxFenceChain is how deep Fence lets files extend one another.
const maxFenceChain = 10

// fenceChain reads a file and what it extends. Of an entry that several name,
// the first place counts.
func (t *translator) fenceChain(doc *policy.Document, stack []string) (fenceFile, policy.Origins, error) {
	dropNulls(doc.Root())
	var f fenceFile
	origins, err := doc.Decode(&f)
	if err != nil || f.Extends == "" {
		return f, origins, err
	}
	pos := origins[policy.Origin{Key: "extends"}]
	stack = append(stack, doc.Name())
	base, err := t.fenceBase(f.Extends, filepath.Dir(doc.Name()))
	switch {
	case err != nil:
		return f, nil, pos.Errorf("extends: %v", err)
	case base == nil:
		return f, origins, nil
	case slices.Contains(stack, base.Name()):
		return f, nil, pos.Errorf("extends itself, through %s", plain.Text(base.Name()))
	case len(stack) > maxFenceChain:
		return f, nil, pos.Errorf("extends more than %d deep", maxFenceChain)
	}
	below, places, err := t.fenceChain(base, stack)
	if err != nil {
		return f, nil, err
	}
	merge(reflect.ValueOf(&f).Elem(), reflect.ValueOf(below))
	for o, pos := range places {
		if _, said := origins[o]; !said || o.Entry != "" {
			origins[o] = pos
		}
	}
	return f, origins, nil
}

// fenceBase opens what a file extends: nil if that is nothing.
func (t *translator) fenceBase(name, dir string) (*policy.Document, error) {
	if name == "@base" {
		return t.fenceUser()
	}
	if !strings.ContainsAny(name, `/\`) && !strings.HasPrefix(name, ".") {
		return fenceTemplate(name)
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return t.openFile(path)
}

// fenceUser opens the user's own settings, if there are any.
func (t *translator) fenceUser() (*policy.Document, error) {
	for _, path := range fencePlaces(t.Options) {
		doc, err := t.openFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return doc, err
	}
	return nil, nil
}

// fencePlaces are where a user's own settings are.
func fencePlaces(o Options) []string {
	return []string{
		filepath.Join(o.ConfigHome, "fence", "fence.jsonc"), filepath.Join(o.ConfigHome, "fence", "fence.json"),
		filepath.Join(o.Home, ".fence.jsonc"), filepath.Join(o.Home, ".fence.json"),
	}
}

func (t *translator) openFile(path string) (*policy.Document, error) {
	doc, err := policy.OpenDocument(path)
	if err == nil {
		t.Files = append(t.Files, doc.Name())
	}
	return doc, err
}

// Fence's templates, with groups in the place of package registries: Bailey
// reads those from the tools' own configuration.
//
//go:embed templates/*.json
var templates embed.FS

const templatePrefix = "Fence's template "

func isTemplate(file string) bool { return strings.HasPrefix(file, templatePrefix) }

func fenceTemplate(name string) (*policy.Document, error) {
	name = strings.TrimSuffix(name, ".json")
	data, err := templates.ReadFile("templates/" + name + ".json")
	if err != nil {
		return nil, errors.New("there is no template " + plain.Text(name))
	}
	return policy.ReadDocument(templatePrefix+name, data)
}

// dropNulls takes out what is null, which Fence takes for not said.
func dropNulls(v *hujson.Value) {
	switch tree := v.Value.(type) {
	case *hujson.Object:
		tree.Members = slices.DeleteFunc(tree.Members, func(m hujson.ObjectMember) bool { return m.Value.Value.Kind() == 'n' })
		for i := range tree.Members {
			dropNulls(&tree.Members[i].Value)
		}
	case *hujson.Array:
		for i := range tree.Elements {
			dropNulls(&tree.Elements[i])
		}
	}
}

// merge puts a file on top of what it extends.
func merge(file, base reflect.Value) {
	for i := range file.NumField() {
		to, from := file.Field(i), base.Field(i)
		switch to.Kind() {
		case reflect.Struct:
			if to.Type() != reflect.TypeFor[hujson.Value]() {
				merge(to, from)
			}
		case reflect.Slice:
			both := slices.Clone(from.Interface().([]string))
			for _, text := range to.Interface().([]string) {
				if !slices.Contains(both, text) {
					both = append(both, text)
				}
			}
			to.Set(reflect.ValueOf(both))
		default:
			or := file.Type().Field(i).Tag.Get("merge") == "or"
			if to.IsZero() || or && !from.IsZero() && on(from.Interface().(*bool)) {
				to.Set(from)
			}
		}
	}
}
