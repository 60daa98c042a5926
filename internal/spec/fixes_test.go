package spec

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// trial is what a Spec is compiled from.
type trial struct {
	policy  policy.Policy
	facts   *fakeFacts
	command Command
}

func newTrial() *trial {
	lines := append(repository("/home/u/p/.git"), "/home/u/p/link -> /srv/data", "/srv/data/x", "/run/daemon.sock", "/opt/loop -> loop", "/usr/bin/pass")
	t := &trial{basicPolicy(), newSystem(lines...), Command{Argv: []string{"true"}}}
	t.facts.files["/run/daemon.sock"].Type = TypeSocket
	t.facts.host.Authority = &Authority{Dir: "/home/u/ca", Bundle: "/home/u/ca/bundle"}
	t.facts.host.Environ = append(t.facts.host.Environ, "PATH=/usr/bin:/bin")
	return t
}

func (t *trial) fs() *policy.Filesystem { return &t.policy.Filesystem }
func (t *trial) net() *policy.Network   { return &t.policy.Network }

// inject has the gate add a credential.
func (t *trial) inject(from policy.Injection) {
	from.Hosts, from.Bearer = []string{"a.example"}, new(true)
	t.net().AllowedDomains, t.net().Inject = []string{"a.example"}, []policy.Injection{from}
}

// fixes are what is refused, the message, and that what the message says helps.
var fixes = []struct {
	want string
	edit func(*trial)
	mend func(*trial)
}{
	// The command.
	{
		"command: there is no program to run; name one after --",
		func(t *trial) { t.command.Argv = nil },
		func(t *trial) { t.command.Argv = []string{"true"} },
	},
	{
		"an argument holds a NUL byte",
		func(t *trial) { t.command.Argv = []string{"echo", "a\x00b"} },
		func(t *trial) { t.command.Argv = []string{"echo", "ab"} },
	},
	{
		"the working directory p: is not an absolute path",
		func(t *trial) { t.facts.host.Dir = "p" },
		func(t *trial) { t.facts.host.Dir = "/home/u/p" },
	},
	{
		"the home directory ~: is not an absolute path",
		func(t *trial) { t.facts.host.Home = "~" },
		func(t *trial) { t.facts.host.Home = "/home/u" },
	},
	{
		"the working directory /opt/loop: ",
		func(t *trial) { t.facts.host.Dir = "/opt/loop" },
		func(t *trial) { t.facts.host.Dir = "/opt" },
	},
	{
		"--workdir /nowhere: is no directory that the command can see; name one of the image or of the project, with its whole path",
		func(t *trial) { t.command.Image = &Image{Dir: "/opt", WorkingDir: "/nowhere", WorkingDirAsked: true} },
		func(t *trial) { t.command.Image.WorkingDir = "/home/u/p" },
	},
	{
		"image debian:12: only commands that bailey itself runs can have one by their policy, and only on Linux; use a policy without it",
		func(t *trial) { t.policy.Image = new("debian:12") },
		func(t *trial) { t.policy.Image = nil },
	},
	{
		"--user 7:7: with crun an ordinary user is root inside, without its rights; leave it out, or use --runtime native",
		func(t *trial) {
			t.policy.Runtime = new("crun")
			t.command.Image = &Image{Dir: "/opt", User: Shown{Set: true, UID: 7, GID: 7}, UserAsked: true}
		},
		func(t *trial) { t.policy.Runtime = new("native") },
	},
	// Files.
	{
		"filesystem.allowRead /run/daemon.sock: is a socket; name it in network.allowUnixSockets",
		func(t *trial) { t.fs().AllowRead = append(t.fs().AllowRead, "/run/daemon.sock") },
		func(t *trial) {
			t.fs().AllowRead = basicPolicy().Filesystem.AllowRead
			t.net().AllowUnixSockets = []string{"/run/daemon.sock"}
		},
	},
	{
		"filesystem.privateWrite /etc/passwd: is not a directory, and only those can have private writes; name the directory it is in",
		func(t *trial) { t.fs().PrivateWrite = []string{"/etc/passwd"} },
		func(t *trial) { t.fs().PrivateWrite = []string{"/etc"} },
	},
	{
		"filesystem.denyWrite /dev/null: the sandbox's own device nodes can be written; remove it",
		func(t *trial) { t.fs().DenyWrite = []string{"/dev/null"} },
		func(t *trial) { t.fs().DenyWrite = nil },
	},
	{
		"filesystem.allowWrite /proc/sys: /proc is read-only in a sandbox; remove it",
		func(t *trial) { t.fs().AllowWrite = []string{".", "/proc/sys"} },
		func(t *trial) { t.fs().AllowWrite = []string{"."} },
	},
	{
		"filesystem.allowWrite /dev/kvm: the sandbox has a /dev of its own; name the node in devices.allow",
		func(t *trial) { t.fs().AllowWrite = []string{".", "/dev/kvm"} },
		func(t *trial) { t.fs().AllowWrite, t.policy.Devices.Allow = []string{"."}, []string{"/dev/kvm"} },
	},
	{
		"filesystem.allowRead /opt/loop: too many levels of symbolic links; name the file or directory itself",
		func(t *trial) { t.fs().AllowRead = []string{"/opt/loop"} },
		func(t *trial) { t.fs().AllowRead = []string{"/opt"} },
	},
	{
		"filesystem.allowRead: is not a path; remove it",
		func(t *trial) { t.fs().AllowRead = []string{""} },
		func(t *trial) { t.fs().AllowRead = nil },
	},
	{
		"filesystem.denyRead *\\x00: is not a path; remove it",
		func(t *trial) { t.fs().DenyRead = []string{"*\x00"} },
		func(t *trial) { t.fs().DenyRead = nil },
	},
	{
		"filesystem.allowExecute bin/*: patterns are not possible here; name the file or directory",
		func(t *trial) { t.fs().AllowExecute = []string{"bin/*"} },
		func(t *trial) { t.fs().AllowExecute = []string{"bin"} },
	},
	{
		"filesystem.allowRead ~/x: there is no home directory; set HOME, or name the path from /",
		func(t *trial) {
			t.fs().AllowRead, t.fs().PrivateWrite, t.facts.host.Home = []string{"~/x"}, nil, ""
			t.fs().DenyRead = nil
		},
		func(t *trial) { t.facts.host.Home = "/home/u" },
	},
	{
		"filesystem.denyRead ~/*.pem: there is no home directory; set HOME, or name the path from /",
		func(t *trial) { *t.fs(), t.facts.host.Home = policy.Filesystem{DenyRead: []string{"~/*.pem"}}, "" },
		func(t *trial) { t.fs().DenyRead = []string{"/home/u/*.pem"} },
	},
	{
		"filesystem.allowRead ~root/x: only ~/ stands for a home directory; name the path from /",
		func(t *trial) { t.fs().AllowRead = []string{"~root/x"} },
		func(t *trial) { t.fs().AllowRead = []string{"/root/x"} },
	},
	{
		"filesystem.allowRead link/x: goes through the link /home/u/p/link, which the sandbox can replace; name its target /srv/data/x",
		func(t *trial) { t.fs().AllowRead = []string{"link/x"} },
		func(t *trial) { t.fs().AllowRead = []string{"/srv/data/x"} },
	},
	{
		"filesystem.allowWrite /srv/missing: does not exist; mkdir -p /srv/missing",
		func(t *trial) { t.fs().AllowWrite = []string{".", "/srv/missing"} },
		func(t *trial) { t.facts.add("/srv/missing/") },
	},
	{
		"filesystem.privateWrite **/cache: only whole directories can have private writes; name the directory",
		func(t *trial) { t.fs().PrivateWrite = []string{"**/cache"} },
		func(t *trial) { t.fs().PrivateWrite = []string{"cache"} },
	},
	{
		"filesystem.denyRead /proc/*/maps: patterns are for files of the host; name the file",
		func(t *trial) { t.fs().DenyRead = []string{"/proc/*/maps"} },
		func(t *trial) { t.fs().DenyRead = []string{"/proc/keys"} },
	},
	{
		"filesystem.allowRead ~/**/*.go: would show everything in /home/u by name; name a directory below it in front of the pattern",
		func(t *trial) { t.fs().AllowRead = []string{"~/**/*.go"} },
		func(t *trial) { t.fs().AllowRead = []string{"~/src/**/*.go"} },
	},
	{
		"; see docs/policy.md on patterns",
		func(t *trial) { t.fs().DenyRead = []string{"a/**b/" + strings.Repeat("{a,b}", 40)} },
		func(t *trial) { t.fs().DenyRead = []string{"a/**/b"} },
	},
	{
		"filesystem.denyRead /opt/loop/*.pem: too many levels of symbolic links; name the directory itself",
		func(t *trial) { t.fs().DenyRead = []string{"/opt/loop/*.pem"} },
		func(t *trial) { t.fs().DenyRead = []string{"/opt/*.pem"} },
	},
	// What is protected.
	{
		"protected path /home/u/p/.git/config: has another hard link, through which the sandbox may reach it (.git/config); " +
			"give it a copy of its own: cp -p /home/u/p/.git/config /home/u/p/.git/config.new && mv /home/u/p/.git/config.new /home/u/p/.git/config",
		func(t *trial) { t.facts.files["/home/u/p/.git/config"].Nlink = 2 },
		func(t *trial) { t.facts.files["/home/u/p/.git/config"].Nlink = 1 },
	},
	{
		"protected path: protected directories hold too many files to check all of them for hard links; make them smaller",
		func(t *trial) {
			for i := range maxLinkChecks + 1 {
				t.facts.add("/home/u/p/.git/hooks/" + strconv.Itoa(i))
			}
		},
		func(t *trial) {
			for i := range maxLinkChecks + 1 {
				delete(t.facts.files, "/home/u/p/.git/hooks/"+strconv.Itoa(i))
			}
		},
	},
	{
		"protected path /home/u/p/secret: cannot be looked into, so what it holds cannot be checked for hard links; chmod u+rx /home/u/p/secret",
		func(t *trial) {
			t.facts.add("/home/u/p/secret/key")
			t.facts.unreadable["/home/u/p/secret"] = true
			t.fs().DenyRead = append(t.fs().DenyRead, "secret")
		},
		func(t *trial) { t.facts.unreadable["/home/u/p/secret"] = false },
	},
	{
		"protected path /home/u/p/secret: is also visible as /srv/again/secret, where the sandbox has more access; unmount that, or deny it too",
		func(t *trial) {
			t.facts.add("/home/u/p/secret/")
			t.facts.add("/srv/again/secret/")
			t.facts.mounts = append(t.facts.mounts, MountPoint{"8:1", "/home/u/p", "/srv/again", "ext4"})
			t.fs().AllowRead, t.fs().DenyRead = append(t.fs().AllowRead, "/srv/again"), append(t.fs().DenyRead, "secret")
		},
		func(t *trial) { t.fs().DenyRead = append(t.fs().DenyRead, "/srv/again/secret") },
	},
	{
		"protected path /home/u/p/.git/hooks/x: is a link to /home/u/p/new, which does not exist and which the sandbox could create; create that, or remove the link",
		func(t *trial) { t.facts.add("/home/u/p/.git/hooks/x -> ../../new") },
		func(t *trial) { t.facts.add("/home/u/p/new") },
	},
	{
		"protected path /home/u/p/.git/hooks/x: too many levels of symbolic links; remove it",
		func(t *trial) { t.facts.add("/home/u/p/.git/hooks/x -> x") },
		func(t *trial) { delete(t.facts.files, "/home/u/p/.git/hooks/x") },
	},
	{
		"cannot be looked at, so nothing in it could be protected; chmod u+rwx /home/u/p/.git",
		func(t *trial) { t.facts.closed = "/home/u/p/.git/" },
		func(t *trial) { t.facts.closed = "" },
	},
	{
		"filesystem.allowWrite .git/hooks: is always protected (.git/hooks); remove it",
		func(t *trial) { t.fs().AllowWrite = []string{".", ".git/hooks"} },
		func(t *trial) { t.fs().AllowWrite = []string{"."} },
	},
	{
		"bailey's directory state: is not an absolute path",
		func(t *trial) { t.facts.host.OwnDirs = []string{"state"} },
		func(t *trial) { t.facts.host.OwnDirs = []string{"/home/u/.state"} },
	},
	{
		"bailey's directory /home/u/p/state: does not exist and the sandbox could create it; mkdir -p /home/u/p/state",
		func(t *trial) { t.facts.host.OwnDirs = []string{"/home/u/p/state"} },
		func(t *trial) { t.facts.add("/home/u/p/state/") },
	},
	{
		"bailey's directory /srv/data: is reached through the link /home/u/p/link, which the sandbox can replace; put what it names in its place",
		func(t *trial) { t.facts.host.OwnDirs = []string{"/home/u/p/link"} },
		func(t *trial) { delete(t.facts.files, "/home/u/p/link"); t.facts.add("/home/u/p/link/") },
	},
	// Credentials.
	{
		"network.inject[0].fromFile /home/u/p/token: does not exist and the sandbox could create it",
		func(t *trial) { t.inject(policy.Injection{FromFile: "token"}) },
		func(t *trial) { t.inject(policy.Injection{FromFile: "~/.token"}) },
	},
	{
		"network.inject[0].fromFile /home/u/p/token: can be read in the sandbox, which is to have the credential not even then; put it elsewhere, or add it to filesystem.denyRead",
		func(t *trial) { t.facts.add("/home/u/p/token"); t.inject(policy.Injection{FromFile: "token"}) },
		func(t *trial) { t.fs().DenyRead = append(t.fs().DenyRead, "token") },
	},
	{
		"network.inject[0].fromFile /home/u/p/link/y: is reached through the link /home/u/p/link, which the sandbox can replace; put what it names in its place",
		func(t *trial) { t.inject(policy.Injection{FromFile: "link/y"}) },
		func(t *trial) { t.inject(policy.Injection{FromFile: "/srv/data/y"}) },
	},
	{
		"network.inject[0].fromCommand ./get: is not an absolute path",
		func(t *trial) { t.inject(policy.Injection{FromCommand: []string{"./get"}}) },
		func(t *trial) { t.inject(policy.Injection{FromCommand: []string{"/usr/bin/pass"}}) },
	},
	// The environment.
	{
		"env.allow LD_PRELOAD: makes programs load or run something as they start, and never enters; if that is meant, give it a value in env.set",
		func(t *trial) { t.policy.Env.Allow = []string{"LD_PRELOAD"} },
		func(t *trial) { t.policy.Env.Allow, t.policy.Env.Set = nil, map[string]string{"LD_PRELOAD": "/x.so"} },
	},
	{
		"env.set A=B: is not a variable's name",
		func(t *trial) { t.policy.Env.Set = map[string]string{"A=B": "x"} },
		func(t *trial) { t.policy.Env.Set = map[string]string{"A": "B=x"} },
	},
	{
		"env.set A: the value holds a NUL byte",
		func(t *trial) { t.policy.Env.Set = map[string]string{"A": "\x00"} },
		func(t *trial) { t.policy.Env.Set = map[string]string{"A": ""} },
	},
	// Devices.
	{
		"devices.allow /etc/passwd: is not in /dev; remove it",
		func(t *trial) { t.policy.Devices.Allow = []string{"/etc/passwd"} },
		func(t *trial) { t.policy.Devices.Allow = nil },
	},
	{
		"devices.allow /dev/nothing: does not exist; remove it",
		func(t *trial) { t.policy.Devices.Allow = []string{"/dev/nothing"} },
		func(t *trial) { t.policy.Devices.Allow = nil },
	},
	{
		"devices.mode host: the host's device nodes are not shown as a whole; name the ones needed in devices.allow",
		func(t *trial) { t.policy.Devices.Mode = new("host") },
		func(t *trial) { t.policy.Devices.Mode, t.policy.Devices.Allow = nil, []string{"/dev/kvm"} },
	},
	// The network.
	{
		"network.exposePorts x: ",
		func(t *trial) { t.net().ExposePorts = []string{"x"} },
		func(t *trial) { t.net().ExposePorts = []string{"8080"} },
	},
	{
		"network.exposePorts 8080:940: the port inside is the network gate's own; use another",
		func(t *trial) { t.net().ExposePorts = []string{"8080:940"} },
		func(t *trial) { t.net().ExposePorts = []string{"8080:944"} },
	},
	{
		"network.upstreamProxy: connections cannot leave through it and through httpProxyPort or socksProxyPort; name one of them",
		func(t *trial) { t.net().HTTPProxyPort, t.net().UpstreamProxy = new(1), new("http://proxy:1") },
		func(t *trial) { t.net().UpstreamProxy = nil },
	},
	{
		`network.transparent true: connections cannot be captured where the gate is only at a socket; remove it, or "egress"`,
		func(t *trial) {
			t.net().AllowedDomains, t.net().Egress, t.net().Transparent = []string{"a"}, new("socket"), new(true)
		},
		func(t *trial) { t.net().Egress = nil },
	},
	{
		`network.allowLocalOutbound: loopback cannot lead to the host where the gate is only at a socket; remove it, or "egress"`,
		func(t *trial) { t.net().Egress, t.net().AllowLocalOutbound = new("socket"), new(true) },
		func(t *trial) { t.net().AllowLocalOutbound = nil },
	},
	{
		"network: TLS is opened for some hosts, and there is no directory for the certificate authority",
		func(t *trial) {
			t.facts.host.Authority = nil
			t.net().Rules = []policy.NetworkRule{{Host: "a", Action: "allow", Inspect: new(true)}}
		},
		func(t *trial) { t.net().Rules[0].Inspect = nil },
	},
	{
		"network.deniedDomains @nothing: there is no such group",
		func(t *trial) { t.net().AllowedDomains, t.net().DeniedDomains = []string{"*"}, []string{"@nothing"} },
		func(t *trial) { t.net().DeniedDomains = []string{"b.example"} },
	},
	{
		"network.allowLocalOutboundPorts 940-943: at these ports of loopback the network gate is, or an exposed port of the sandbox; remove them",
		func(t *trial) { t.net().AllowLocalOutboundPorts = []string{"940-943"} },
		func(t *trial) { t.net().AllowLocalOutboundPorts = nil },
	},
	{
		`network.allowLocalOutboundPorts x: "x" is neither a port nor a range`,
		func(t *trial) { t.net().AllowLocalOutboundPorts = []string{"x"} },
		func(t *trial) { t.net().AllowLocalOutboundPorts = []string{"5432"} },
	},
	// Limits, and what there is no wall for.
	{
		"resources.cpu 0.0004: the kernel does not share a processor so finely; give it 0.01 or more",
		func(t *trial) { t.policy.Resources.CPU = new(0.0004) },
		func(t *trial) { t.policy.Resources.CPU = new(0.01) },
	},
	{
		"resources.memory 4K: no program can be loaded in so little; give it 1M or more",
		func(t *trial) { t.policy.Resources.Memory = new(policy.Size(4096)) },
		func(t *trial) { t.policy.Resources.Memory = new(policy.Size(1 << 20)) },
	},
	{
		"resources.openFiles 7: the sandbox cannot be built with so few; give it 8 or more",
		func(t *trial) { t.policy.Resources.OpenFiles = new(7) },
		func(t *trial) { t.policy.Resources.OpenFiles = new(8) },
	},
	{
		"resources.openFiles 63: the sandbox cannot be built with so few; give it 64 or more",
		func(t *trial) { t.policy.Runtime, t.policy.Resources.OpenFiles = new("crun"), new(63) },
		func(t *trial) { t.policy.Resources.OpenFiles = new(64) },
	},
	{
		"resources.disk 4K: the sandbox's own directories need some of it; give it 1M or more",
		func(t *trial) { t.fs().AllowWrite, t.policy.Resources.Disk = nil, new(policy.Size(4096)) },
		func(t *trial) { t.policy.Resources.Disk = new(policy.Size(1 << 20)) },
	},
	{
		"resources.disk 1M: /home/u/p is written on the host's disk, where nobody counts what one sandbox writes; let it be written in memory (filesystem.privateWrite), in an overlay, or only read",
		func(t *trial) { t.policy.Resources.Disk = new(policy.Size(1 << 20)) },
		func(t *trial) { t.fs().AllowWrite, t.fs().PrivateWrite = nil, []string{"."} },
	},
	{
		"resources.disk 1M: the workspace one takes 1K already, which counts; apply or discard it, or give more",
		func(t *trial) {
			t.command.Overlay, t.policy.Resources.Disk = overlayOf("/home/u/p", "/home/u/data"), new(policy.Size(1<<20))
			t.command.Overlay.Name, t.command.Overlay.Used = "one", 1<<10
		},
		func(t *trial) { t.policy.Resources.Disk = new(policy.Size(2 << 20)) },
	},
	{
		"resources.disk 1M: in a sandbox that stays, changes are kept on the disk, where nobody counts them, and not in memory until an end that may never come; run it by: bailey --overlay -- CMD; or leave the limit out",
		func(t *trial) {
			t.command.Overlay, t.policy.Resources.Disk = overlayOf("/home/u/p", "/home/u/data"), new(policy.Size(1<<20))
			t.command.Later = true
		},
		func(t *trial) { t.policy.Resources.Disk = nil },
	},
	{
		`workspace.mode overlay: only a command with a sandbox of its own has a workspace to write to; run it by: bailey --overlay -- CMD; or use "direct"`,
		func(t *trial) { t.policy.Workspace.Mode = new("overlay") },
		func(t *trial) { t.policy.Workspace.Mode = new("direct") },
	},
	{
		"workspace.mode overlay: the workspace is that of /srv/data, and the command runs in /home/u/p; cd /srv/data",
		func(t *trial) { t.command.Overlay = overlayOf("/srv/data", "/home/u/data") },
		func(t *trial) { t.facts.host.Dir = "/srv/data" },
	},
	{
		"workspace.mode overlay: the changes would be kept in /home/u/p/data/upper, inside the project itself; set BAILEY_DATA to a directory elsewhere",
		func(t *trial) { t.command.Overlay = overlayOf("/home/u/p", "/home/u/p/data") },
		func(t *trial) { t.command.Overlay = overlayOf("/home/u/p", "/home/u/data") },
	},
	{
		"workspace.mode overlay: the bwrap runtime cannot keep changes apart from the files themselves; run it without, or use --runtime native",
		func(t *trial) {
			t.command.Overlay, t.policy.Runtime = overlayOf("/home/u/p", "/home/u/data"), new("bwrap")
		},
		func(t *trial) { t.policy.Runtime = new("native") },
	},
	{
		`workspace.rules {a: rule 1: bad pattern "{a": byte 1: { without }; write \{ for a brace in a name; see docs/path-permissions.md on patterns`,
		func(t *trial) {
			t.policy.Workspace.Rules = []policy.WorkspaceRule{{Pattern: "{a", Permission: "none"}}
		},
		func(t *trial) {
			t.policy.Workspace.Rules = []policy.WorkspaceRule{{Pattern: `\{a`, Permission: "none"}}
		},
	},
	{
		"workspace.rules: the bwrap runtime cannot show a file under permissions of its own; use --runtime native, or write rules that are paths, with none, read or write",
		func(t *trial) {
			t.policy.Runtime = new("bwrap")
			t.policy.Workspace.Rules = []policy.WorkspaceRule{{Pattern: "**/*.pem", Permission: "none"}}
		},
		func(t *trial) {
			t.policy.Runtime = new("native")
			t.policy.Workspace.Rules = []policy.WorkspaceRule{{Pattern: "**/*.pem", Permission: "none"}}
		},
	},
	{
		"workspace.rules: /home/u is not a project; cd into a project",
		func(t *trial) {
			t.facts.host.Dir = "/home/u"
			t.policy.Workspace.Rules = []policy.WorkspaceRule{{Pattern: "**/*.pem", Permission: "none"}}
		},
		func(t *trial) { t.facts.host.Dir = "/home/u/p" },
	},
	{
		"runtime none-such: this version does not have it; use one of auto, native",
		func(t *trial) { t.policy.Runtime = new("none-such") },
		func(t *trial) { t.policy.Runtime = new("native") },
	},
	{
		"allowPty false: every sandbox has pseudo-terminals of its own, which reach nothing outside; remove it",
		func(t *trial) { t.policy.AllowPty = new(false) },
		func(t *trial) { t.policy.AllowPty = nil },
	},
}

func (t *trial) compile() error {
	_, err := Compile(t.policy, t.facts, t.command)
	return err
}

func TestWhatARefusalSaysHelps(t *testing.T) {
	for _, c := range fixes {
		tr := newTrial()
		c.edit(tr)
		if err := tr.compile(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
		c.mend(tr)
		if err := tr.compile(); err != nil {
			t.Errorf("%s\nthe fix does not help: %v", c.want, err)
		}
	}
	if err := newTrial().compile(); err != nil {
		t.Errorf("without an edit: %v", err)
	}
}

// Every reason that is written in this package is in a message above.
func TestEveryRefusalIsTried(t *testing.T) {
	var all strings.Builder
	for _, c := range fixes {
		all.WriteString(c.want + "\n")
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			reason, ok := reasonOf(n)
			if !ok {
				return true
			}
			if count++; !strings.Contains(all.String(), reason) {
				t.Errorf("%v: nothing is tried that is refused because it %q", set.Position(n.Pos()), reason)
			}
			return true
		})
	}
	if count < 40 {
		t.Errorf("only %d refusals were found", count)
	}
}

// reasonOf is what the compiler is given as the reason to refuse, as far as it is
// written there.
func reasonOf(n ast.Node) (string, bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", false
	}
	function, ok := call.Fun.(*ast.SelectorExpr)
	at := map[string]int{"refuse": 2, "refuseIf": 3}
	if !ok || fmt.Sprint(function.X) != "c" || at[function.Sel.Name] == 0 || len(call.Args) <= at[function.Sel.Name] {
		return "", false
	}
	reason := call.Args[at[function.Sel.Name]]
	for {
		sum, ok := reason.(*ast.BinaryExpr)
		if !ok {
			break
		}
		if _, written := sum.Y.(*ast.BasicLit); written {
			reason = sum.Y // what stands before it is a path
			break
		}
		reason = sum.X
	}
	literal, ok := reason.(*ast.BasicLit)
	if !ok {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil
}
