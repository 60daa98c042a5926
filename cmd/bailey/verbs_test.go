package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestHelpBeginsWithExamples(t *testing.T) {
	b := newBench(t)
	for _, args := range [][]string{{"--help"}, {"-h"}, {"help"}, {"-h", "ls"}} {
		got := b.run(args...)
		if got.status != 0 || got.stderr != "" {
			t.Errorf("%q: status %d, stderr %q", args, got.status, got.stderr)
		}
		example, flags := strings.Index(got.stdout, "bailey -- npm test"), strings.Index(got.stdout, "Flags")
		if example < 0 || flags < example {
			t.Errorf("%q: an example at %d, flags at %d", args, example, flags)
		}
	}
	if got := b.run("help", "trust"); got.status != 0 || !strings.Contains(got.stdout, "--revoke FILE") {
		t.Errorf("help trust: %+v", got)
	}
	if got := b.run("trust", "--help"); got.status != 0 || !strings.Contains(got.stdout, "--revoke FILE") {
		t.Errorf("trust --help: %+v", got)
	}
	b.run("help", "nothing").wantError(t, "no verb nothing")
	b.run().wantError(t, "no command", "bailey --help")
}

func TestVersion(t *testing.T) {
	b := newBench(t)
	for _, args := range [][]string{{"-v"}, {"--version"}, {"version"}} {
		if got := b.run(args...); got.status != 0 || !strings.HasPrefix(got.stdout, "bailey ") {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

func TestAShadowedProgramGetsAHint(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	bin := filepath.Join(b.home, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config", "man"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho the program\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.env = append(b.env, "PATH="+bin+":/usr/bin:/bin")
	if got := b.run("config", "show"); got.status != 0 || !strings.HasPrefix(got.stderr, "bailey: running the verb 'config'; for the program use: bailey -- config\n") {
		t.Errorf("status %d, stderr %q", got.status, got.stderr)
	}
	b.run("--", "config").want(t, 0, "the program\n", "")
	b.run("man", "ls").wantError(t, "running the verb 'man'; for the program use: bailey -- man\n", "man takes no argument ls")
	if got := b.run("man"); got.status != 0 || got.stderr != "" {
		t.Errorf("the page: status %d, stderr %q", got.status, got.stderr)
	}
}

func TestConfigShowPrintsAPolicyThatParses(t *testing.T) {
	b := newBench(t)
	b.write("bailey.jsonc", `{"extends": "none", "filesystem": {"allowRead": ["/usr"]}}`, 0o644)
	got := b.run("config", "show")
	if got.status != 0 {
		t.Fatalf("%+v", got)
	}
	if _, err := policy.Parse("stdout", []byte(got.stdout)); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"bailey: policy: preset default\n", "bailey.jsonc (not trusted: only takes away)\n", "bound: every path must also be granted by", `"/usr"`} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("stderr %q does not say %q", got.stderr, want)
		}
	}
	got = b.run("--policy", `{"network": {"upstreamProxy": "http://me:secret@127.0.0.1:8080"}}`, "config", "show")
	if strings.Contains(got.stdout+got.stderr, "secret") || !strings.Contains(got.stdout, `"http://127.0.0.1:8080"`) ||
		!strings.Contains(got.stderr, "network.upstreamProxy is shown without its user and password\n") {
		t.Errorf("a password: %+v", got)
	}
}

func TestConfigInitWritesAValidFileOnce(t *testing.T) {
	b := newBench(t)
	if got := b.run("config", "init"); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	if got := b.run("config", "validate"); got.status != 0 {
		t.Errorf("%+v", got)
	}
	if got := b.run("config", "path"); got.stdout != filepath.Join(b.dir, "bailey.jsonc")+"\n" {
		t.Errorf("%+v", got)
	}
	b.run("config", "init").wantError(t, "there already")
}

func TestConfigValidateNamesThePlace(t *testing.T) {
	b := newBench(t)
	b.run("config", "validate").wantError(t, "no policy file")
	b.write("a.jsonc", "{\n  \"filesytem\": {}\n}\n", 0o644)
	b.write("b.jsonc", "{\n  \"extends\": \"nowhere\"\n}\n", 0o644)
	b.run("config", "validate", "a.jsonc", "b.jsonc").wantError(t, "a.jsonc:2:3: ", "filesystem", "b.jsonc:2:")
	if err := os.Symlink("loop.jsonc", filepath.Join(b.dir, "loop.jsonc")); err != nil {
		t.Fatal(err)
	}
	b.run("-s", "loop.jsonc", "true").wantError(t, "loop.jsonc: its symbolic links ")
}

// What another system, or a machine with other files, can hold is no mistake.
func TestConfigValidateRefusesWhatThisSystemCannotHold(t *testing.T) {
	b := newBench(t)
	b.write("a.jsonc", "{\n  \"devices\": {\"mode\": \"host\"},\n  \"runtime\": \"native\", \"filesystem\": {\"denyRead\": [\"/proc/*/maps\"]}\n}\n", 0o644)
	places := []string{"a.jsonc:2:23: devices.mode host: ", "a.jsonc:3:52: filesystem.denyRead /proc/*/maps: "}
	b.run("config", "validate", "a.jsonc").wantError(t, places...)
	b.run("-s", "a.jsonc", "true").wantError(t, places...)
	b.run("-s", "a.jsonc", "--memory", "4K", "true").wantError(t, "command line: resources.memory 4K: ")
	b.write("b.jsonc", `{"macos": {"mach": {"lookup": ["a"]}}, "filesystem": {"allowWrite": ["/nowhere/at/all"]}}`, 0o644)
	if got := b.run("config", "validate", "b.jsonc"); got.status != 0 || !strings.Contains(got.stderr, "is valid") {
		t.Errorf("%+v", got)
	}
	b.run("-s", "b.jsonc", "true").wantError(t, "b.jsonc:1:70: filesystem.allowWrite /nowhere/at/all: does not exist")
}

func TestConfigSchemaIsJSON(t *testing.T) {
	b := newBench(t)
	got := b.run("config", "schema")
	var v map[string]any
	if err := json.Unmarshal([]byte(got.stdout), &v); err != nil || v["$schema"] == nil {
		t.Errorf("%v, %v", v["$schema"], err)
	}
	b.run("config").wantError(t, "usage: bailey config ")
	b.run("config", "shw").wantError(t, "usage: bailey config ")
}

func TestPresets(t *testing.T) {
	b := newBench(t)
	got := b.run("presets")
	for _, name := range policy.PresetNames() {
		if !strings.Contains(got.stdout, name+" ") {
			t.Errorf("%s is not listed", name)
		}
	}
	if got := b.run("presets", "show", "locked"); got.status != 0 || !strings.HasPrefix(got.stdout, "// locked: ") {
		t.Errorf("%+v", got)
	}
	b.run("presets", "show", "lockd").wantError(t, "did you mean locked?")
}

func TestExplainForPeopleAndPrograms(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	if got := b.run("explain", "--", "make", "-j"); got.status != 0 || !strings.Contains(got.stdout, "make -j") || !strings.Contains(got.stdout, b.dir) {
		t.Errorf("%+v", got)
	}
	got := b.run("explain", "--json", "ls")
	var s spec.Spec
	if err := json.Unmarshal([]byte(got.stdout), &s); err != nil || len(s.Argv) != 1 || s.Argv[0] != "ls" {
		t.Errorf("%v: %+v", err, got)
	}
	const proxied = `{"network": {"allowedDomains": ["a.example"], "upstreamProxy": "http://u:hush@proxy.example:1"}}`
	if got := b.run("--policy", proxied, "explain", "--json", "ls"); strings.Contains(got.stdout, "hush") || !strings.Contains(got.stdout, "http://proxy.example:1") {
		t.Errorf("%+v", got)
	}
	if got := b.run("explain", "--json", "-c", "x y"); got.status != 0 || !strings.Contains(got.stdout, `"x y"`) {
		t.Errorf("%+v", got)
	}
}

func TestTrust(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.run("trust").wantError(t, "no bailey.jsonc")
	file := b.write("bailey.jsonc", `{"env": {"allow": ["MY_TOKEN"]}}`, 0o644)
	b.env = append(b.env, "MY_TOKEN=abc")
	show := func() string { return b.run("-q", "-c", "echo $MY_TOKEN").stdout }
	if got := show(); got != "\n" {
		t.Errorf("an untrusted file granted: %q", got)
	}
	got := b.run("trust")
	if got.status != exitOwn || !strings.Contains(got.stdout, "MY_TOKEN") || !strings.Contains(got.stderr, "nobody to ask") {
		t.Errorf("without a terminal: %+v", got)
	}
	if got := b.run("trust", "--yes"); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	if got := show(); got != "abc\n" {
		t.Errorf("a trusted file did not grant: %q", got)
	}
	if got := b.run("trust", "--list"); !strings.Contains(got.stdout, file) {
		t.Errorf("%+v", got)
	}
	b.write("bailey.jsonc", `{"env": {"allow": ["MY_TOKEN", "MORE"]}}`, 0o644)
	if got := show(); got != "\n" {
		t.Errorf("a changed file granted: %q", got)
	}
	if got := b.run("--", "true"); !strings.Contains(got.stderr, "changed since it was trusted") {
		t.Errorf("%+v", got)
	}
	if got := b.run("trust", "-y"); got.status != 0 || !strings.Contains(got.stdout, "\n  + ") || !strings.Contains(got.stdout, "MORE") {
		t.Errorf("the difference is not shown: %+v", got)
	}
	if got := b.run("trust", "--revoke", "bailey.jsonc"); got.status != 0 {
		t.Errorf("%+v", got)
	}
	b.run("trust", "--revoke", "bailey.jsonc").wantError(t, "is not trusted")
	if got := show(); got != "\n" {
		t.Errorf("a revoked file granted: %q", got)
	}
}

func TestManualPageIsCurrent(t *testing.T) {
	file := filepath.Join(testenv.ModuleRoot(t), "docs/man/bailey.1")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(data) != manPage() {
		t.Errorf("%s is stale: go generate ./cmd/bailey", file)
	}
}

func TestManualPageFormats(t *testing.T) {
	testenv.Requires(t, testenv.Program("man"))
	cmd := exec.Command("man", "--warnings", "-l", "-")
	cmd.Stdin = strings.NewReader(manPage())
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "MANWIDTH=100", "TERM=dumb"}
	var warnings strings.Builder
	cmd.Stderr = &warnings
	out, err := cmd.Output()
	if err != nil || warnings.Len() > 0 {
		t.Fatalf("%v: %s", err, warnings.String())
	}
	if !strings.Contains(string(out), "--allow-read ~/data") {
		t.Errorf("an example cannot be copied from:\n%s", out)
	}
}
