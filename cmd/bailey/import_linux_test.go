package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// foreignFiles are the same wishes in the words of two tools, which run
// unchanged.
func foreignFiles(network, filesystem string) map[string]string {
	return map[string]string{
		"fence.json": `{"forceNewSession": true, "network": {` + network + `}, "filesystem": {` + filesystem + `}}`,
		"srt.json":   `{"ignoreViolations": {}, "network": {` + network + `}, "filesystem": {` + filesystem + `}}`,
	}
}

// importBench has a place of its own for the directories that Bailey makes where
// other tools' settings grant everything around them.
func importBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.env = append(b.env, "XDG_RUNTIME_DIR="+t.TempDir())
	return b
}

func TestOtherToolsSettingsHoldForFiles(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	for name, text := range foreignFiles(``, `"denyRead": ["~/private", "**/.env"], "allowWrite": [".", "~/shared"], "denyWrite": ["vendor", "*.pem"]`) {
		b := importBench(t)
		b.write(name, text, 0o644)
		b.inHome("notes", "readable\n")
		for _, dir := range []string{"home/private", "home/shared", "home/.ssh", "project/vendor"} {
			if err := os.Mkdir(filepath.Join(filepath.Dir(b.home), dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		b.inHome("private/diary", "hidden\n")
		b.inHome(".ssh/id_rsa", "hidden\n")
		b.write(".env", "hidden\n", 0o644)
		b.write("vendor/code", "as it was\n", 0o644)
		try := func(line string, status int, stdout string) {
			t.Helper()
			if got := b.run("-s", name, "-c", line); got.status != status || got.stdout != stdout {
				t.Errorf("%s: %s: %+v, want status %d and %q", name, line, got, status, stdout)
			}
		}
		try("cat ~/notes /etc/hostname >/dev/null && cat ~/notes", 0, "readable\n")
		try("cat ~/private/diary", 1, "")
		try("cat ~/.ssh/id_rsa", 1, "")
		try("cat .env", 1, "")
		try("echo x > new && cat new", 0, "x\n")
		try("echo x > ~/shared/new && cat ~/shared/new", 0, "x\n")
		try("echo x > ~/notes", 1, "")
		try("echo x > vendor/code; cat vendor/code", 0, "as it was\n")
		try("echo x > key.pem", 1, "")
		try("mv vendor other", 1, "")
		// The settings are the policy of the next command.
		try("echo '{}' > "+name, 1, "")
		try("rm "+name, 1, "")
	}
}

func TestOtherToolsSettingsAreNoted(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	for name, text := range foreignFiles(``, `"allowWrite": ["."]`) {
		b := importBench(t)
		b.write(name, text, 0o644)
		got := b.run("--settings", name, "--", "true")
		lines := strings.Split(strings.TrimSpace(got.stderr), "\n")
		if got.status != 0 || len(lines) != 1 || !strings.HasPrefix(lines[0], "bailey: "+name+": settings of ") ||
			!strings.Contains(lines[0], "stricter here: ") || !strings.Contains(lines[0], "no effect: ") {
			t.Errorf("%s: %+v, want one line about what is stricter and what has no effect", name, got)
		}
		b.run("-q", "-s", name, "--", "true").want(t, 0, "", "")
		b.env = append(b.env, "BAILEY_SETTINGS="+name)
		if got := b.run("--", "true"); got.status != 0 || !strings.Contains(got.stderr, "settings of ") {
			t.Errorf("%s by BAILEY_SETTINGS: %+v", name, got)
		}
	}
}

// A relative path means the working directory there, not the repository.
func TestOtherToolsPathsStartInTheWorkingDirectory(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	b := importBench(t)
	for _, dir := range []string{".git", "sub"} {
		if err := os.Mkdir(filepath.Join(b.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := b.inHome("fence.json", `{"filesystem": {"allowWrite": ["."]}}`)
	if got := b.run("-s", file, "--dir", "sub", "-c", "echo x > inside && ! echo x > ../outside"); got.status != 0 {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "outside")); err == nil {
		t.Error("the directory above was written")
	}
}

func TestOtherToolsDenyCommands(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1), testenv.Program("git"))
	b := importBench(t)
	b.write("fence.json", `{"filesystem": {"allowWrite": ["."]}, "command": {"deny": ["git push"], "allow": ["git push origin docs"]}}`, 0o644)
	for line, denied := range map[string]bool{
		"git push": true, "true && git push origin main": true, "x=push; git $x": true, "git version": false,
		"dd if=/dev/null of=/dev/null": true, "shutdown now": true,
	} {
		got := b.run("-s", "fence.json", "-c", line)
		if refused := strings.Contains(got.stderr, "is refused by") || strings.Contains(got.stderr, "denied: "); refused != denied || denied == (got.status == 0) {
			t.Errorf("%s: %+v, want denied %v", line, got, denied)
		}
	}
	if got := b.run("-s", "fence.json", "-c", "git push origin docs"); strings.Contains(got.stderr, "refused") {
		t.Errorf("an allowed exception: %+v", got)
	}
}

func TestOtherToolsGrantEveryPortOfAHost(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		// The names of this world lead to loopback, which has to be granted too.
		network := `"allowedDomains": ["good.example", "127.0.0.1"], "deniedDomains": ["also.good.example"]`
		for name, text := range foreignFiles(network, `"allowWrite": ["."]`) {
			w.write(name, text, 0o644)
			for _, variables := range []bool{true, false} {
				call := func(url string) result {
					argv := []string{"curl", "-sSf", "--max-time", "20", url}
					if !variables {
						argv = plainly(argv...)
					}
					return w.run(append([]string{"-q", "-s", name, "--"}, argv...)...)
				}
				w.heard()
				for _, url := range []string{"http://good.example/x", "http://good.example:8080/x"} {
					if got := call(url); got.status != 0 || !strings.HasPrefix(got.stdout, "answer from good.example") {
						t.Errorf("%s, variables %v: %s: %+v", name, variables, url, got)
					}
				}
				if _, served := w.heard(); len(served) != 2 {
					t.Errorf("%s, variables %v: the server heard %q", name, variables, served)
				}
				for _, url := range []string{"http://bad.example/x", "http://also.good.example:8080/x"} {
					if got := call(url); got.status == 0 {
						t.Errorf("%s, variables %v: %s: %+v", name, variables, url, got)
					}
				}
				if questions, served := w.heard(); len(served) > 0 || slices.Contains(questions, "bad.example.") {
					t.Errorf("%s, variables %v: questions %q, requests %q", name, variables, questions, served)
				}
			}
		}
	})
}

func TestOtherToolsGrantUnixSockets(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1), testenv.Program("curl"))
	b := importBench(t)
	for _, name := range []string{"granted", "other"} {
		l, err := net.Listen("unix", filepath.Join(b.home, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
	}
	for name, text := range foreignFiles(`"allowUnixSockets": ["~/granted"]`, `"allowWrite": ["."]`) {
		b.write(name, text, 0o644)
		call := func(socket string) result {
			return b.run("-q", "-s", name, "--", "curl", "-sS", "--max-time", "20", "--unix-socket", filepath.Join(b.home, socket), "http://x/")
		}
		if got := call("granted"); got.status != 0 || got.stdout != "granted" {
			t.Errorf("%s: %+v", name, got)
		}
		if got := call("other"); got.status == 0 || got.stdout != "" {
			t.Errorf("%s: the other socket: %+v", name, got)
		}
	}
}

// What an import writes does, as a policy, what the settings do.
func TestAnImportedPolicyRuns(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	b := importBench(t)
	b.write("fence.json", `{"filesystem": {"denyRead": ["~/private"], "allowWrite": ["."], "denyWrite": ["fixed"]}, "command": {"deny": ["git push"]}}`, 0o644)
	b.write("fixed", "as it was\n", 0o644)
	b.inHome("private", "hidden\n")
	got := b.run("import", "fence.json")
	b.write("own.jsonc", got.stdout, 0o644)
	const line = "cat ~/private; echo x > fixed; cat fixed; echo y > new && cat new"
	direct, imported := b.run("-q", "-s", "fence.json", "-c", line), b.run("-q", "-s", "own.jsonc", "-c", line)
	if direct.stdout != "as it was\ny\n" || direct != imported {
		t.Errorf("direct %+v, imported %+v", direct, imported)
	}
	if got := b.run("-s", "own.jsonc", "--", "git", "push"); got.status != exitNotRunnable || !strings.Contains(got.stderr, "git push") {
		t.Errorf("%+v", got)
	}
}

// The samples have the shape of those in the tools' own documentation, and every
// key that there is.
func TestOtherToolsSamplesRun(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	b := importBench(t)
	for _, tool := range []string{"fence", "srt"} {
		samples, err := filepath.Glob(filepath.Join(testenv.ModuleRoot(t), "internal/foreign/testdata", tool+"-*.json*"))
		if err != nil || len(samples) < 5 {
			t.Fatalf("%d samples of %s, %v", len(samples), tool, err)
		}
		for _, file := range samples {
			if got := b.run("-s", file, "--", "true"); got.status != 0 || !strings.Contains(got.stderr, "settings of ") {
				t.Errorf("%s: %+v", file, got)
			}
		}
	}
}

// Every file that docs/import.md shows works as it says.
func TestExampleSettingsWork(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	examples := filepath.Join(testenv.ModuleRoot(t), "examples", "settings")
	b := importBench(t)
	for _, name := range []string{"fence.json", "srt-settings.json"} {
		if got := b.run("-s", filepath.Join(examples, name), "--", "true"); got.status != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, args := range [][]string{{"fence.json"}, {"srt-settings.json"}, {"--claude", "claude-settings.json"}, {"--greywall", "greywall.json"}} {
		args[len(args)-1] = filepath.Join(examples, args[len(args)-1])
		got := b.run(append([]string{"import"}, args...)...)
		b.write("imported.jsonc", got.stdout, 0o644)
		if got.status != 0 {
			t.Errorf("import %q: %+v", args, got)
		}
		if got := b.run("-s", "imported.jsonc", "--", "true"); got.status != 0 {
			t.Errorf("import %q, run: %+v", args, got)
		}
	}
}
