package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/finding"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// byDefault is the place of an entry in the preset default.
func byDefault(key, entry string) string {
	return policy.DefaultOrigins()[policy.Origin{Key: key, Entry: entry}].String()
}

func TestExplainAnswersAboutOneThing(t *testing.T) {
	b := newBench(t)
	b.write("bailey.jsonc", `{
  "filesystem": {"allowRead": ["~/data"], "denyRead": ["**/*.pem", "/etc/nothing"], "denyWrite": ["src"]},
  "command": {"deny": ["git push"]},
  "env": {"allow": ["WANTED", "FOO_*"], "deny": ["PAGER", "FOO_S*"], "set": {"EMPTY": "", "LANG": "C"}},
  "network": {"allowedDomains": ["*.example.com"], "deniedDomains": ["bad.example.com"], "allowLocalOutboundPorts": ["5432"], "allowUnixSockets": ["~/data/n*.sock"],
    "rules": [{"host": "api.test", "methods": ["GET"], "schemes": ["http"], "action": "allow"}, {"host": "10.0.0.1", "ports": ["8080"], "action": "allow"}]}
}`, 0o644)
	for _, dir := range []string{filepath.Join(b.home, "data"), filepath.Join(b.dir, "src")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"data/named.sock", "data/other.sock", "some.sock"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(b.home, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	shadow := "is hidden"
	if os.Geteuid() != 0 {
		shadow = "cannot be read" // its permissions are enough
	}
	at := func(place string) string { return "bailey.jsonc:" + place }
	for _, c := range []struct {
		question string
		allowed  bool
		verdict  string
		rule     string
		where    string
		fix      string
	}{
		{"path ~/data", true, "can be read", "filesystem.allowRead ~/data", at("2:32"), "to write it: --allow-write"},
		{"path ~/data/x", true, "can be read", "filesystem.allowRead ~/data", at("2:32"), "to write it: make it, then --allow-write"},
		{"path ~", false, "holds nothing but what is granted below it; what is written there is forgotten", "private home", "", "--allow-read"},
		{"path /", false, "holds nothing but what is granted below it", "no rule grants the whole of it", "", "--allow-read /"},
		{"path ~/data/named.sock", true, "can be connected to", "network.allowUnixSockets ", at("5:148"), ""},
		{"path ~/data/other.sock", false, "can be seen, and not connected to", "network.allowUnixSockets does not name it", "", `{"allowUnixSockets": ["`},
		{"path ~/some.sock", false, "does not exist inside", "private home", "", `{"allowUnixSockets": ["`},
		{"path .vscode/settings.json", true, "can be read, and neither written nor made", "protected name", "", "--allow-write " + filepath.Join(b.dir, ".vscode")},
		{"path ~/other", false, "does not exist inside; what is written there is forgotten", "private home", "", "--allow-read "},
		{"path /srv/other", false, "does not exist inside", "no rule grants it", "", "make it, then --allow-read /srv/other"},
		{"path file", true, "can be read and written", "filesystem.allowWrite .", byDefault("filesystem.allowWrite", "."), ""},
		{"path src/file", true, "can be read", "filesystem.denyWrite src", at("2:99"), "remove filesystem.denyWrite src"},
		{"path deep/key.pem", false, "cannot be read", "filesystem.denyRead **/*.pem", at("2:56"), "remove filesystem.denyRead **/*.pem"},
		{"path .git/hooks", true, "can be read, and neither written nor made", "protected .git", "", ""},
		{"path /usr/bin", true, "can be read", "filesystem.allowRead /usr", "default:5:7", "--allow-write"},
		{"path /proc/cpuinfo", true, "can be read", "the sandbox has a /proc of its own", "", ""},
		{"path /proc/1/environ", false, "cannot be read", "process 1 is Bailey's own", "", ""},
		{"path /etc/shadow", false, shadow, "filesystem.denyRead /etc/shadow", byDefault("filesystem.denyRead", "/etc/shadow"), `{"denyRead": ["!/etc/shadow"]}`},
		{"path /etc/nothing", false, "cannot be read", "filesystem.denyRead /etc/nothing", at("2:68"), ""},
		{"path /dev/null", true, "can be read and written", "the sandbox has a /dev of its own", "", ""},
		{"path /dev/shm/x", false, "does not exist inside; what is written there is forgotten", "the sandbox has a /dev of its own", "", "--allow-read "},
		{"path /dev/loop-control", false, "does not exist inside", "the sandbox has a /dev of its own", "", `{"allow": ["/dev/loop-control"]}`},
		{"env WANTED", true, "enters", "env.allow WANTED", at("4:21"), ""},
		{"env PAGER", false, "is kept out", "env.deny PAGER", at("4:50"), "take back env.deny PAGER"},
		{"env FOO_A", true, "enters", "env.allow FOO_*", at("4:31"), ""},
		{"env FOO_SX", false, "is kept out", "env.deny FOO_S*", at("4:59"), "take back env.deny FOO_S*"},
		{"env FOO_TOKEN", false, "is kept out", "it looks like a secret", "", "--env FOO_TOKEN"},
		{"env EMPTY", true, "is set", "env.set EMPTY", at("4:78"), ""},
		{"env LANG", true, "is set", "env.set LANG", at("4:91"), ""},
		{"env LD_PRELOAD", false, "is kept out", "it makes programs load or run something", "", `"env": {"set": {"LD_PRELOAD": `},
		{"env BAILEY", true, "is set", "every sandbox has it", "", ""},
		{"env BAILEY_X", false, "is kept out", "are Bailey's own", "", ""},
		{"env HTTPS_PROXY", true, "is set", "every sandbox has it", "", ""},
		{"env TMPDIR", true, "is set", "every sandbox has it", "", ""},
		{"env LC_TIME", true, "enters", "those that enter by themselves", "", ""},
		{"env GITHUB_TOKEN", false, "is kept out", "env.allow does not list it", "", "--env GITHUB_TOKEN"},
		{"env SOMETHING", false, "is kept out", "env.allow does not list it", "", "--env SOMETHING"},
		{"command git push origin", false, "is refused", "command.deny git push", at("3:24"), ""},
		{"command git pull", true, "may be run", "no rule about commands denies it", "", ""},
		{"host www.example.com:443", true, "can be reached, by protocol http or https", "network.allowedDomains *.example.com", at("5:34"), ""},
		{"host www.example.com", true, "can be reached", "network.allowedDomains *.example.com", at("5:34"), ""},
		{"host www.example.com:22", false, "cannot be reached", "defaultAction", "", `"ssh": {"allowedHosts": ["www.example.com"]}`},
		{"host www.example.com:8443", false, "cannot be reached", "defaultAction", "", `{"rules": [{"host": "www.example.com", "ports": ["8443"], "action": "allow"}]}`},
		{"host localhost:5432", true, "can be reached", "network.allowLocalOutboundPorts 5432", at("5:118"), ""},
		{"host [::1]:5432", true, "can be reached", "network.allowLocalOutboundPorts 5432", at("5:118"), ""},
		{"host localhost:5433", false, "cannot be reached", "defaultAction", "", `{"allowLocalOutboundPorts": ["5433"]}`},
		{"host 127.0.0.1:80", false, "cannot be reached", "defaultAction", "", `{"allowLocalOutboundPorts": ["80"]}`},
		{"host localhost", false, "cannot be reached", "defaultAction", "", "allowLocalOutboundPorts"},
		{"host bad.example.com", false, "cannot be reached", "network.deniedDomains bad.example.com", at("5:70"), "remove network.deniedDomains bad.example.com"},
		{"host other.test:80", false, "cannot be reached", "no rule is about it: defaultAction", "", `"allowedDomains": ["other.test"]`},
		{"host api.test:80", true, "can be reached, by protocol http, method GET", "network.rules", "", ""},
		{"host 10.0.0.1:8080", true, "can be reached", "network.rules", "", ""},
	} {
		args := append([]string{"-q", "-s", "bailey.jsonc", "explain", "--json"}, strings.Fields(c.question)...)
		got := b.run(args...)
		var f finding.Finding
		if err := json.Unmarshal([]byte(got.stdout), &f); err != nil || got.status != 0 {
			t.Errorf("%s: status %d, %v: %s%s", c.question, got.status, err, got.stdout, got.stderr)
			continue
		}
		if f.Allowed != c.allowed || !strings.HasPrefix(f.Verdict, c.verdict) || !strings.Contains(f.Rule, c.rule) ||
			!strings.HasSuffix(f.Where, c.where) && c.where != "" || !strings.Contains(f.Fix, c.fix) || strings.HasPrefix(c.question, "env") && (f.Fix != "") != (c.fix != "") {
			t.Errorf("%s: got %+v\nwant %+v", c.question, f, c)
		}
	}
}

func TestExplainTellsQuestionsFromCommands(t *testing.T) {
	b := newBench(t)
	b.run("-q", "explain", "path", "/usr").want(t, 0, "/usr can be read\n  by  filesystem.allowRead /usr\n  at  default:5:7\n  to write it: --allow-write /usr\n", "")
	b.run("-q", "explain", "host", "example.com:443").want(t, 0,
		"example.com:443 cannot be reached\n  by  the network is closed\n  to change it: in a policy: \"network\": {\"allowedDomains\": [\"example.com\"]}\n", "")
	b.run("-q", "explain", "host", "localhost:5432").want(t, 0,
		"localhost:5432 cannot be reached\n  by  the network is closed\n  to change it: in a policy: \"network\": {\"allowLocalOutboundPorts\": [\"5432\"]}\n", "")
	b.run("-q", "--policy", `{"filesystem": {"protectMissing": false}, "network": {"allowAllUnixSockets": true}}`, "explain", "path", "x").want(t, 0,
		filepath.Join(b.dir, "x")+" can be read and written\n  by  filesystem.allowWrite .\n  at  "+byDefault("filesystem.allowWrite", ".")+"\n", "") // no broker
	b.run("-q", "-t", "offline", "explain", "host", "x.test:443").want(t, 0, "x.test:443 cannot be reached\n  by  network.deniedDomains *\n  at  offline:8:23\n"+
		"  to change it: in a policy that extends it: \"network\": {\"deniedDomains\": [\"!*\"], \"allowedDomains\": [\"x.test\"]}\n", "")
	// What it says.
	b.run("-q", "--policy", `{"extends": "offline", "network": {"deniedDomains": ["!*"], "allowedDomains": ["x.test"]}}`, "explain", "host", "x.test:443").want(t, 0,
		"x.test:443 can be reached, by protocol http or https\n  by  network.allowedDomains x.test\n  at  --policy:1:80\n", "")
	b.run("-q", "explain", "host", "2001:db8::1").want(t, 0, "2001:db8::1 cannot be reached\n  by  the network is closed\n"+
		"  to change it: in a policy: \"network\": {\"allowedDomains\": [\"2001:db8::1\"]}\n", "")
	for _, policy := range []string{"{}", `{"network": {"allowedDomains": ["a.test"]}}`, `{"network": {"allowedDomains": ["*"]}}`} {
		for name, wrong := range map[string]string{
			"a.test:https": "a port is a number", "a.test:99999": "a port is a number", "a.test:0": "a port is a number", "a.test:": "a port is a number",
			"http://a.test/": "without a scheme", "a.test/x": "without a path", "*.test": "no single host", "@npm": "no single host", "a..test": "empty label",
		} {
			b.run("--policy", policy, "explain", "host", name).wantError(t, "explain host "+name+": ", wrong, "NAME:PORT")
		}
	}
	const everything = `{"network": {"allowedDomains": ["*"], "deniedDomains": ["bad.example"]}}`
	for address, verdict := range map[string]string{
		"8.8.8.8:80": "8.8.8.8:80 can be reached\n  by  network.allowedDomains *\n  at  --policy:1:33\n",
		"10.0.0.1:80": "10.0.0.1:80 cannot be reached\n  by  the address is a private address, which has to be granted by itself\n" +
			"  to change it: in a policy: \"network\": {\"allowedCIDRs\": [\"10.0.0.1\"]}\n",
	} {
		b.run("-q", "--policy", everything, "explain", "host", address).want(t, 0, verdict, "")
	}
	for _, args := range [][]string{{"explain", "--", "env", "NAME"}, {"explain", "env", "A=b"}, {"explain", "env"}, {"explain", "--", "path"}} {
		if got := b.run(append([]string{"-q"}, args...)...); !strings.HasPrefix(got.stdout, "command\n") {
			t.Errorf("%q: %q", args, got.stdout)
		}
	}
	if got := b.run("explain", "path", "/a", "/b"); got.status != 125 || !strings.Contains(got.stderr, "about one of them") {
		t.Errorf("two paths: %d, %q", got.status, got.stderr)
	}
}
