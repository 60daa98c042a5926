package spec

import (
	"errors"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// refusals are edits of a policy that compiles, each with the key that is then
// refused.
var refusals = []struct {
	key  string
	edit func(*policy.Policy)
}{
	{"network.upstreamProxy", func(p *policy.Policy) {
		p.Network.HTTPProxyPort, p.Network.UpstreamProxy = new(1), new("http://proxy:1")
	}},
	{"network.exposePorts", func(p *policy.Policy) { p.Network.ExposePorts = []string{"8080:940"} }},
	{"network.exposePorts", func(p *policy.Policy) { p.Network.ExposePorts = []string{"8080:943"} }},
	{"network.exposePorts", func(p *policy.Policy) { p.Network.ExposePorts = []string{"x"} }},
	{"network.transparent", func(p *policy.Policy) {
		p.Network.AllowedDomains, p.Network.Egress, p.Network.Transparent = []string{"a"}, new("socket"), new(true)
	}},
	{"network.allowLocalOutbound", func(p *policy.Policy) { p.Network.Egress, p.Network.AllowLocalOutbound = new("socket"), new(true) }},
	{"network.allowLocalOutboundPorts", func(p *policy.Policy) { p.Network.AllowLocalOutboundPorts = []string{"940-943"} }},
	{"network.allowLocalOutboundPorts", func(p *policy.Policy) {
		p.Network.AllowLocalOutboundPorts, p.Network.ExposePorts = []string{"3000"}, []string{"3000"}
	}},
	{"network", func(p *policy.Policy) {
		p.Network.Rules = []policy.NetworkRule{{Host: "a", Action: "allow", Inspect: new(true)}} // and there is no authority
	}},
	{"resources.memory", func(p *policy.Policy) { p.Resources.Memory = new(policy.Size(4096)) }},
	{"resources.disk", func(p *policy.Policy) { p.Resources.Disk = new(policy.Size(1 << 20)) }},
	{"workspace.mode", func(p *policy.Policy) { p.Workspace.Mode = new("overlay") }},
	{"workspace.rules", func(p *policy.Policy) {
		p.Workspace.Rules = []policy.WorkspaceRule{{Pattern: "{a", Permission: "none"}}
	}},
	{"runtime", func(p *policy.Policy) { p.Runtime = new("elsewhere") }},
	{"devices.mode", func(p *policy.Policy) { p.Devices.Mode = new("host") }},
	{"devices.allow", func(p *policy.Policy) { p.Devices.Allow = []string{"/dev/nothing"} }},
	{"devices.allow", func(p *policy.Policy) { p.Devices.Allow = []string{"/etc/passwd"} }},
	{"allowPty", func(p *policy.Policy) { p.AllowPty = new(false) }},
	{"env.allow", func(p *policy.Policy) { p.Env.Allow = []string{"LD_PRELOAD"} }},
	{"env.set", func(p *policy.Policy) { p.Env.Set = map[string]string{"A": "a\x00b"} }},
	{"env.set", func(p *policy.Policy) { p.Env.Set = map[string]string{"A=B": "x"} }},
	{"filesystem.allowRead", func(p *policy.Policy) { p.Filesystem.AllowRead = []string{"~/**/*.go"} }},
	{"filesystem.denyRead", func(p *policy.Policy) { p.Filesystem.DenyRead = []string{"/proc/*/maps"} }},
	{"filesystem.denyRead", func(p *policy.Policy) { p.Filesystem.DenyRead = []string{"link/*.pem"} }},
	{"filesystem.privateWrite", func(p *policy.Policy) { p.Filesystem.PrivateWrite = []string{"**/cache"} }},
	{"filesystem.allowExecute", func(p *policy.Policy) { p.Filesystem.AllowExecute = []string{"bin/*"} }},
	{"network.allowUnixSockets", func(p *policy.Policy) { p.Network.AllowUnixSockets = []string{"link"} }},
	{"filesystem.allowWrite", func(p *policy.Policy) { p.Filesystem.AllowWrite = []string{"/missing"} }},
	{"filesystem.allowWrite", func(p *policy.Policy) { p.Filesystem.AllowWrite = []string{"/proc/sys"} }},
	{"filesystem.privateWrite", func(p *policy.Policy) { p.Filesystem.PrivateWrite = []string{"/etc/passwd"} }},
	{"filesystem.allowWrite", func(p *policy.Policy) { p.Filesystem.AllowWrite = []string{"/dev/kvm"} }},
	{"filesystem.allowRead", func(p *policy.Policy) { p.Filesystem.AllowRead = []string{"~root/x"} }},
	{"filesystem.allowRead", func(p *policy.Policy) { p.Filesystem.AllowRead = []string{""} }},
	{"filesystem.allowRead", func(p *policy.Policy) { p.Filesystem.AllowRead = []string{"/run/daemon.sock"} }},
	{"filesystem.allowRead", func(p *policy.Policy) { p.Filesystem.AllowRead = []string{"/opt/loop"} }},
	{"filesystem.allowWrite", func(p *policy.Policy) { p.Filesystem.AllowWrite = []string{".", ".git/hooks"} }},
	{"filesystem.allowWrite", func(p *policy.Policy) { p.Filesystem.AllowWrite = []string{".", "link"} }},
	{"filesystem.allowRead", func(p *policy.Policy) { p.Filesystem.AllowRead = []string{"link/x"} }},
	{"filesystem.denyWrite", func(p *policy.Policy) { p.Filesystem.DenyWrite = []string{"link"} }},
	{"filesystem.allowExecute", func(p *policy.Policy) { p.Filesystem.AllowExecute = []string{"link"} }},
}

func TestRefusals(t *testing.T) {
	for _, tc := range refusals {
		p := basicPolicy()
		tc.edit(&p)
		f := newSystem(append(repository("/home/u/p/.git"), "/home/u/p/link -> /srv/data", "/srv/data/x", "/run/daemon.sock", "/opt/loop -> loop")...)
		f.files["/run/daemon.sock"].Type = TypeSocket
		_, err := Compile(p, f, Command{Argv: []string{"true"}})
		var refused *Refused
		if !errors.As(err, &refused) {
			t.Errorf("%s: got %v, want it refused", tc.key, err)
		} else if u := refused.Reasons[0]; u.Key != tc.key || u.Reason == "" || len(refused.Reasons) != 1 {
			t.Errorf("got %v, want %s refused alone", err, tc.key)
		}
	}
}

func TestVacuousRestrictionsPass(t *testing.T) {
	p := basicPolicy()
	p.Network = policy.Network{
		DeniedDomains: []string{"example.com"}, AllowLocalBinding: new(false), AllowLocalOutbound: new(false), DefaultAction: new("deny"),
		Rules: []policy.NetworkRule{{Host: "*", Action: "deny"}}, Limits: &policy.NetworkLimits{}, Transparent: new(true),
	}
	p.Command = policy.Command{Allow: []string{"git"}, UseDefaults: new(false), RuntimeExecPolicy: new("argv")}
	p.SSH = policy.SSH{DeniedHosts: []string{"h"}, DeniedCommands: []string{"rm"}, InheritDeny: new(true)}
	p.Devices.Mode, p.AllowPty, p.Runtime, p.Workspace.Mode = new("minimal"), new(true), new("native"), new("direct")
	p.Filesystem.DenyRead = append(p.Filesystem.DenyRead, "/nowhere", "/proc/keys", "/dev/kvm")
	p.Filesystem.AllowWrite = append(p.Filesystem.AllowWrite, "/dev/null", "new")
	if _, err := Compile(p, newSystem("/home/u/p/"), Command{Argv: []string{"true"}}); err != nil {
		t.Error(err)
	}
}

func TestAllReasonsAreNamedAtOnce(t *testing.T) {
	p := basicPolicy()
	p.Network.ExposePorts = []string{"x"}
	p.Resources.Memory = new(policy.Size(4096))
	p.Filesystem.DenyWrite = []string{"/proc/*"}
	_, err := Compile(p, newSystem("/home/u/p/"), Command{})
	var refused *Refused
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	var keys []string
	for _, r := range refused.Reasons {
		keys = append(keys, r.Key)
	}
	if got, want := strings.Join(keys, " "), "network.exposePorts resources.memory command filesystem.denyWrite"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDevices(t *testing.T) {
	p := basicPolicy()
	p.Devices.Allow = []string{"/dev/kvm", "/dev/null"}
	s, err := Compile(p, newSystem("/home/u/p/"), Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	_, m := s.Access("/dev/kvm")
	if m.Target != "/dev/kvm" || !m.Devices || !m.File || !m.Write {
		t.Errorf("got %+v", m)
	}
	if _, m := s.Access("/dev/null"); m.Target != "/dev" {
		t.Errorf("got %+v for a node every sandbox has", m)
	}
}

func TestProjectInSharedMemoryIsGranted(t *testing.T) {
	f := newSystem("/dev/shm/", "/dev/shm/p/", "/dev/shm/p/.git/", "/dev/shm/other/")
	f.host.Dir = "/dev/shm/p"
	s, err := Compile(basicPolicy(), f, Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	if a, m := s.Access("/dev/shm/p/file"); a != AccessWrite || m.Target != "/dev/shm/p" {
		t.Errorf("the project: %v by %+v", a, m)
	}
	if _, m := s.Access("/dev/shm/other"); m.Target != "/dev" {
		t.Errorf("what is beside it: %+v", m)
	}
}
