package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// ownGroup gives files of the bench the group of this process, which in some
// temporary directories they do not have: without it nothing can be copied.
func (b *bench) ownGroup() {
	b.t.Helper()
	for _, dir := range []string{b.dir, b.home} {
		if err := os.Chown(dir, -1, os.Getegid()); err != nil {
			b.t.Fatal(err)
		}
	}
}

func learnBench(t *testing.T) *bench {
	t.Helper()
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.ownGroup()
	for _, name := range []string{"a", "b", "c"} {
		b.inHome(".config/tool/"+name, name)
	}
	b.inHome("out/old", "old\n")
	b.inHome(".aws/credentials", "key\n")
	return b
}

// lessonLine reads a directory, a secret, and writes in three places.
const lessonLine = `cat ~/.config/tool/a ~/.config/tool/b ~/.config/tool/c >/dev/null && echo new >>~/out/old && echo new >~/out/new && echo new >made && { cat ~/.aws/credentials || :; }`

const lessonWant = `{
  "extends": "default",
  "filesystem": {
    "allowRead": [
      "~/.config/tool", // cat
    ],
    "allowWrite": [
      "~/out", // sh
    ],
    // looks like a secret, not granted: ~/.aws/credentials (cat)
  },
}
`

func TestLearnProposesAndChangesNothing(t *testing.T) {
	b := learnBench(t)
	got := b.run("learn", "--shell", "sh", "-c", lessonLine)
	_, text, _ := strings.Cut(got.stdout, "\n")
	if got.status != 0 || text != lessonWant {
		t.Errorf("status %d, stderr %s, got\n%s\nwant\n%s", got.status, got.stderr, got.stdout, lessonWant)
	}
	if strings.Contains(got.stderr, "key") {
		t.Error("the secret was read")
	}
	for _, path := range []string{filepath.Join(b.dir, "made"), filepath.Join(b.home, "out/new")} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s was made on the host", path)
		}
	}
	if data, err := os.ReadFile(filepath.Join(b.home, "out/old")); err != nil || string(data) != "old\n" {
		t.Errorf("out/old: %q, %v", data, err)
	}
}

func TestLearnProposesWhatFlagsGrant(t *testing.T) {
	b := learnBench(t)
	// Where nothing is private but what is said to be.
	shared, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(shared, -1, os.Getegid()); err != nil {
		t.Fatal(err)
	}
	got := b.run("learn", "--allow-write", shared, "-c", "echo x >"+shared+"/x")
	if got.status != 0 || !strings.Contains(got.stdout, `"`+shared+`", // bash`) {
		t.Errorf("%+v", got)
	}
	if _, err := os.Lstat(filepath.Join(shared, "x")); err == nil {
		t.Error("it was written")
	}
}

func TestLearnWritesTheProjectIfToldTo(t *testing.T) {
	b := learnBench(t)
	b.run("learn", "--write", "--shell", "sh", "-c", lessonLine)
	if _, err := os.Lstat(filepath.Join(b.dir, "made")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(b.home, "out/new")); err == nil {
		t.Error("the home directory was written")
	}
}

func TestLearnKeepsStdoutForTheProposal(t *testing.T) {
	b := learnBench(t)
	got := b.run("learn", "-c", "echo text; exit 3")
	if got.status != 3 || !strings.Contains(got.stderr, "text\n") || strings.Contains(got.stdout, "text\n") {
		t.Errorf("%+v", got)
	}
	if _, err := policy.Parse("stdout", []byte(got.stdout)); err != nil {
		t.Error(err)
	}
	if !strings.Contains(got.stderr, "ended with status 3, so it may not") {
		t.Errorf("stderr %q", got.stderr)
	}
	b.run("learn", "--", "no-such-program").want(t, 127, "", "bailey: no-such-program: command not found\n")
}

func TestLearnProves(t *testing.T) {
	b := learnBench(t)
	got := b.run("learn", "--prove", "--shell", "sh", "-c", lessonLine)
	if got.status != 0 || !strings.Contains(got.stderr, "bailey: proved: the command went through under the proposal, without:\n") {
		t.Errorf("%+v", got)
	}
	info, err := os.Lstat(filepath.Join(b.home, "out/new"))
	if err != nil {
		t.Fatalf("the proof was no run of its own: %v", err)
	}
	// The first run must leave nothing of its broker to the second.
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	if want := os.FileMode(0o666 &^ mask); info.Mode() != want {
		t.Errorf("a file made by the proof has mode %v, want %v", info.Mode(), want)
	}
	got = b.run("learn", "--prove", "-c", "cat ~/.aws/credentials")
	if got.status != 1 || !strings.Contains(got.stderr, "bailey: not proved: under the proposal the command ended with status 1") {
		t.Errorf("a command that needs a secret: %+v", got)
	}
}

func TestLearnWithAnOverlayChangesNothing(t *testing.T) {
	b := learnBench(t)
	b.env = append(b.env, "BAILEY_DATA="+filepath.Join(b.home, "data"))
	file := b.write("../overlay.jsonc", `{"extends": "default", "workspace": {"mode": "overlay"}}`, 0o644)
	got := b.run("learn", "-s", file, "--prove", "--", "sh", "-c", "echo made >made; cat ~/.config/tool/a")
	if got.status != 0 || !strings.Contains(got.stdout, `"~/.config/tool/a"`) || !strings.Contains(got.stderr, "proved: the command went through") {
		t.Errorf("got %+v", got)
	}
	for _, dir := range []string{b.dir, b.home + "/data/workspaces", b.home + "/data/tmp"} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
	b.run("learn", "-s", file, "--write", "--", "true").wantError(t, "leave --write away")
}

func TestLearnProposesWhatTheDefaultShowsOfACache(t *testing.T) {
	b := learnBench(t)
	b.inHome(".npm/_cacache/index", "old\n")
	b.inHome(".npmrc", "fund=false\n")
	got := b.run("learn", "--prove", "--allow-read", "~/.npmrc", "--shell", "sh", "-c",
		"cat ~/.npmrc ~/.npm/_cacache/index >/dev/null && echo new >~/.npm/_cacache/entry")
	if got.status != 0 || !strings.Contains(got.stderr, "bailey: proved: the command went through under the proposal, and nothing was denied") {
		t.Errorf("%+v", got)
	}
	p, err := policy.Parse("stdout", []byte(got.stdout))
	if err != nil || !slices.Equal(p.Filesystem.AllowRead, []string{"~/.npmrc"}) || !slices.Equal(p.Filesystem.PrivateWrite, []string{"~/.npm/_cacache"}) {
		t.Errorf("error %v, got\n%s", err, got.stdout)
	}
	if _, err := os.Lstat(filepath.Join(b.home, ".npm/_cacache/entry")); err == nil {
		t.Error("the cache was written")
	}
}

func TestLearnSeesWhatIsRenamedAwayOrRemoved(t *testing.T) {
	b := learnBench(t)
	b.inHome("inbox/file", "text\n")
	b.inHome("old/file", "text\n")
	const remove = "import os\ntry: os.unlink(os.path.expanduser('~/old/file'))\nexcept OSError: pass"
	got := b.run("learn", "--prove", "--shell", "sh", "-c", "mv ~/inbox/file made && mv made ~/out/file && python3 -c \""+remove+"\"")
	if _, err := os.Lstat(filepath.Join(b.home, "old/file")); err == nil {
		t.Error("what the command removes is there after the proof")
	}
	if got.status != 0 || !strings.Contains(got.stderr, "bailey: proved: the command went through under the proposal, and nothing was denied") {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(got.stdout, `"~/inbox", // mv`) || !strings.Contains(got.stdout, `"~/out", // mv`) || !strings.Contains(got.stdout, `"~/old", // python3`) {
		t.Errorf("got\n%s", got.stdout)
	}
}

func TestLearnSavesAndMerges(t *testing.T) {
	b := learnBench(t)
	b.run("learn", "--save", "new.jsonc", "--shell", "sh", "-c", lessonLine)
	data, err := os.ReadFile(filepath.Join(b.dir, "new.jsonc"))
	if err != nil || !strings.HasSuffix(string(data), lessonWant) {
		t.Errorf("error %v, got\n%s", err, data)
	}
	got := b.run("-s", "new.jsonc", "--shell", "sh", "-c", "cat ~/.config/tool/a; echo x >~/out/new")
	if got.status != 0 || got.stdout != "a" {
		t.Errorf("with what was saved: %+v", got)
	}
	b.run("learn", "--save", "new.jsonc", "true").wantError(t, "is there already; to add to it: --merge new.jsonc")

	old := "// mine\n{\n  \"extends\": \"default\", // base\n}\n"
	file := b.write("own.jsonc", old, 0o640)
	b.run("learn", "--merge", "own.jsonc", "--shell", "sh", "-c", lessonLine)
	merged, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(merged), "// mine\n{\n  \"extends\": \"default\", // base\n") || !strings.Contains(string(merged), `"~/.config/tool"`) {
		t.Errorf("error %v, got\n%s", err, merged)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
	if got := b.run("learn", "-s", "own.jsonc", "--merge", "own.jsonc", "--shell", "sh", "-c", lessonLine); !strings.Contains(got.stderr, "own.jsonc stays as it is") {
		t.Errorf("again: %+v", got)
	}
	entries, err := filepath.Glob(filepath.Join(b.dir, ".bailey-*"))
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %q, %v", entries, err)
	}
}

func TestLearnShowsADiffOnATerminal(t *testing.T) {
	b := learnBench(t)
	old := "{\n  \"extends\": \"default\" // base\n}\n"
	file := b.write("bailey.jsonc", old, 0o644)
	for answer, want := range map[string]string{"": "not granted: ~/.aws/credentials", "y": "\"~/.aws/credentials\""} {
		s := openScreen(t)
		s.start(b.command("learn", "--shell", "sh", "-c", lessonLine))
		s.expect("bailey: cat asked for ~/.aws/credentials, which looks like a secret. Propose to grant it? [y/N] ")
		s.write(answer + "\n")
		s.expect("bailey.jsonc would become")
		s.expect("+     \"allowRead\": [")
		s.expect(want)
		<-s.ended
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != old {
		t.Errorf("the file became %q, %v", data, err)
	}
}

func TestLearnDoesNotProposeWhatThePolicyDenies(t *testing.T) {
	b := learnBench(t)
	got := b.run("learn", "-t", "locked", "-c", ": >made; :")
	if strings.Contains(got.stdout, "allowWrite") || !strings.Contains(got.stdout, "// denied by filesystem.denyWrite .: made (bash)") {
		t.Errorf("got\n%s", got.stdout)
	}
}

func TestLearnRefusesWhatItCannotBuildOn(t *testing.T) {
	b := newBench(t)
	b.run("learn").wantError(t, "no command")
	b.run("learn", "--save", "a", "--merge", "b", "true").wantError(t, "exclude each other")
	b.run("learn", "--policy", "{}", "true").wantError(t, "use --settings")
	b.run("learn", "-m", "true").wantError(t, "leave --monitor away")
}

// npmProject is a project that installs without any registry.
func npmProject(b *bench) {
	b.t.Helper()
	if err := os.Mkdir(filepath.Join(b.dir, "dep"), 0o755); err != nil {
		b.t.Fatal(err)
	}
	b.write("package.json", `{"name": "app", "version": "1.0.0", "private": true, "scripts": {"test": "node test.js"}, "dependencies": {"dep": "file:dep"}}`, 0o644)
	b.write("package-lock.json", `{"name": "app", "version": "1.0.0", "lockfileVersion": 3, "requires": true, "packages": {
  "": {"name": "app", "version": "1.0.0", "dependencies": {"dep": "file:dep"}},
  "dep": {"version": "1.0.0"},
  "node_modules/dep": {"resolved": "dep", "link": true}
}}`, 0o644)
	b.write("dep/package.json", `{"name": "dep", "version": "1.0.0", "main": "index.js"}`, 0o644)
	b.write("dep/index.js", "module.exports = 42\n", 0o644)
	b.write("test.js", "if (require('dep') !== 42) process.exit(1)\nconst fs = require('fs'), home = require('os').homedir()\nconsole.log(fs.readFileSync(home + '/fixtures/one', 'utf8'))\n", 0o644)
}

func TestLearnedPolicyOfAnNpmProjectIsShortAndHolds(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("node"), testenv.Program("npm"))
	b := newBench(t)
	b.ownGroup()
	npmProject(b)
	b.inHome("fixtures/one", "1")
	b.inHome(".npmrc", "fund=false\n")
	got := b.run("learn", "--prove", "-c", "npm ci && npm test")
	if got.status != 0 || !strings.Contains(got.stderr, "bailey: proved: ") {
		t.Errorf("%+v", got)
	}
	if lines := strings.Count(got.stdout, "\n"); lines >= 30 {
		t.Errorf("%d lines:\n%s", lines, got.stdout)
	}
	p, err := policy.Parse("stdout", []byte(got.stdout))
	if err != nil || !slices.Equal(p.Filesystem.AllowRead, []string{"~/fixtures/one"}) || p.Filesystem.AllowWrite != nil {
		t.Errorf("error %v, got\n%s", err, got.stdout)
	}
	if !strings.Contains(got.stdout, "// looks like a secret, not granted: ~/.npmrc") {
		t.Errorf("got\n%s", got.stdout)
	}
}
