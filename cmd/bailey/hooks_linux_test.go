package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/hooks"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestHooksAreInstalledOnceAndRemoved(t *testing.T) {
	b := newBench(t)
	const before = "{\n  // mine\n  \"model\": \"x\"\n}\n"
	real := b.write("settings.json", before, 0o640)
	file := filepath.Join(b.home, ".claude/settings.json")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, file); err != nil {
		t.Fatal(err)
	}
	got := b.run("hooks", "install", "--claude")
	if got.status != 0 || !strings.Contains(got.stderr, "wrote "+file) {
		t.Errorf("%+v", got)
	}
	after, _ := os.ReadFile(real)
	if !strings.Contains(string(after), "// mine") || !strings.Contains(string(after), "hooks run --claude || exit 2") {
		t.Errorf("the file: %s", after)
	}
	if got := b.run("hooks", "install", "--claude"); got.status != 0 || !strings.Contains(got.stderr, "has the hook already") {
		t.Errorf("again: %+v", got)
	}
	if info, err := os.Lstat(file); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info, err)
	}
	if info, err := os.Stat(real); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file is %v, %v", info, err)
	}
	if got := b.run("hooks", "uninstall", "--claude"); got.status != 0 {
		t.Errorf("%+v", got)
	}
	if left, _ := os.ReadFile(real); string(left) != before {
		t.Errorf("left is %q", left)
	}
	if got := b.run("hooks", "uninstall", "--claude"); got.status != 0 || !strings.Contains(got.stderr, "has no hook of Bailey's") {
		t.Errorf("again: %+v", got)
	}
}

func TestHooksOfEveryAgent(t *testing.T) {
	b := newBench(t)
	for agent, file := range map[string]string{
		"claude": ".claude/settings.json", "codex": ".codex/hooks.json", "cursor": ".cursor/hooks.json",
		"opencode": ".config/opencode/plugins/bailey.js", "windsurf": ".codeium/windsurf/hooks.json",
	} {
		path := filepath.Join(b.home, file)
		printed := b.run("-q", "hooks", "print", "--"+agent)
		b.run("-q", "hooks", "install", "--"+agent).want(t, 0, "", "")
		if data, err := os.ReadFile(path); err != nil || string(data) != printed.stdout {
			t.Errorf("%s: %v, installed is\n%s\nprinted was %+v", agent, err, data, printed)
		}
		b.run("-q", "hooks", "uninstall", "--"+agent).want(t, 0, "", "")
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: %s is left", agent, path)
		}
		named := filepath.Join(b.dir, agent)
		got := b.run("hooks", "install", "--"+agent, named)
		if _, err := os.Stat(named); err != nil {
			t.Error(err)
		}
		// What it says.
		_, undo, _ := strings.Cut(got.stderr, "to undo: bailey ")
		undo, _, _ = strings.Cut(undo, "\n")
		b.run(append([]string{"-q"}, strings.Fields(undo)...)...).want(t, 0, "", "")
		if _, err := os.Stat(named); err == nil {
			t.Errorf("%s: %q leaves %s", agent, undo, named)
		}
	}
	b.write("broken", `{"hooks": 1}`, 0o644)
	b.run("hooks", "install", "--claude", "broken").wantError(t, "hooks is not an object; it was left as it is")
	b.run("hooks", "install").wantError(t, "usage: bailey hooks")
	b.run("hooks", "install", "--claude", "--codex", "x").wantError(t, "a file goes with")
}

// A status other than 2 is taken for consent by most agents.
func TestAHookThatFailsRefuses(t *testing.T) {
	b := newBench(t)
	for _, args := range [][]string{{"--claude"}, {"--claude", "x"}, {}, {"--claude", "--codex"}, {"--nonsense"}} {
		if got := b.runWith([]byte(`{"tool_input": {"command": "ls"}`), append([]string{"hooks", "run"}, args...)...); got.status == 0 {
			t.Errorf("%q: %+v", args, got)
		}
	}
	for _, target := range hooks.Targets() {
		if got := b.runWith([]byte("garbage"), "hooks", "run", "--"+string(target)); got.status != 2 || got.stdout != "" {
			t.Errorf("%s: %+v", target, got)
		}
	}
	// As the agent runs it, with a program that is gone.
	text, err := hooks.Windsurf.Snippet("/no such/bailey")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), `"command": "`)
	line, _, _ := strings.Cut(rest, `"`)
	cmd := exec.Command("sh", "-c", line)
	_ = cmd.Run() // its status says it all
	if status := cmd.ProcessState.ExitCode(); status != 2 {
		t.Errorf("%s: status %d", line, status)
	}
}

func TestWhatAHookAnswersRunsInASandbox(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	b := newBench(t)
	call := `{"command": "echo \"it's $BAILEY\"; ls -A ~"}`
	got := b.runWith([]byte(call), "hooks", "run", "--opencode")
	line, _ := strings.CutPrefix(strings.TrimSpace(got.stdout), `{"command":"`)
	line = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(strings.TrimSuffix(line, `"}`))
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir, cmd.Env = b.dir, b.env
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "it's 1\n" {
		t.Errorf("%s: %q, %v", line, out, err)
	}
	// Inside, the command is in a sandbox already.
	inside := b.runWith([]byte(call), "--allow-read", testenv.Binary(t, "bailey"), "--", testenv.Binary(t, "bailey"), "hooks", "run", "--opencode")
	if inside.status != 0 || strings.Contains(inside.stdout, " -c ") {
		t.Errorf("inside: %+v", inside)
	}
}

// Agents that are started without a sandbox, with the hook installed, are asked
// to run a command by a model of the test's own.
func TestInstalledHooksConfineCommands(t *testing.T) {
	for _, test := range []struct {
		agent, key, host string
		args             []string
	}{
		{"claude", "ANTHROPIC_API_KEY", "api.anthropic.com", []string{"-p", "look around", "--allowedTools", "Bash"}},
		{"codex", "CODEX_API_KEY", "api.openai.com", []string{"exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", "-c", `sandbox_mode="danger-full-access"`, "look around"}},
		{"opencode", "ANTHROPIC_API_KEY", "api.anthropic.com", []string{"run", "-m", "anthropic/claude-sonnet-4-5", "look around"}},
	} {
		t.Run(test.agent, func(t *testing.T) {
			requireAgent(t, test.agent)
			testenv.Requires(t, testenv.NoRace)
			inWorld(t, func(t *testing.T, w *world) {
				if err := os.WriteFile(filepath.Join(w.home, "secret"), []byte("the-secret-is-out\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				w.withAgent(test.agent)
				if test.agent == "opencode" {
					w.pretendPluginLibrary()
				}
				var heard []string
				w.serveModel(t, &model{
					command: `echo "in a sandbox: [$BAILEY]"; sh -c 'cat "$HOME/secret"'; true`,
					heard:   func(text string) { w.note(&heard, text) },
				}, test.host)
				w.env = append(w.env, test.key+"=sk-0123456789", "NODE_EXTRA_CA_CERTS="+filepath.Join(w.home, "models.pem"),
					"TMPDIR="+w.home, "CLAUDE_CODE_TMPDIR="+w.home)
				run := func() string {
					cmd := exec.Command(filepath.Join(agentDir(test.agent), test.agent), test.args...)
					cmd.Dir, cmd.Env = w.dir, w.env
					out, err := cmd.CombinedOutput()
					if err != nil || !strings.Contains(string(out), "the model says hello") {
						t.Errorf("%v: %s", err, out)
					}
					return strings.Join(w.take(&heard), "\n")
				}
				// opencode is asked once: its first start takes a minute here.
				if test.agent != "opencode" {
					if all := run(); !strings.Contains(all, "in a sandbox: []") || !strings.Contains(all, "the-secret-is-out") {
						t.Errorf("without the hook the model heard %s", all)
					}
				}
				w.run("-q", "hooks", "install", "--"+test.agent).want(t, 0, "", "")
				if all := run(); !strings.Contains(all, "in a sandbox: [1]") || strings.Contains(all, "the-secret-is-out") {
					t.Errorf("with the hook the model heard %s", all)
				}
			})
		})
	}
}

// pretendPluginLibrary keeps opencode from fetching a library for plugins, which
// Bailey's does not use, from a registry that is not in this world.
func (w *world) pretendPluginLibrary() {
	w.t.Helper()
	dir := filepath.Join(w.home, ".config/opencode")
	const version = `"version": "1.18.33"`
	const needs = `{"dependencies": {"@opencode-ai/plugin": "1.18.33"}}`
	for name, text := range map[string]string{
		"package.json":      needs,
		"package-lock.json": `{"lockfileVersion": 3, "packages": {"": ` + needs + `, "node_modules/@opencode-ai/plugin": {` + version + `}}}`,
		"node_modules/@opencode-ai/plugin/package.json": `{"name": "@opencode-ai/plugin", ` + version + `}`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
}
