package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

const claudeSettings = `{"permissions": {"deny": ["Bash(curl:*)", "WebFetch"], "allow": ["WebFetch(domain:a.com)"]}, "env": {"MY_TOKEN": "s3cr3t"}}`

func TestImportPrintsAPolicyAndWhatItLeftOut(t *testing.T) {
	b := newBench(t)
	b.write("settings.json", claudeSettings, 0o644)
	for _, args := range [][]string{{"--claude", "settings.json"}, {"settings.json"}, {"settings.json", "--claude"}} {
		got := b.run(append([]string{"import"}, args...)...)
		p, err := policy.Parse("stdout", []byte(got.stdout))
		if got.status != 0 || err != nil {
			t.Fatalf("%q: %+v, %v", args, got, err)
		}
		if len(p.Command.Deny) != 1 || p.Command.Deny[0] != "curl" || len(p.Network.Rules) != 1 || p.Network.Rules[0].Host != "a.com" {
			t.Errorf("%q: %+v", args, p)
		}
		for _, want := range []string{"not carried: " + b.dir + "/settings.json:1:43: WebFetch: ", "env.MY_TOKEN", "stricter here: "} {
			if !strings.Contains(got.stderr, want) {
				t.Errorf("%q: stderr %q, want %q", args, got.stderr, want)
			}
		}
		if strings.Contains(got.stdout+got.stderr, "s3cr3t") {
			t.Errorf("%q: a secret was copied", args)
		}
	}
	if got := b.run("-q", "import", "settings.json"); strings.Contains(got.stderr, "stricter") || !strings.Contains(got.stderr, "not carried") {
		t.Errorf("quietly: %q", got.stderr)
	}
}

func TestImportSavesToANewFileOnly(t *testing.T) {
	b := newBench(t)
	b.write("settings.json", claudeSettings, 0o644)
	own := filepath.Join(b.home, ".config", "bailey", "bailey.jsonc")
	for _, c := range []struct {
		args []string
		file string
	}{{[]string{"--save"}, own}, {[]string{"--save", "--project"}, filepath.Join(b.dir, "bailey.jsonc")}} {
		args := append([]string{"import", "--claude", "settings.json"}, c.args...)
		if got := b.run(args...); got.status != 0 || got.stdout != "" || !strings.Contains(got.stderr, "wrote "+c.file) {
			t.Errorf("%q: %+v", args, got)
		}
		first, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := policy.Parse(c.file, first); err != nil {
			t.Error(err)
		}
		b.run(args...).wantError(t, c.file+" is there already")
		if again, _ := os.ReadFile(c.file); string(again) != string(first) {
			t.Errorf("%s was written again", c.file)
		}
	}
	if got := b.run("config", "validate"); got.status != 0 {
		t.Errorf("the saved policy: %+v", got)
	}
}

func TestImportFindsTheToolsOwnFile(t *testing.T) {
	b := newBench(t)
	if err := os.MkdirAll(filepath.Join(b.home, ".config", "fence"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string]string{".srt-settings.json": "--srt", ".config/fence/fence.json": "--fence"} {
		b.run("import", args).wantError(t, "has no settings where it looks for them, in ", name, "name the file")
		if err := os.WriteFile(filepath.Join(b.home, name), []byte(`{"filesystem": {"denyRead": ["/opt/`+args[2:]+`"]}}`), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := b.run("import", args); got.status != 0 || !strings.Contains(got.stdout, "/opt/"+args[2:]) {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

func TestImportRefusesWhatItDoesNotUnderstand(t *testing.T) {
	b := newBench(t)
	b.write("x.json", `{"filesystem": {"allowWrite": ["."]}}`, 0o644)
	b.write("bad.json", "{\n\"netwrk\": {}}", 0o644)
	b.run("import").wantError(t, "usage: bailey import")
	b.run("import", "x.json").wantError(t, "it does not tell which tool it is of", "--fence")
	b.run("import", "--fence", "--srt", "x.json").wantError(t, "bailey: --srt: one file is of one tool; leave out the others")
	b.run("import", "--fence", "x.json", "--project").wantError(t, "usage")
	b.run("import", "--fence", "bad.json").wantError(t, "bad.json:2:1: unknown key", "network")
	b.run("import", "--fence", "missing.json").wantError(t, "missing.json: no such file or directory; name a file with settings of Fence")
	b.run("-s", "bad.json", "--", "true").wantError(t, "bad.json:2:1: unknown key")
	b.write("claude.json", claudeSettings, 0o644)
	b.run("-s", "claude.json", "--", "true").wantError(t, "settings of Claude Code", "bailey import --claude")
	b.write("srt.json", "{\"network\": {\n  \"mitmProxy\": {\"socketPath\": \"/x\", \"domains\": [\"a.com\"]}}}", 0o644)
	b.run("-s", "srt.json", "--", "true").wantError(t, "srt.json:2:", "network.mitmProxy")
	b.run("config", "validate", "srt.json").wantError(t, "srt.json:2:", "network.mitmProxy")
}
