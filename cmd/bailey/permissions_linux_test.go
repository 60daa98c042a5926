package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// permissionsBench is a project with something of each kind in it.
func permissionsBench(t *testing.T) *bench {
	t.Helper()
	testenv.Requires(t, testenv.FUSE)
	b := keepBench(t)
	for _, name := range []string{"src/a.go", "src/.env", "docs/a.md", "secret/pub/ok", "secret/no", "lib/x"} {
		p := filepath.Join(b.dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

const somePermissions = `{"workspace": {"rules": [
	{"pattern": "**/.env", "permission": "none"},
	{"pattern": "docs/**/*.md", "permission": "view"},
	{"pattern": "secret", "permission": "none"},
	{"pattern": "secret/pub", "permission": "read"},
	{"pattern": "lib", "permission": "read"}
]}}`

func TestPathPermissionsHoldForACommand(t *testing.T) {
	b := permissionsBench(t)
	for old, name := range map[string]string{"src/.env": "notes", "lib/x": "other"} { // as a run without rules could have left them
		if err := os.Link(filepath.Join(b.dir, old), filepath.Join(b.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	under := func(line string) result { return b.run("-q", "--policy", somePermissions, "-c", line) }
	under("cat src/a.go secret/pub/ok lib/x; echo; ls -A secret src; stat -c %s docs/a.md").want(t, 0,
		"src/a.gosecret/pub/oklib/x\nsecret:\npub\n\nsrc:\na.go\n9\n", "")
	for _, line := range []string{
		"cat src/.env", "cat docs/a.md", "cat secret/no", "echo > lib/x", "echo > lib/new", "echo > src/.env", "mkdir secret/new",
		"ln docs/a.md x", "mv docs/a.md x", "chmod 644 docs/a.md", "cp docs/a.md x", "rm -f lib/x", "mv lib lib2 && echo > lib2/x",
		"exec 3<src/.env", "cat /proc/self/cwd/src/.env", "cat /proc/1/root" + b.dir + "/docs/a.md", "mv secret s && cat s/no",
		"cat notes", "echo > other",
	} {
		if got := under(line); got.status == 0 {
			t.Errorf("%s: %+v", line, got)
		}
	}
	under("echo new > src/new && mv src/new src/newer && cat src/newer").want(t, 0, "new\n", "")
	if data, err := os.ReadFile(filepath.Join(b.dir, "src/newer")); string(data) != "new\n" {
		t.Errorf("the host has %q, %v", data, err)
	}
	for _, name := range []string{"src/.env", "secret/no", "lib/x", "docs/a.md"} {
		if data, _ := os.ReadFile(filepath.Join(b.dir, name)); string(data) != name {
			t.Errorf("%s is %q", name, data)
		}
	}
}

// What else protects the project holds as well.
func TestPathPermissionsAreOneWallMore(t *testing.T) {
	b := permissionsBench(t)
	b.write(".envrc", "x", 0o644)
	for _, line := range []string{"echo > .envrc", "touch .bashrc", "mkdir .git", "mv .envrc x"} {
		if got := b.run("-q", "--policy", somePermissions, "-c", line); got.status == 0 {
			t.Errorf("%s: %+v", line, got)
		}
	}
	for _, name := range []string{".bashrc", ".git"} {
		if _, err := os.Lstat(filepath.Join(b.dir, name)); err == nil {
			t.Errorf("%s was made", name)
		}
	}
}

func TestPathPermissionsChangeInAKeptSandbox(t *testing.T) {
	b := permissionsBench(t)
	b.write("f", "content", 0o644)
	use := func(permission string) []string {
		return []string{"--policy", `{"workspace": {"rules": [{"pattern": "**/f", "permission": "` + permission + `"}]}}`}
	}
	b.run(append(use("write"), "--keep=dev", "-c", "cat f")...).want(t, 0, "content", "")
	pid := b.boxes()["dev"].Pid
	inside := func(line string) result { return b.run("box", "exec", "dev", "--", "sh", "-c", line) }
	for _, test := range []struct {
		permission, line string
		status           int
		stdout           string
	}{
		{"read", "cat f && ! (echo > f) 2>/dev/null", 0, "content"},
		{"view", "stat -c %s f; cat f 2>/dev/null", 1, "7\n"},
		{"none", "ls; cat f 2>/dev/null", 1, "docs\nlib\nsecret\nsrc\n"},
		{"write", "echo more > f; cat f", 0, "more\n"},
	} {
		b.run(append(use(test.permission), "box", "reload", "dev")...).want(t, 0, "", "")
		if got := inside(test.line); got.status != test.status || got.stdout != test.stdout {
			t.Errorf("%s: got %+v", test.permission, got)
		}
	}
	// Mounts would hold these in a new sandbox.
	plain := []string{"--policy", `{"workspace": {"rules": [{"pattern": "f", "permission": "none"}]}}`}
	everything := []string{"--policy", `{"workspace": {"rules": [{"pattern": "**/*", "permission": "write"}]}}`}
	for _, test := range []struct {
		flags  []string
		stdout string
	}{{plain, ""}, {[]string{"-t", "full-access"}, "more\n"}, {plain, ""}, {everything, "more\n"}} {
		b.run(append(test.flags, "box", "reload", "dev")...).want(t, 0, "", "")
		if got := b.run(append(test.flags, "--keep=dev", "-c", "cat f 2>/dev/null; true")...); got.status != 0 || got.stdout != test.stdout {
			t.Errorf("%q: got %+v", test.flags, got)
		}
	}
	if got := b.boxes()["dev"].Pid; got != pid {
		t.Errorf("process 1 was %d and is %d", pid, got)
	}
	b.run("--keep=bare", "true").want(t, 0, "", "")
	b.run(append(use("read"), "box", "reload", "bare")...).wantError(t, "made without path permissions that have a pattern")
	b.run("box", "reload", "dev").wantError(t, `say so by a rule: {"pattern": "**/*", "permission": "write"}`, "give them here as well: bailey --settings FILE box reload dev", "bailey box stop dev")
}

func TestPathPermissionsThatAreSubtreesNeedNoView(t *testing.T) {
	b := keepBench(t)
	for _, dir := range []string{"ro", "none/pub"} {
		if err := os.MkdirAll(filepath.Join(b.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.write("ro/f", "f", 0o644)
	b.write("none/f", "f", 0o644)
	b.write("none/pub/f", "f", 0o644)
	const rules = `{"workspace": {"rules": [{"pattern": "ro", "permission": "read"}, {"pattern": "none", "permission": "none"}]}}`
	b.run("-q", "--policy", rules, "-c", "cat ro/f; grep -c fuse /proc/self/mounts").want(t, 1, "f0\n", "")
	for _, line := range []string{"echo > ro/f", "cat none/f", "ls none", "mv ro x", "mv none x"} {
		if got := b.run("-q", "--policy", rules, "-c", line); got.status == 0 {
			t.Errorf("%s: got %+v", line, got)
		}
	}
	// What is written to a hidden directory would be lost, so nothing can be.
	way := strings.Replace(rules, "]}}", `, {"pattern": "none/pub", "permission": "read"}]}}`, 1)
	b.run("-q", "--policy", way, "-c", "ls none; cat none/pub/f").want(t, 0, "pub\nf", "")
	for _, line := range []string{"echo > none/new", "chmod 777 none", "mkdir none/new", "cat none/f", "echo > none/pub/f"} {
		if got := b.run("-q", "--policy", way, "-c", line); got.status == 0 {
			t.Errorf("%s: got %+v", line, got)
		}
	}
	for path, want := range map[string]string{
		"none":       "is hidden, and shows only the way to what is granted below it\n  by  workspace.rules none (none)\n  at  --policy:1:67\n  to change it: another workspace.rules\n",
		"none/f":     "does not exist inside\n  by  workspace.rules none (none)\n  at  --policy:1:67\n  to change it: another workspace.rules\n",
		"none/pub/f": "can be read\n  by  workspace.rules none/pub (read)\n  at  --policy:1:110\n  to change it: another workspace.rules\n",
	} {
		b.run("-q", "--policy", way, "explain", "path", path).want(t, 0, filepath.Join(b.dir, path)+" "+want, "")
	}
}

func TestPresetsOfPathPermissions(t *testing.T) {
	b := permissionsBench(t)
	b.write("id_rsa", "key", 0o600)
	b.write(".env.example", "example", 0o644)
	for _, test := range []struct {
		args   []string
		line   string
		stdout string
		fails  bool
	}{
		{[]string{"-t", "agent-safe"}, "cat .env.example; ls -A src; test ! -e id_rsa && echo x > src/new", "examplea.go\n", false},
		{[]string{"-t", "read-only"}, "cat src/a.go; echo > src/a.go", "src/a.go", true},
		{[]string{"-t", "view-only"}, "stat -c %s src/a.go; cat src/a.go", "8\n", true},
		{[]string{"-t", "development"}, "cat src/.env; test ! -e id_rsa && echo > src/.env", "src/.env", true},
		{[]string{"-t", "full-access"}, "cat id_rsa src/.env; echo > new", "keysrc/.env", false},
		{[]string{"--policy", `{"extends": ["default", "agent-safe"], "workspace": {"rules": [{"pattern": "src/.env", "permission": "read"}]}}`}, "cat src/.env; test ! -e id_rsa", "src/.env", false},
	} {
		got := b.run(append(append([]string{"-q"}, test.args...), "-c", test.line)...)
		if got.stdout != test.stdout || (got.status != 0) != test.fails {
			t.Errorf("%v: got %+v", test.args, got)
		}
	}
}

func TestExplainPathKnowsPathPermissions(t *testing.T) {
	b := newBench(t)
	b.write("linked", "two names\n", 0o644)
	if err := os.Link(filepath.Join(b.dir, "linked"), filepath.Join(b.dir, ".env")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"linked":        "can be read and written, unless another of its 2 hard links permits less\n",
		"src/.env":      "does not exist inside\n  by  workspace.rules **/.env (none)",
		"docs/x/a.md":   "shows its name and size, and not its content\n  by  workspace.rules docs/**/*.md (view)",
		"secret":        "is hidden; if it is a directory, it shows only the way to what a rule grants below it\n  by  workspace.rules secret (none)",
		"secret/pub/ok": "can be read\n  by  workspace.rules secret/pub (read)",
		"other":         "can be read and written\n",
	} {
		if got := b.run("--policy", somePermissions, "explain", "path", path); got.status != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: got %+v, want %q", path, got, want)
		}
	}
	if got := b.run("--policy", somePermissions, "explain", "--", "true"); !strings.Contains(got.stdout, "has permissions by path\n  **/.env") {
		t.Errorf("got %+v", got)
	}
}

// Whatever ends the keeper, what it showed does not open up.
func TestAViewEndsWithTheKeeper(t *testing.T) {
	b := permissionsBench(t)
	b.write("src/.env", "what is hidden\n", 0o644)
	b.write("docs/a.md", "what is viewed\n", 0o644)
	cmd := b.command("-q", "--policy", somePermissions, "-c", `cat src/a.go; echo; echo ready; read line; cat src/a.go; cat src/.env; cat docs/a.md; ls; echo end`)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(output)
	for line := ""; line != "ready\n"; {
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	b.run("-k", "dev", "--", "true").want(t, 0, "", "")
	keeper := b.keeperPid("dev")
	servers := serversOf(keeper)
	if len(servers) == 0 {
		t.Fatal("nobody shows the view")
	}
	if err := unix.Kill(keeper, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.until("the server has ended with it", func() bool {
		return !slices.ContainsFunc(servers, func(pid int) bool { return isServer(pid) })
	})
	if _, err := stdin.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	after, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // what it said is what matters
	if text := string(after); strings.Contains(text, "what is") || !strings.Contains(text, "cat: src/.env:") || !strings.Contains(text, "cat: docs/a.md:") || !strings.HasSuffix(text, "end\n") {
		t.Errorf("got %q", text)
	}
	b.run("-k", "dev", "--", "true").want(t, 0, "", "") // another keeper, which tidies up
}

// serversOf are the processes that show views for a keeper.
func serversOf(parent int) (pids []int) {
	for _, pid := range processes() {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) && isServer(pid) {
			pids = append(append(pids, pid), serversOf(pid)...)
		}
	}
	return pids
}

func isServer(pid int) bool {
	cmdline, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return bytes.Contains(cmdline, []byte("\x00rulefs"))
}

func processes() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
