package policy

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestMistakesAreRefusedWithTheirPlace(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"unknown top-level key", `{"filesytem": {}}`, `1:2: unknown key "filesytem"; did you mean "filesystem"?`},
		{"unknown key", "{\n  \"filesystem\": {\n    \"alowRead\": []\n  }\n}", `3:5: unknown key "alowRead" in filesystem; did you mean "allowRead"?`},
		{"case matters", `{"filesystem": {"allowread": []}}`, `1:17: unknown key "allowread" in filesystem; did you mean "allowRead"?`},
		{"key of another section", `{"allowedDomains": ["a.com"]}`, `1:2: unknown key "allowedDomains"; it belongs in network`},
		{"key of two sections", `{"allowedHosts": []}`, `1:2: unknown key "allowedHosts"; it belongs in ssh`},
		{"top-level key in a section", `{"network": {"runtime": "auto"}}`, `1:14: unknown key "runtime" in network; it belongs at the top level`},
		{"key of another tool", `{"forceNewSession": true}`, `1:2: unknown key "forceNewSession"`},
		{"key without a file form", `{"Bounds": []}`, `1:2: unknown key "Bounds"`},
		{"key in a rule", `{"network": {"rules": [{"host": "a.com", "action": "allow", "port": 1}]}}`, `1:61: unknown key "port" in network.rules[0]; did you mean "ports"?`},
		{"missing key", `{"network": {"rules": [{"host": "a.com"}]}}`, `1:24: network.rules[0] lacks the key "action"`},
		{"duplicate key", "{\"env\": {},\n \"env\": {}}", `2:2: key "env" is given twice, first in line 1`},
		{"duplicate variable", `{"env": {"set": {"A": "1", "A": "2"}}}`, `1:28: key "A" is given twice`},
		{"string for list", `{"filesystem": {"allowRead": "/usr"}}`, `1:30: filesystem.allowRead is a string, want a list`},
		{"number for string", `{"filesystem": {"allowRead": ["/usr", 7]}}`, `1:39: filesystem.allowRead[1] is a number, want a string`},
		{"string for bool", `{"allowPty": "yes"}`, `1:14: allowPty is a string, want true or false`},
		{"list for object", `{"network": []}`, `1:13: network is a list, want an object`},
		{"string for number", `{"resources": {"pids": "7"}}`, `1:24: resources.pids is a string, want a number`},
		{"top level", `[]`, `1:1: the policy is a list, want an object`},
		{"null", `{"runtime": null}`, `1:13: runtime is null; leave the key out to say nothing`},
		{"enum", `{"runtime": "nativ"}`, `1:13: runtime: "nativ": unknown value; did you mean "native"?`},
		{"enum by another name", `{"runtime": "runsc"}`, `1:13: runtime: "runsc": unknown value; did you mean "gvisor"?`},
		{"another enum's other name", `{"devices": {"mode": "runsc"}}`, `1:22: devices.mode: "runsc": unknown value; want one of auto, minimal, host`},
		{"enum without a near value", `{"devices": {"mode": "everything"}}`, `1:22: devices.mode: "everything": unknown value; want one of auto, minimal, host`},
		{"enum in list", `{"require": ["landlok"]}`, `1:14: require[0]: "landlok": unknown value; did you mean "landlock"?`},
		{"empty path", `{"filesystem": {"denyRead": [""]}}`, `1:30: filesystem.denyRead[0]: "": empty string`},
		{"blank path", `{"filesystem": {"denyRead": ["  "]}}`, `1:30: filesystem.denyRead[0]: "  ": empty string`},
		{"empty removal", `{"filesystem": {"denyRead": ["!"]}}`, `1:30: filesystem.denyRead[0]: "!": empty string`},
		{"NUL", `{"filesystem": {"denyRead": ["/a\u0000b"]}}`, `1:30: filesystem.denyRead[0]: "/a\x00b": NUL byte in string`},
		{"newline", `{"filesystem": {"denyRead": ["/a\nb"]}}`, `1:30: filesystem.denyRead[0]: "/a\nb": newline in string`},
		{"escape", `{"filesystem": {"denyRead": ["/a\u001b[2J"]}}`, `1:30: filesystem.denyRead[0]: "/a\x1b[2J": control character U+001B in string`},
		{"half a character", `{"runtime": "\ud800"}`, `1:13: bad string: \u escape of half a character`},
		{"invalid UTF-8", "{\"runtime\": \"\xff\"}", `1:14: invalid UTF-8`},
		{"bad glob", `{"filesystem": {"denyRead": ["**/[a"]}}`, `1:30: filesystem.denyRead[0]: "**/[a": bad pattern`},
		{"other home", `{"filesystem": {"allowRead": ["~bob/x"]}}`, `1:31: filesystem.allowRead[0]: "~bob/x": only ~/ is known`},
		{"variable", `{"filesystem": {"allowRead": ["$HOME/x"]}}`, `1:31: filesystem.allowRead[0]: "$HOME/x": variables are not expanded`},
		{"negative number", `{"resources": {"pids": -1}}`, `1:24: resources.pids is -1, want at least 1`},
		{"fraction", `{"resources": {"pids": 1.5}}`, `1:24: resources.pids: 1.5 is not a whole number`},
		{"negative processor", `{"resources": {"cpu": -0.5}}`, `1:23: resources.cpu is -0.5, want at least 0.01`},
		{"huge number", `{"resources": {"cpu": 1e999}}`, `1:23: resources.cpu: 1e999 is out of range`},
		{"negative size", `{"resources": {"memory": -1}}`, `1:26: resources.memory: want a positive number of bytes`},
		{"decimal size", `{"resources": {"memory": "5MB"}}`, `1:26: resources.memory: want a positive number of bytes`},
		{"overflowing size", `{"resources": {"memory": "9999999999T"}}`, `1:26: resources.memory: want a positive number of bytes`},
		{"negative duration", `{"resources": {"timeout": "-5m"}}`, `1:27: resources.timeout: want a positive number of seconds`},
		{"proxy port", `{"network": {"httpProxyPort": 70000}}`, `1:31: network.httpProxyPort is 70000, want at most 65535`},
		{"port range", `{"network": {"allowLocalOutboundPorts": ["90-80"]}}`, `1:42: network.allowLocalOutboundPorts[0]: "90-80": want a port`},
		{"scheme", `{"network": {"allowedDomains": ["https://a.com"]}}`, `1:33: network.allowedDomains[0]: "https://a.com": a host is written without a scheme`},
		{"path in host", `{"network": {"allowedDomains": ["a.com/x"]}}`, `1:33: network.allowedDomains[0]: "a.com/x": a host is written without a path`},
		{"port in host", `{"network": {"allowedDomains": ["a.com:443"]}}`, `1:33: network.allowedDomains[0]: "a.com:443": a host is written without a port`},
		{"user in host", `{"network": {"allowedDomains": ["u@a.com"]}}`, `1:33: network.allowedDomains[0]: "u@a.com": a host is written without a user`},
		{"space in host", `{"network": {"allowedDomains": ["a .com"]}}`, `1:33: network.allowedDomains[0]: "a .com": space in host`},
		{"star in the middle", `{"network": {"allowedDomains": ["a.*.com"]}}`, `1:33: network.allowedDomains[0]: "a.*.com": "*" is only allowed alone`},
		{"star in a label", `{"network": {"allowedDomains": ["*a.com"]}}`, `1:33: network.allowedDomains[0]: "*a.com": "*" is only allowed alone`},
		{"empty label", `{"network": {"allowedDomains": ["a..com"]}}`, `1:33: network.allowedDomains[0]: "a..com": empty label in host`},
		{"trailing dot", `{"network": {"allowedDomains": ["a.com."]}}`, `1:33: network.allowedDomains[0]: "a.com.": empty label in host`},
		{"short address", `{"network": {"allowedDomains": ["127.1"]}}`, `1:33: network.allowedDomains[0]: "127.1": neither a name nor a full address`},
		{"hexadecimal address", `{"network": {"allowedDomains": ["0x7f000001"]}}`, `1:33: network.allowedDomains[0]: "0x7f000001": neither a name nor a full address`},
		{"international name", `{"network": {"allowedDomains": ["bücher.de"]}}`, `1:33: network.allowedDomains[0]: "bücher.de": hosts are matched in their ASCII form`},
		{"unknown group", `{"network": {"allowedDomains": ["@nmp"]}}`, `1:33: network.allowedDomains[0]: "@nmp": unknown group; did you mean "@npm"?`},
		{"bad range", `{"network": {"allowedCIDRs": ["10.0.0.1/8"]}}`, `1:31: network.allowedCIDRs[0]: "10.0.0.1/8": address has bits beyond the range; write 10.0.0.0/8`},
		{"bad proxy", `{"network": {"upstreamProxy": "proxy:3128"}}`, `1:31: network.upstreamProxy: a proxy is written as`},
		{"variable name with =", `{"env": {"set": {"A=B": "1"}}}`, `1:18: env.set: "A=B": bad variable name: '=' is not allowed there`},
		{"variable value with NUL", `{"env": {"set": {"A": "\u0000"}}}`, `1:23: env.set.A: NUL byte in string`},
		{"variable value", `{"env": {"set": {"A": 1}}}`, `1:23: env.set.A is a number, want a string`},
		{"variable pattern", `{"env": {"allow": ["A*B"]}}`, `1:20: env.allow[0]: "A*B": bad variable name: '*' is not allowed there`},
		{"variable name", `{"env": {"deny": ["1A"]}}`, `1:19: env.deny[0]: "1A": bad variable name: '1' is not allowed there`},
		{"device", `{"devices": {"allow": ["/dev/../etc/passwd"]}}`, `1:24: devices.allow[0]: "/dev/../etc/passwd": a device node is a path below /dev`},
		{"two sources", `{"network": {"inject": [{"hosts": ["a.com"], "fromEnv": "A", "fromFile": "b"}]}}`, `1:25: network.inject[0]: want exactly one of fromEnv, fromFile and fromCommand`},
		{"credential for everybody", "{\"network\": {\"inject\": [\n {\"bearer\": true, \"fromEnv\": \"A\",\n  \"hosts\": [\"*\"]}]}}", `3:12: network.inject[0].hosts: "*" would send the credential to every host`},
		{"path without a slash", "{\"network\": {\"rules\": [{\"host\": \"a.com\", \"action\": \"deny\",\n\"paths\": [\"/ok\", \"admin/**\"]}]}}", `2:18: network.rules[0].paths[1]: "admin/**": the pattern of a path begins with a slash; write "/admin/**"`},
		{"password of a proxy", `{"network": {"upstreamProxy": "http://u:hush@p:99999"}}`, `1:31: network.upstreamProxy: the port of a proxy`},
		{"empty extends", `{"extends": []}`, `1:13: extends is an empty list`},
		{"column in characters", `{"env": {"set": {"A": "äöü"}}, "x": 1}`, `1:32: unknown key "x"`},
		{"deep", strings.Repeat("[", 100000), `1:17: nested more than 16 deep`},
		{"large", strings.Repeat(" ", maxFileSize+1), `: file is larger than 1M`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Parse("p.jsonc", []byte(c.in))
			if err == nil {
				t.Fatalf("accepted: %s", Marshal(*p, ""))
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %T, want *Error", err)
			}
			if want := "p.jsonc:" + strings.TrimPrefix(c.want, ":"); !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got  %s\nwant %s", err, want)
			}
		})
	}
}

func TestEveryKeyIsRead(t *testing.T) {
	p, err := Parse("p.jsonc", []byte(`// a comment
{
  "$schema": "https://example.com/s.json",
  "extends": "code", /* one */
  "filesystem": {"allowRead": ["/usr", "~/x", "../y", "src/**/*.{c,h}"], "strictDenyRead": true,},
  "network": {
    "allowedDomains": ["a.com", "*.b.com", "*", "192.0.2.1", "[::1]", "@npm", "!@pip"],
    "allowLocalOutboundPorts": [5432, "8000-8100", "*"],
    "rules": [{"host": "a.com", "ports": ["443"], "schemes": ["https"], "action": "deny", "inspect": false}],
    "limits": {"connections": 5, "headerBytes": "64K", "idle": 90},
  },
  "env": {"allow": ["A", "B_*", "*"], "set": {"A": "", "B": "x\ny"}},
  "resources": {"memory": "2GiB", "cpu": 0.5, "timeout": "1h30m", "disk": 1000},
  "workspace": {"mode": "direct", "rules": [{"pattern": "a/**", "permission": "none"}]},
  "require": ["landlock", "!seccomp"],
}`))
	if err != nil {
		t.Fatal(err)
	}
	got := string(Marshal(*p, ""))
	want := `{"$schema":"https://example.com/s.json","extends":"code",` +
		`"filesystem":{"allowRead":["/usr","~/x","../y","src/**/*.{c,h}"],"strictDenyRead":true},` +
		`"network":{"allowedDomains":["a.com","*.b.com","*","192.0.2.1","[::1]","@npm","!@pip"],` +
		`"allowLocalOutboundPorts":["5432","8000-8100","*"],` +
		`"rules":[{"host":"a.com","ports":["443"],"schemes":["https"],"action":"deny","inspect":false}],` +
		`"limits":{"connections":5,"headerBytes":"64K","idle":"1m30s"}},` +
		`"env":{"allow":["A","B_*","*"],"set":{"A":"","B":"x\ny"}},` +
		`"resources":{"memory":"2G","cpu":0.5,"disk":1000,"timeout":"1h30m"},` +
		`"workspace":{"mode":"direct","rules":[{"pattern":"a/**","permission":"none"}]},` +
		`"require":["landlock","!seccomp"]}` + "\n"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestOriginsNameTheLineOfEachEntry(t *testing.T) {
	p, err := Parse("p.jsonc", []byte(`{
  "filesystem": {
    "allowRead": ["/a",
                  "/b"],
    "strictDenyRead": true
  },
  "env": {"set": {"A": "1"}},
  "network": {"rules": [{"host": "a.com", "action": "allow"},
    {"host": "b.com", "action": "allow"}]}
}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Origins{
		{"filesystem.allowRead", "/a"}:    {"p.jsonc", 3, 19},
		{"filesystem.allowRead", "/b"}:    {"p.jsonc", 4, 19},
		{"filesystem.strictDenyRead", ""}: {"p.jsonc", 5, 23},
		{"env.set", "A"}:                  {"p.jsonc", 7, 19},
		{"network.rules", "0"}:            {"p.jsonc", 8, 25},
		{"network.rules", "1"}:            {"p.jsonc", 9, 5},
	}
	if !reflect.DeepEqual(p.Origins, want) {
		t.Errorf("got  %v\nwant %v", p.Origins, want)
	}
}

func TestManyEntriesParseQuickly(t *testing.T) {
	// Quadratic work on one line of this size would take minutes.
	var b strings.Builder
	b.WriteString(`{"env": {"set": {`)
	for i := range 40000 {
		fmt.Fprintf(&b, `"VARIABLE_%d": "",`, i)
	}
	b.WriteString(`}}}`)
	p, err := Parse("p.jsonc", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Env.Set) != 40000 {
		t.Errorf("got %d variables", len(p.Env.Set))
	}
}

func TestSizeAndDurationAreReadAndWritten(t *testing.T) {
	for in, want := range map[string]string{"1": "1", "1024": "1K", "1K": "1K", "512M": "512M", "2GiB": "2G", "1536K": "1536K", "3T": "3T"} {
		if s, err := ParseSize(in); err != nil || s.String() != want {
			t.Errorf("size %s: got %v, %v, want %s", in, s, err, want)
		}
	}
	for _, in := range []string{"", "0", "0K", "-1", "+1", "1_000", "K", "1KB", "1k", "1.5G", "1 M", "8388608T", "1iB"} {
		if s, err := ParseSize(in); err == nil {
			t.Errorf("size %q: got %v, want an error", in, s)
		}
	}
	for in, want := range map[string]string{"90": "1m30s", "10m": "10m", "1h": "1h", "1h30m": "1h30m", "500ms": "500ms", "60m": "1h"} {
		if d, err := ParseDuration(in); err != nil || d.String() != want {
			t.Errorf("duration %s: got %v, %v, want %s", in, d, err, want)
		}
	}
	for _, in := range []string{"", "0", "0s", "-1s", "1d", "9999999999999", "m"} {
		if d, err := ParseDuration(in); err == nil {
			t.Errorf("duration %q: got %v, want an error", in, d)
		}
	}
}

// reparse checks that an accepted policy survives being printed.
func reparse(t *testing.T, p Policy) {
	t.Helper()
	printed := Marshal(p, " ")
	again, err := Parse("printed", printed)
	if err != nil {
		t.Fatalf("printed policy is refused: %v\n%s", err, printed)
	}
	again.Origins, p.Origins = nil, nil
	if !reflect.DeepEqual(*again, p) {
		t.Fatalf("printed policy differs:\n%s\n%s", printed, Marshal(*again, " "))
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range PresetNames() {
		data, _ := Preset(name)
		f.Add(data)
	}
	f.Add([]byte(`{"resources": {"memory": "2GiB", "cpu": 0.5, "timeout": 7}, "env": {"set": {"A": "\u00e4"}}}`))
	f.Add([]byte(`{"network": {"rules": [{"host": "a", "action": "ask"}], "inject": [{"hosts": ["a"], "fromCommand": ["x"]}], "limits": {}}}`))
	f.Add([]byte(`{"extends": ["a", "b"], "filesystem": {"allowRead": ["!/x", "{a,b}/**"]}, "macos": {"mach": {}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("fuzz", data)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Msg == "" {
				t.Fatalf("error without a place: %v", err)
			}
			return
		}
		reparse(t, *p)
		Describe(*p, Default())
		Describe(Default(), *p)
		Intersect(*p, Default())
	})
}

func FuzzPattern(f *testing.F) {
	for _, s := range []string{"*", "*.a.com", "a.com", "A.com", "@npm", "::1", "[::1]", "::ffff:127.0.0.1", "10.0.0.0/8", "80-90", "~/x", "/a/**", "A_*", "git push"} {
		f.Add(s, "a.b.com")
	}
	kinds := []string{"", "path", "rule", "domain", "host", "port", "exposure", "cidr", "device", "name", "names", "command", "proxy", "image"}
	f.Fuzz(func(t *testing.T, x, y string) {
		for _, kind := range kinds {
			if check(kind, x) == nil && strings.ContainsAny(x, "\x00\n") {
				t.Fatalf("%s %q is accepted", kind, x)
			}
		}
		for kind, covers := range map[string]func(x, y string) bool{
			"domain": coversDomain, "path": coversPath, "names": coversStar, "": coversCommand,
		} {
			if check(kind, x) != nil || check(kind, y) != nil {
				continue
			}
			if !covers(x, x) {
				t.Fatalf("%s %q does not cover itself", kind, x)
			}
			m, ok := narrower(covers)(x, y)
			if ok && (!covers(x, m) || !covers(y, m)) {
				t.Fatalf("%s: meet of %q and %q is %q, which one does not cover", kind, x, y, m)
			}
		}
	})
}
