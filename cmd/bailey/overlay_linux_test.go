package main

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// newOverlayBench is a project with a repository and some files in it, and a place
// for workspaces.
func newOverlayBench(t testing.TB) *bench {
	t.Helper()
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.env = append(b.env, "BAILEY_DATA="+filepath.Join(b.home, "data"), "GIT_CONFIG_NOSYSTEM=1")
	t.Cleanup(b.openWork)
	for _, dir := range []string{"sub/deep", ".git/hooks", ".git/objects", ".git/refs", "keep"} {
		if err := os.MkdirAll(filepath.Join(b.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.write(".git/HEAD", "ref: refs/heads/main\n", 0o644)
	b.write(".git/config", "[core]\n\trepositoryformatversion = 0\n", 0o644)
	b.write("a.txt", "one\ntwo\nthree\n", 0o644)
	b.write("sub/b.txt", "b\n", 0o644)
	b.write("sub/deep/c.txt", "c\n", 0o644)
	b.write("run.sh", "#!/bin/sh\necho ran\n", 0o755)
	b.write("secret.pem", "secret\n", 0o600)
	if err := os.Symlink("a.txt", filepath.Join(b.dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(b.dir, "a.txt"), filepath.Join(b.dir, "hard")); err != nil {
		t.Fatal(err)
	}
	return b
}

// openWork makes a directory of overlayfs's own removable, which belongs to the user
// and which nobody may read.
func (b *bench) openWork() {
	dirs, _ := filepath.Glob(filepath.Join(b.home, "data", "*", "*", "work", "work"))
	for _, dir := range dirs {
		if err := os.Chmod(dir, 0o700); err != nil {
			b.t.Error(err)
		}
	}
}

// snapshot describes everything in the project, with times.
func (b *bench) snapshot() map[string]string {
	b.t.Helper()
	out := make(map[string]string)
	err := filepath.WalkDir(b.dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		text := fmt.Sprint(info.Mode(), st.Ino, st.Mtim, st.Ctim, st.Nlink)
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text += string(data)
		}
		out[p] = text
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// wantSame fails if anything in the project is not as it was.
func (b *bench) wantSame(before map[string]string) {
	b.t.Helper()
	after := b.snapshot()
	for _, p := range slices.Sorted(maps.Keys(before)) {
		if after[p] != before[p] {
			b.t.Errorf("%s was changed: %q, before %q", p, after[p], before[p])
		}
		delete(after, p)
	}
	for p := range after {
		b.t.Errorf("%s was made", p)
	}
}

// kept is the name of the only workspace.
func (b *bench) kept() string {
	b.t.Helper()
	names := b.workspaces()
	if len(names) != 1 {
		b.t.Fatalf("workspaces: %q, want one", names)
	}
	return names[0]
}

func (b *bench) workspaces() (names []string) {
	b.t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.home, "data", "workspaces"))
	if err != nil && !os.IsNotExist(err) {
		b.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// changers are scripts that change the project in every way there is.
var changers = map[string]string{
	"write":            "echo x > a.txt; echo y >> sub/b.txt; : > sub/deep/c.txt",
	"make":             "echo x > new; mkdir -p n/e/w; echo y > n/e/w/f; ln -s a.txt l; ln a.txt h; mkfifo p",
	"remove":           "rm a.txt; rm -r sub; unlink link",
	"rename":           "mv a.txt z.txt; mv sub elsewhere; mv -T keep sub2",
	"exchange":         "mv run.sh x; mv a.txt run.sh; mv x a.txt",
	"modes and times":  "chmod 600 a.txt; chmod 700 sub; touch -d @1 a.txt sub; chmod +x sub/b.txt",
	"by link":          "echo x > link; echo y >> hard",
	"by /proc":         "echo x > /proc/self/cwd/a.txt; echo y > /proc/self/root$PWD/sub/b.txt; exec 3>>a.txt; echo z > /proc/self/fd/3",
	"truncate":         "truncate -s 1 a.txt; truncate -s 100 sub/b.txt; fallocate -l 10 f",
	"attributes":       `python3 -c 'import os; os.setxattr("a.txt", "user.x", b"1")'`,
	"repository":       "echo x > .git/objects/o; mkdir .git/refs/heads; echo y > .git/HEAD",
	"replace the root": "rm -rf ./* 2>/dev/null; echo x > a.txt",
	"shared mapping":   "python3 -c 'import mmap; f=open(\"a.txt\",\"r+b\"); m=mmap.mmap(f.fileno(),0); m[0:3]=b\"ONE\"; m.flush()'",
	"O_TMPFILE":        `python3 -c 'import os; d=os.open(".",os.O_RDWR|os.O_TMPFILE,0o644); os.write(d,b"x"); os.link("/proc/self/fd/%d"%d,"t",src_dir_fd=d,follow_symlinks=True)'`,
}

// TestOverlayLeavesTheProjectAsItIs tries every change under every kind of
// broker: it performs calls for the command, and must do so in the overlay.
func TestOverlayLeavesTheProjectAsItIs(t *testing.T) {
	for _, kind := range []struct {
		name  string
		flags []string
	}{
		{"protected names", nil},
		{"no broker", []string{"--policy", `{"extends": "default", "filesystem": {"protectMissing": false}, "network": {"allowAllUnixSockets": true}}`}},
		{"patterns", []string{"--policy", `{"extends": "default", "filesystem": {"denyRead": ["**/*.pem"], "denyWrite": ["**/*.lock"]}}`}},
		{"commands", []string{"--policy", `{"extends": "default", "command": {"deny": ["git push"]}}`}},
		{"monitor", []string{"--monitor"}},
		{"part of the project", []string{"--policy", `{"extends": "default", "filesystem": {"denyWrite": ["keep"], "privateWrite": ["sub/deep"]}}`}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			b := newOverlayBench(t)
			before := b.snapshot()
			for _, name := range slices.Sorted(maps.Keys(changers)) {
				args := slices.Concat([]string{"-q", "--overlay=keep:w"}, kind.flags, []string{"-c", changers[name]})
				r := b.run(args...)
				b.wantSame(before)
				if t.Failed() {
					t.Fatalf("%s: status %d, stderr %q", name, r.status, r.stderr)
				}
				if stat := b.run("ws", "diff", "--stat", "w").stdout; stat == "" {
					t.Errorf("%s: nothing was changed in the overlay either: status %d, stderr %q", name, r.status, r.stderr)
				}
				if r := b.run("ws", "discard", "w"); r.status != 0 {
					t.Fatalf("discard: %s", r.stderr)
				}
			}
		})
	}
}

func TestProtectionsHoldInAnOverlay(t *testing.T) {
	b := newOverlayBench(t)
	before := b.snapshot()
	const policy = `{"extends": "default", "filesystem": {"denyRead": ["secret.pem", "**/*.key"], "denyWrite": ["run.sh"]}}`
	for _, line := range []string{
		"echo evil > .git/hooks/pre-commit", "echo evil > .envrc", "mkdir .vscode", "echo evil >> .git/config", "mv .git g",
		"cat secret.pem", "echo k > x.key && cat x.key", "echo evil > run.sh", "mv run.sh r", "rm secret.pem", "ln -s /etc .claude",
		"cp a.txt n && mv n .mcp.json", `python3 -c 'import os; os.setxattr("sub", "trusted.overlay.opaque", b"y")'`, "mknod w c 0 0",
	} {
		if r := b.run("-q", "--overlay=keep:w", "--policy", policy, "-c", line); r.status == 0 || strings.Contains(r.stdout, "secret") {
			t.Errorf("%s: status %d, stdout %q, stderr %q", line, r.status, r.stdout, r.stderr)
		}
	}
	b.wantSame(before)
	// What was copied before a denial is no change.
	if stat := b.run("ws", "diff", "--stat", "w").stdout; strings.ContainsAny(strings.ReplaceAll(stat, "A n\n", ""), "ADMT") {
		t.Errorf("in the overlay:\n%s", stat)
	}
}

// TestForgedMarksMeanNothing: what overlayfs keeps in attributes and devices cannot
// be put there from inside, nor by what lies in the project.
func TestForgedMarksMeanNothing(t *testing.T) {
	b := newOverlayBench(t)
	if err := syscall.Setxattr(filepath.Join(b.dir, "sub"), "user.overlay.opaque", []byte("y"), 0); err != nil {
		t.Fatal(err)
	}
	before := b.snapshot()
	r := b.run("-q", "--overlay=keep:w", "-c", `python3 -c 'import os
for n in ("user.overlay.opaque", "user.overlay.whiteout", "user.overlay.redirect", "user.overlay.metacopy"):
  for f in ("sub/deep", "a.txt"):
    try: os.setxattr(f, n, b"y")
    except OSError: pass'
echo x > sub/new; ls sub sub/deep`)
	if want := "sub:\nb.txt\ndeep\nnew\n\nsub/deep:\nc.txt\n"; r.stdout != want {
		t.Errorf("got %q, want %q; %s", r.stdout, want, r.stderr)
	}
	if got := b.run("ws", "diff", "--stat", "w").stdout; got != "A sub/new\n" {
		t.Errorf("diff: %q", got)
	}
	if got := b.run("-q", "--overlay=keep:w", "-c", "cat a.txt sub/deep/c.txt").stdout; got != "one\ntwo\nthree\nc\n" {
		t.Errorf("the next run sees %q", got)
	}
	b.wantSame(before)
}

func TestOverlayIsAppliedAndUndone(t *testing.T) {
	b := newOverlayBench(t)
	r := b.run("--overlay", "-c", "echo four >> a.txt; echo new > sub/new; rm -r sub/deep; exit 7")
	name := b.kept()
	if r.status != 7 || !strings.Contains(r.stderr, "kept as "+name) || !strings.Contains(r.stderr, "1 added, 1 changed, 1 deleted") {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	diff := b.run("ws", "diff", name)
	for _, text := range []string{"+four", "added sub/new", "deleted sub/deep/c.txt"} {
		if !strings.Contains(diff.stdout, text) {
			t.Errorf("diff %q does not say %q", diff.stdout, text)
		}
	}
	if r := b.run("ws", "apply", name); r.status != 0 || !strings.Contains(r.stderr, "to undo it: bailey ws undo "+name) {
		t.Errorf("apply: status %d, stderr %q", r.status, r.stderr)
	}
	if got := b.read("a.txt") + b.read("sub/new"); got != "one\ntwo\nthree\nfour\nnew\n" {
		t.Errorf("applied: %q", got)
	}
	if r := b.run("ws", "undo", name); r.status != 0 {
		t.Errorf("undo: status %d, stderr %q", r.status, r.stderr)
	}
	if got := b.read("a.txt") + b.read("sub/deep/c.txt"); got != "one\ntwo\nthree\nc\n" {
		t.Errorf("undone: %q", got)
	}
	if _, err := os.Lstat(filepath.Join(b.dir, "sub/new")); err == nil {
		t.Error("sub/new is still there")
	}
}

func (b *bench) read(name string) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		b.t.Error(err)
	}
	return string(data)
}

func TestOverlayWithoutChangesLeavesNothing(t *testing.T) {
	b := newOverlayBench(t)
	for _, line := range []string{"true", "touch a.txt", "cat a.txt >/dev/null; chmod 644 a.txt"} {
		r := b.run("--overlay", "-c", line)
		r.want(t, 0, "", "bailey: nothing was changed in "+b.dir+"\n")
		if names := b.workspaces(); len(names) != 0 {
			t.Errorf("%s left %q", line, names)
		}
	}
}

func TestNamedWorkspaceGoesOn(t *testing.T) {
	b := newOverlayBench(t)
	before := b.snapshot()
	b.run("-q", "--overlay=keep:job", "-c", "echo 1 > count; rm a.txt; rm secret.pem; ln -s /etc keep/x")
	// What is denied now was removed in the overlay, and must not be missed there.
	const policy = `{"extends": "default", "filesystem": {"denyRead": ["secret.pem"], "denyWrite": ["a.txt"]}}`
	r := b.run("-q", "--overlay=keep:job", "--policy", policy, "-c", "cat count; ls; echo 2 >> count")
	if want := "1\ncount\nhard\nkeep\nlink\nrun.sh\nsub\n"; r.status != 0 || r.stdout != want {
		t.Errorf("status %d, stdout %q, want %q, stderr %q", r.status, r.stdout, want, r.stderr)
	}
	b.wantSame(before)
	elsewhere := newOverlayBench(t)
	elsewhere.env = b.env
	elsewhere.run("--overlay=keep:job", "--", "true").wantError(t, "the workspace is that of "+b.dir)
}

func TestSnapshotsAndForksOfAWorkspace(t *testing.T) {
	b := newOverlayBench(t)
	b.run("-q", "--overlay=keep:w", "-c", "echo 1 > f")
	if r := b.run("ws", "snapshot", "w"); r.stdout != "s1\n" {
		t.Fatalf("snapshot: %q, %q", r.stdout, r.stderr)
	}
	b.run("-q", "--overlay=keep:w", "-c", "echo 2 > f; rm a.txt")
	for _, args := range [][]string{{"fork", "w", "old", "s1"}, {"fork", "w", "now"}, {"rollback", "w", "s1"}, {"squash", "now"}} {
		if r := b.run(append([]string{"ws"}, args...)...); r.status != 0 {
			t.Errorf("%q: %q", args, r.stderr)
		}
	}
	for name, want := range map[string]string{"w": "1\na.txt\n", "old": "1\na.txt\n", "now": "2\n"} {
		r := b.run("-q", "--overlay=keep:"+name, "-c", "cat f; ls a.txt 2>/dev/null; echo "+name+" > f")
		if r.stdout != want {
			t.Errorf("%s: got %q, want %q, stderr %q", name, r.stdout, want, r.stderr)
		}
	}
	if r := b.run("ws", "apply", "now"); r.status != 0 {
		t.Errorf("apply: %q", r.stderr)
	}
	if got := b.read("f"); got != "now\n" {
		t.Errorf("applied %q", got)
	}
	b.run("ws", "apply", "old").wantError(t, "f was made")
}

// speaker is a command in an overlay that does what it is told.
type speaker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	t   testing.TB
}

func (b *bench) speaker(args ...string) *speaker {
	b.t.Helper()
	s := &speaker{cmd: b.command(append(args, "--", "sh")...), t: b.t}
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		b.t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	s.out = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = s.in.Close(); _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	return s
}

// say has a line of shell run, and returns the words that it prints.
func (s *speaker) say(line string) string {
	s.t.Helper()
	if _, err := io.WriteString(s.in, "echo $("+line+")\n"); err != nil {
		s.t.Fatal(err)
	}
	text, err := s.out.ReadString('\n')
	if err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	return strings.TrimSuffix(text, "\n")
}

func TestTwoOverlaysDoNotSeeEachOther(t *testing.T) {
	b := newOverlayBench(t)
	before := b.snapshot()
	x, y := b.speaker("-q", "--overlay=keep:x"), b.speaker("-q", "--overlay=keep:y")
	x.say("echo x > f; rm sub/b.txt; echo X > a.txt")
	y.say("echo y > f; echo Y >> sub/b.txt")
	if got, want := x.say("cat f a.txt; ls sub"), "x X deep"; got != want {
		t.Errorf("x sees %q, want %q", got, want)
	}
	if got, want := y.say("cat f a.txt sub/b.txt"), "y one two three b Y"; got != want {
		t.Errorf("y sees %q, want %q", got, want)
	}
	b.wantSame(before)
	b.run("--overlay=keep:x", "--", "true").wantError(t, "x: in use")
	b.run("ws", "apply", "y").wantError(t, "a command runs in it")
}

func TestForkOfARunningWorkspace(t *testing.T) {
	b := newOverlayBench(t)
	s := b.speaker("-q", "--overlay=keep:one")
	s.say("echo x >new; echo ONE >a.txt; rm sub/b.txt; echo done")
	b.run("ws", "fork", "one", "two").want(t, 0, "", "")
	s.say("echo later >new; echo done")
	if got := b.run("ws", "diff", "--stat", "two").stdout; got != "M a.txt\nA new\nD sub/b.txt\n" {
		t.Errorf("the fork differs by %q", got)
	}
	b.write("a.txt", "of somebody else\n", 0o644)
	b.run("ws", "apply", "two").wantError(t, "a.txt was changed\nbailey: to merge texts: bailey ws apply --merge two; to apply other files: ")
	if r := b.run("ws", "apply", "two", "new", "sub/b.txt"); r.status != 0 {
		t.Errorf("apply: %+v", r)
	}
	if got := b.read("new"); got != "x\n" {
		t.Errorf("the fork has what was written later: %q", got)
	}
	if got := s.say("cat new"); got != "later" {
		t.Errorf("the first has %q", got)
	}
}

func TestKilledRunIsKeptAsInterrupted(t *testing.T) {
	b := newOverlayBench(t)
	before := b.snapshot()
	s := b.speaker("-q", "--overlay")
	s.say("echo work > precious; echo ready")
	dry := b.speaker("-q", "--dry-run")
	dry.say("echo dry > f; echo ready")
	for _, one := range []*speaker{s, dry} {
		if err := one.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = one.cmd.Wait()
	}
	name := b.kept()
	if list := b.run("ws", "list").stdout; !strings.Contains(list, name+" ") || !strings.Contains(list, "interrupted") {
		t.Errorf("list: %q", list)
	}
	b.run("-q", "--dry-run", "--", "true") // sweeps
	if left, err := os.ReadDir(filepath.Join(b.home, "data", "tmp")); err != nil || len(left) > 0 {
		t.Errorf("left of dry runs: %v, %v", left, err)
	}
	b.wantSame(before)
	if r := b.run("ws", "apply", name); r.status != 0 || b.read("precious") != "work\n" {
		t.Errorf("apply: status %d, %q", r.status, r.stderr)
	}
}

func TestDryRunShowsAndForgets(t *testing.T) {
	b := newOverlayBench(t)
	before := b.snapshot()
	r := b.run("--dry-run", "-c", "echo out; echo four >> a.txt; exit 5")
	if r.status != 5 || r.stdout != "out\n" || !strings.Contains(r.stderr, "+four\n") || !strings.Contains(r.stderr, "bailey: a dry run: 0 added, 1 changed, 0 deleted") {
		t.Errorf("status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
	b.wantSame(before)
	if names := b.workspaces(); len(names) != 0 {
		t.Errorf("left %q", names)
	}
	b.run("--dry-run", "--overlay=keep:x", "--", "true").wantError(t, "--dry-run keeps nothing")
}

func TestPolicyCanAskForAnOverlay(t *testing.T) {
	b := newOverlayBench(t)
	before := b.snapshot()
	const policy = `{"extends": "default", "workspace": {"mode": "overlay"}}`
	r := b.run("-q", "--policy", policy, "-c", "echo x > f")
	r.want(t, 0, "", "bailey: kept as "+b.kept()+"\n")
	b.wantSame(before)
	if r := b.run("explain", "--policy", policy, "path", "a.txt"); !strings.Contains(r.stdout, "goes to an overlay") {
		t.Errorf("explain: %q, %q", r.stdout, r.stderr)
	}
}

func TestOverlayIsRefusedWhereItCannotBeHeld(t *testing.T) {
	b := newOverlayBench(t)
	before := b.snapshot()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--overlay", "--runtime", "landlock"}, "the landlock runtime cannot keep changes apart"},
		{[]string{"--overlay", "--runtime", "bwrap"}, "the bwrap runtime cannot keep changes apart"},
		{[]string{"--overlay", "--runtime", "runc"}, "the runc runtime cannot keep changes apart"},
		{[]string{"--dry-run", "--keep", "box"}, "--dry-run does not go with --keep"},
		{[]string{"--overlay", "--dir", "/"}, "is not a project"},
		{[]string{"--overlay=x"}, "is not keep:NAME"},
		{[]string{"--overlay=keep:../x"}, ": a name "},
	} {
		b.run(append(test.args, "--", "sh", "-c", "echo x > made")...).wantError(t, test.want)
	}
	b.wantSame(before)
	if names := b.workspaces(); len(names) != 0 {
		t.Errorf("left %q", names)
	}
	if r := b.restricted("--overlay", "--", "sh", "-c", "echo x > made"); r.status != exitOwn || !strings.Contains(r.stderr, "cannot keep changes apart") {
		t.Errorf("without namespaces: status %d, %q", r.status, r.stderr)
	}
	b.wantSame(before)
	bailey := testenv.Binary(t, "bailey")
	inside := b.run("-q", "--overlay=keep:w", "--allow-read", filepath.Dir(bailey), "--", bailey, "--overlay", "--", "true")
	if inside.status != exitOwn || !strings.Contains(inside.stderr, "overlay") {
		t.Errorf("inside another: status %d, %q", inside.status, inside.stderr)
	}
}

func TestPersonDecidesAboutChanges(t *testing.T) {
	for _, test := range []struct {
		name    string
		answers []string
		applied bool
		kept    int
	}{
		{"apply", []string{"a\r"}, true, 1},
		{"discard", []string{"discard\r"}, false, 0},
		{"keep", []string{"k\r"}, false, 1},
		{"nothing", []string{"\x04"}, false, 1},
		{"look first", []string{"what\r", "l\r", "d\r"}, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newOverlayBench(t)
			b.env = append(b.env, "PAGER=cat")
			s := openScreen(t)
			s.start(b.command("--overlay", "-c", "echo looked at >> a.txt; exit 3"))
			for _, answer := range test.answers {
				s.expect("[l]ook? ")
				s.write(answer)
				if answer == "l\r" {
					s.expect("+looked at")
				}
			}
			if got := s.wait(); got != 3 {
				t.Errorf("status %d", got)
			}
			if applied := strings.Contains(b.read("a.txt"), "looked at"); applied != test.applied {
				t.Errorf("applied: %v", applied)
			}
			if names := b.workspaces(); len(names) != test.kept {
				t.Errorf("kept %q", names)
			}
		})
	}
}

func TestApplyTellsOfHardLinksAndUndoMakesThemAgain(t *testing.T) {
	b := newOverlayBench(t)
	b.run("-q", "--overlay=keep:w", "-c", "echo x >> a.txt")
	if r := b.run("ws", "apply", "w"); r.status != 0 || !strings.Contains(r.stderr, "bailey: files of their own now, which were hard links to others before: a.txt\n") {
		t.Errorf("apply: %+v", r)
	}
	if r := b.run("ws", "undo", "w"); r.status != 0 || strings.Contains(r.stderr, "of their own") {
		t.Errorf("undo: %+v", r)
	}
	x, err := os.Stat(b.dir + "/a.txt")
	if err != nil {
		t.Fatal(err)
	}
	if y, err := os.Stat(b.dir + "/hard"); err != nil || !os.SameFile(x, y) {
		t.Errorf("they are not one file: %v", err)
	}
}

func TestWorkspaceVerbsSayWhatIsWrong(t *testing.T) {
	b := newOverlayBench(t)
	b.run("-q", "--overlay=keep:w", "-c", "echo x > f")
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "usage: bailey ws list"},
		{[]string{"nonsense"}, "usage: bailey ws list"},
		{[]string{"conclude", "0", "w"}, "usage: bailey ws list"}, // is for Bailey itself
		{[]string{"diff"}, "usage: bailey ws list"},
		{[]string{"list", "w"}, "usage: bailey ws list"},
		{[]string{"diff", "none"}, "none: there is no such workspace; see: bailey ws list"},
		{[]string{"diff", "../w"}, ": a name "},
		{[]string{"apply", "w", "/etc/passwd"}, "/etc/passwd is not in " + b.dir},
		{[]string{"undo", "w"}, "nothing was applied that could be undone"},
		{[]string{"rollback", "w", "s9"}, "snapshot s9 of w: there is no such snapshot; see: bailey ws snapshots w\n"},
		{[]string{"discard", "w", "x"}, "x: there is no such workspace"}, // and w stays
		{[]string{"apply", "w", "f", "ff"}, "ff: there is no such path in workspace w; see: bailey ws diff --stat w"},
		{[]string{"diff", "w", "sub/none"}, "sub/none: there is no such path in workspace w"},
		{[]string{"diff", "w", "../f"}, "../f is not in " + b.dir},
		{[]string{"apply", "--merge=all", "w"}, "--merge=all: there are only --merge and --merge=markers"},
		{[]string{"list", "--stat"}, "bailey ws list takes no --stat; it goes with bailey ws diff"},
		{[]string{"apply", "--oci", "w"}, "bailey ws apply takes no --oci; it goes with bailey ws export"},
		{[]string{"diff", "--merge", "w"}, "bailey ws diff takes no --merge; it goes with bailey ws apply"},
	} {
		b.run(append([]string{"ws"}, test.args...)...).wantError(t, test.want)
	}
	for _, address := range []string{"git@example.com:x", "file://" + b.dir} {
		b.run("codebase", "import", "one", address).wantError(t, address+": a repository is a directory, or an https address; clone it")
	}
	b.run("ws", "diff", "w", "sub/b.txt").want(t, 0, "", "") // which is there, and the same
	if r := b.run("ws", "list", "--json"); r.status != 0 || !strings.HasPrefix(r.stdout, `{"name":"w","state":"kept","changes":"+1 ~0 -0",`) {
		t.Errorf("list: %q, %q", r.stdout, r.stderr)
	}
	b.run("ws", "export", "w", "--oci").want(t, 0, b.run("ws", "export", "--oci", "w").stdout, "")
}
