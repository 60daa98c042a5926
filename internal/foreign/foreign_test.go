package foreign

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

var update = flag.Bool("update", false, "write the golden files anew")

// toolOf goes by the first word of a sample's name.
func toolOf(t testing.TB, file string) Tool {
	t.Helper()
	word, _, _ := strings.Cut(filepath.Base(file), "-")
	tool, ok := map[string]Tool{"fence": Fence, "srt": SandboxRuntime, "claude": ClaudeCode, "greywall": Greywall}[word]
	if !ok {
		t.Fatalf("%s: no tool of that name", file)
	}
	return tool
}

func samples(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json*")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d samples, %v", len(files), err)
	}
	return files
}

// nowhere is a user without any file of their own, in a directory that is the
// same everywhere.
var nowhere = Options{Home: "/no/such/home", ConfigHome: "/no/such/home/.config", Dir: "/usr", Lasting: true}

func open(t testing.TB, file string) *policy.Document {
	t.Helper()
	doc, err := policy.OpenDocument(file)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func settings(s string) *policy.Document {
	doc, err := policy.ReadDocument("settings.json", []byte(s))
	if err != nil {
		panic(err)
	}
	return doc
}

func TestSamplesBecomeTheGoldenPolicies(t *testing.T) {
	for _, file := range samples(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			tr, err := Read(toolOf(t, file), open(t, file), nowhere)
			if err != nil {
				t.Fatal(err)
			}
			got := append(tr.Render(file), "\n// "+tr.Summary(file)+"\n"...)
			golden := "testdata/golden/" + strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)) + ".jsonc"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s differs; look at it with -update and git diff\n%s", golden, got)
			}
		})
	}
}

// What is read from the file that an import writes is the policy that holds when
// the settings are run as they are.
func TestAnImportedPolicyIsTheOneThatRuns(t *testing.T) {
	for _, file := range samples(t) {
		tr, err := Read(toolOf(t, file), open(t, file), nowhere)
		if err != nil {
			t.Fatal(err)
		}
		p, err := policy.Parse("imported", tr.Render(file))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		p.Schema = ""
		if got, want := policy.Marshal(*p, " "), policy.Marshal(tr.Policy, " "); !bytes.Equal(got, want) {
			t.Errorf("%s: from the written file\n%s\nwant\n%s", file, got, want)
		}
	}
}

func TestEveryEntryHasAPlaceOrAReason(t *testing.T) {
	for _, file := range samples(t) {
		tr, err := Read(toolOf(t, file), open(t, file), nowhere)
		if err != nil {
			t.Fatal(err)
		}
		check := func(key string, list []string) {
			for _, e := range list {
				o := policy.Origin{Key: key, Entry: e}
				if tr.Policy.Origins[o].Line == 0 && tr.Reasons[o] == "" {
					t.Errorf("%s: %s %q is from nowhere", file, key, e)
				}
			}
		}
		fs, n := tr.Policy.Filesystem, tr.Policy.Network
		check(keyAllowRead, fs.AllowRead)
		check(keyDenyRead, fs.DenyRead)
		check(keyAllowWrite, fs.AllowWrite)
		check(keyDenyWrite, fs.DenyWrite)
		check(keyAllowed, n.AllowedDomains)
		check(keyDenied, n.DeniedDomains)
		check("command.deny", tr.Policy.Command.Deny)
		check("ssh.allowedHosts", tr.Policy.SSH.AllowedHosts)
	}
}

func TestRecognise(t *testing.T) {
	const srtShape = `"network": {"allowedDomains": [], "deniedDomains": []}, "filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []}`
	for _, c := range []struct {
		file, text string
		want       Tool
	}{
		{"x.json", `{}`, ""},
		{"x.json", `{"filesystem": {"allowWrite": ["."]}, "network": {"allowedDomains": ["a.com"]}}`, ""},
		{"x.json", `{"extends": "code"}`, ""},
		{"x.json", `[]`, ""},
		{"x.json", `{"$schema": "https://x/docs/schema/fence.schema.json"}`, Fence},
		{"x.json", `{"$schema": "https://x/bailey.schema.json", "forceNewSession": true}`, ""},
		{"x.json", `{"forceNewSession": false}`, Fence},
		{"x.json", `{"filesystem": {"wslInterop": true}}`, Fence},
		{"x.json", `{"macos": {"gpu": true}}`, Fence},
		{"x.json", `{"extends": "@base"}`, Fence},
		{"x.json", `{"extends": ["code"], "forceNewSession": true}`, ""},
		{"x.json", `{"extends": "@user", "ignoreViolations": {}}`, ""},
		{"fence.json", `{"extends": "code"}`, Fence},
		{"/home/me/.fence.jsonc", `{"network": {}}`, Fence},
		{"/home/me/.config/fence/base.json", `{"network": {}}`, Fence},
		{"/etc/fence/company-base.json", `{"network": {}}`, Fence},
		{"/home/me/src/fence/policy.json", `{"network": {}}`, ""},
		{"ci/fence-strict.json", `{"network": {}}`, Fence},
		{"defences.json", `{"network": {}}`, ""},
		{"fence.json", `{"env": {"allow": ["X"]}}`, ""},
		{"fence.json", `{"network": {"rules": []}}`, ""},
		{"bailey.jsonc", `{"forceNewSession": true}`, ""},
		{"x.json", `{` + srtShape + `}`, SandboxRuntime},
		{"x.json", "{" + srtShape + "} // a comment", ""},
		{"x.json", `{"extends": "code", ` + srtShape + `}`, ""},
		{"x.json", `{"command": {}, ` + srtShape + `}`, ""},
		{"x.json", `{"enableWeakerNestedSandbox": true}`, SandboxRuntime},
		{"x.json", `{"network": {"tlsTerminate": {}}}`, SandboxRuntime},
		{"x.json", `{"credentials": {"envVars": []}}`, SandboxRuntime},
		{"/home/me/.srt-settings.json", `{"network": {}, "filesystem": {}}`, SandboxRuntime},
		{"x.json", `{"permissions": {"deny": []}}`, ClaudeCode},
		{"x.json", `{"env": {"A": "b"}, "sandbox": {"enabled": true}}`, ClaudeCode},
		{"x.json", `{"network": {"proxyUrl": "socks5://localhost:1"}}`, Greywall},
		{"greywall.json", `{"filesystem": {}}`, Greywall},
	} {
		doc, err := policy.ReadDocument(c.file, []byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if got := Recognise(doc); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.file, c.text, got, c.want)
		}
	}
}

func TestSamplesAreRecognised(t *testing.T) {
	for _, file := range samples(t) {
		if got, want := Recognise(open(t, file)), toolOf(t, file); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}

func TestMistakesNameTheirPlace(t *testing.T) {
	for _, c := range []struct {
		tool       Tool
		text, want string
	}{
		{Fence, "{\n \"filesystm\": {}}", `settings.json:2:2: unknown key "filesystm"; did you mean "filesystem"?`},
		{Fence, `{"filesystem": {"allowedDomains": []}}`, `it belongs in network`},
		{Fence, `{"network": {"allowedDomains": "x"}}`, `settings.json:1:32: network.allowedDomains is a string, want a list`},
		{Fence, "{\"network\": {\"allowedDomains\": [\"a.com\",\n  \"https://b.com\"]}}", `settings.json:2:3: network.allowedDomains: "https://b.com": a host is written without a scheme`},
		{Fence, `{"network": {"allowedDomains": ["a.com:443"]}}`, `without a port`},
		{Fence, `{"network": {"allowedDomains": ["@npm"]}}`, `has no groups`},
		{Fence, `{"network": {"defaultAction": "ask"}}`, `want one of deny, proxy`},
		{Fence, `{"network": {"defaultAction": "proxy"}}`, `settings.json:1:31: network.defaultAction "proxy" needs network.upstreamProxy`},
		{Fence, `{"filesystem": {"denyRead": ["~bob/x"]}}`, `settings.json:1:30: filesystem.denyRead: "~bob/x": only ~/ is known`},
		{Fence, `{"command": {"deny": ["!git"]}}`, `cannot begin with !`},
		{Fence, `{"devices": {"allow": ["/etc"]}}`, `below /dev`},
		{Fence, `{"extends": "no-such-template"}`, `settings.json:1:13: extends: there is no template no-such-template`},
		{Fence, `{"extends": "/no/such/file.json"}`, `settings.json:1:13: extends: lstat /no`},
		{SandboxRuntime, `{"filesystem": {"denyRead": [{"path": "/x"}]}}`, `settings.json:1:30: filesystem.denyRead: an entry is a path`},
		{SandboxRuntime, `{"filesystem": {"denyRead": [7]}}`, `an entry is a path`},
		{SandboxRuntime, `{"network": {"allowedDomains": ["a.com:x"]}}`, `want a port`},
		{SandboxRuntime, `{"network": {"httpProxyPort": 70000}}`, `want at most 65535`},
		{SandboxRuntime, `{"credentials": {"envVars": [{"name": "A-B", "mode": "deny"}]}}`, `bad variable name`},
		{SandboxRuntime, `{"credentials": {"files": [{"mode": "deny"}]}}`, `lacks the path`},
		{SandboxRuntime, `{"allowPty": null}`, `allowPty is null`},
		{Greywall, `{"network": {"proxyUrl": "localhost:1080"}}`, `a proxy is written as`},
		{Greywall, `{"network": {"proxyUrl": "http://u:hush@p:99999"}}`, `network.proxyUrl: the port of a proxy`},
		{ClaudeCode, `{"permissions": {"deny": "Read"}}`, `permissions.deny is a string, want a list`},
	} {
		_, err := Read(c.tool, settings(c.text), nowhere)
		var e *policy.Error
		if !errors.As(err, &e) || e.Line == 0 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q and a place", c.tool, c.text, err, c.want)
		}
	}
}

// A file that forbids what Bailey cannot forbid does not run.
func TestRestrictionsThatCannotBeHeldAreRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"enableWeakerNestedSandbox": true, "network": {"mitmProxy": {"socketPath": "/x", "domains": ["a.com"]}}}`, "network.mitmProxy"},
		{`{"network": {"stripResponseHeaders": ["set-cookie"], "strictAllowlist": true}}`, "network.stripResponseHeaders"},
		{`{"network": {"refuseOpaqueTunnels": true}}`, "network.refuseOpaqueTunnels"},
		{`{"network": {"requireHostMatch": true}}`, "network.requireHostMatch"},
		{`{"network": {"deniedResolvedAddresses": ["10.0.0.0/8", "198.51.100.0/24"]}}`, "198.51.100.0/24"},
		{`{"network": {"deniedResolvedAddresses": ["0.0.0.0/0"]}}`, "0.0.0.0/0"},
		{`{"network": {"parentProxy": {"http": "http://a:1", "https": "http://b:1"}}}`, "the same"},
		{`{"forceNewSession": true, "ssh": {"deniedHosts": ["prod-*"]}}`, "ssh.deniedHosts prod-*"},
		{`{"forceNewSession": true, "command": {"deny": ["git push | sh"]}}`, "command.deny git push | sh"},
	} {
		_, err := Translator(nowhere)(settings(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "settings.json:1:") {
			t.Errorf("%s: %v, want %q and a place", c.text, err, c.want)
		}
	}
}

func TestOtherAgentsSettingsSayHowToImportThem(t *testing.T) {
	for text, want := range map[string]string{
		`{"permissions": {}}`:                     "bailey import --claude settings.json",
		`{"network": {"dnsAddr": "localhost:1"}}`: "bailey import --greywall settings.json",
	} {
		_, err := Translator(nowhere)(settings(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if tr, err := Translator(nowhere)(settings(`{"filesystem": {}}`)); tr != nil || err != nil {
		t.Errorf("a policy: %v, %v", tr, err)
	}
}

// In a policy a leading ! takes an inherited entry back; no other tool means that
// by it.
func TestNoEntryTakesAnotherBack(t *testing.T) {
	for _, tool := range []Tool{Fence, SandboxRuntime, Greywall} {
		tr, err := Read(tool, settings(`{"filesystem": {"denyRead": ["x", "!x"], "denyWrite": ["!y"]}}`), nowhere)
		if err != nil {
			t.Fatal(err)
		}
		merged := policy.Merge(policy.Policy{}, tr.Policy).Filesystem
		if !slices.Contains(merged.DenyRead, "x") || !slices.Contains(merged.DenyRead, "./!x") || !slices.Contains(merged.DenyWrite, "./!y") {
			t.Errorf("%s: %q, %q", tool, merged.DenyRead, merged.DenyWrite)
		}
	}
}

func TestEveryTemplateOfFencesCanBeExtended(t *testing.T) {
	files, err := templates.ReadDir("templates")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d templates, %v", len(files), err)
	}
	for _, f := range files {
		for _, name := range []string{f.Name(), strings.TrimSuffix(f.Name(), ".json")} {
			tr, err := Read(Fence, settings(`{"extends": "`+name+`", "filesystem": {"denyRead": ["/opt/mine"]}}`), nowhere)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if !slices.Contains(tr.Policy.Filesystem.AllowWrite, ".") || !slices.Contains(tr.Policy.Filesystem.DenyRead, "/opt/mine") {
				t.Errorf("%s: %+v", name, tr.Policy.Filesystem)
			}
			if err := tr.refuse(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
