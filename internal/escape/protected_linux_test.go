package escape

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// existing are protected files below the project, all present before the run.
// One that appears later is not held by these walls but by a broker that looks
// at names.
var existing = []string{
	".git/config", ".git/hooks/pre-commit", ".vscode/tasks.json", ".claude/settings.json", ".mcp.json", ".envrc", ".bashrc", "bailey.jsonc",
}

func newProtectedBox(t *testing.T) (b *box, paths []string) {
	b = newBox(t)
	for _, name := range existing {
		path := filepath.Join(b.project, name)
		text := "original"
		if name == "bailey.jsonc" {
			text = "{}"
		}
		b.write(path, text)
		paths = append(paths, path)
	}
	return b, paths
}

func TestProtectedFileIsNotWritten(t *testing.T) {
	b, paths := newProtectedBox(t)
	for _, v := range paths {
		unchanged(t, func() { b.attack("write", v, "") }, paths...)
	}
	if got, _ := filepath.Glob(b.project + "/.*/*.*.*"); len(got) > 0 {
		t.Errorf("files appeared in protected directories: %q", got)
	}
}

// renames are shell lines, run in the project, that move a protected path or a
// directory above it and put something else in its place.
var renames = []struct {
	name string
	line string
	// Without a sandbox the file then says evil.
	path string
}{
	{"parent copied", "mv .git g; cp -r g .git; echo evil > .git/hooks/pre-commit", ".git/hooks/pre-commit"},
	{"parent made anew", "mv .git g; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit", ".git/hooks/pre-commit"},
	{"parent removed", "rm -rf .git; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit", ".git/hooks/pre-commit"},
	{"hooks moved", "mv .git/hooks .git/h; mkdir .git/hooks; echo evil > .git/hooks/pre-commit", ".git/hooks/pre-commit"},
	{"parent linked", "mkdir -p g/hooks; echo evil > g/hooks/pre-commit; mv .git old; ln -s g .git", ".git/hooks/pre-commit"},
	{"repository pointed elsewhere", "mkdir g; mv .git g/.git; echo evil > .git", ".git"},
	{"config replaced", "echo evil > c; mv -f c .git/config", ".git/config"},
	{"config removed", "rm -f .git/config; echo evil > .git/config", ".git/config"},
	{"config linked", "echo evil > c; ln -sf $PWD/c .git/config", ".git/config"},
	{"settings made anew", "mv .claude c; mkdir .claude; echo evil > .claude/settings.json", ".claude/settings.json"},
	{"settings removed", "rm -rf .vscode; mkdir .vscode; echo evil > .vscode/tasks.json", ".vscode/tasks.json"},
	{"denied file's parent", "mv a b; mkdir -p a/sub; echo evil > a/sub/denied", "a/sub/denied"},
	{"denied file's nearest parent", "mv a/sub b; mkdir a/sub; echo evil > a/sub/denied", "a/sub/denied"},
	{"project by another name", "cd ..; mv project p; mkdir -p project/a/sub; echo evil > project/a/sub/denied", "a/sub/denied"},
}

func newRenameBox(t *testing.T) (b *box, held []string) {
	b, held = newProtectedBox(t)
	b.write(b.project+"/a/sub/denied", "original")
	b.policy = `{"filesystem": {"denyWrite": ["a/sub/denied"]}}`
	for i, path := range held {
		// With their directories, but for .git, which git must be able to use.
		if dir := filepath.Dir(path); dir != b.project && filepath.Base(dir) != ".git" {
			held[i] = dir
		}
	}
	return b, append(held, b.project+"/a/sub/denied")
}

func TestRenamedParentStaysProtected(t *testing.T) {
	for _, r := range renames {
		t.Run(r.name, func(t *testing.T) {
			b, held := newRenameBox(t)
			var before, after unix.Stat_t
			must(t, unix.Lstat(b.project+"/.git", &before))
			unchanged(t, func() { b.run("sh", "-c", r.line) }, held...)
			if err := unix.Lstat(b.project+"/.git", &after); err != nil || before.Ino != after.Ino {
				t.Errorf(".git is another directory: %v", err)
			}

			free := b.freeCommand("")
			free.Path, free.Args = "/bin/sh", []string{"sh", "-c", r.line}
			b.runFree(free)
			if got, _ := os.ReadFile(filepath.Join(b.project, r.path)); string(got) != "evil\n" {
				t.Errorf("control: %s is %q, so this line shows nothing", r.path, got)
			}
		})
	}
}

// exchanges swap a protected path with one of the attacker's in a single step,
// which leaves no moment in which a name is free.
var exchanges = [][2]string{
	{".git", "decoy"},
	{".git/hooks", "decoy/hooks"},
	{".git/config", "decoy/config"},
	{".mcp.json", "decoy/config"},
	{"a", "decoy"},
	{"a/sub", "decoy/hooks"},
	{"a/sub/denied", "decoy/config"},
}

func init() {
	attacks["exchange"] = func(args []string) {
		report("exchange", unix.Renameat2(unix.AT_FDCWD, args[0], unix.AT_FDCWD, args[1], unix.RENAME_EXCHANGE))
		// By descriptors taken before, too.
		from, err := unix.Open(filepath.Dir(args[0]), unix.O_PATH|unix.O_DIRECTORY, 0)
		report("open", err)
		to, err := unix.Open(filepath.Dir(args[1]), unix.O_PATH|unix.O_DIRECTORY, 0)
		report("open", err)
		report("exchange by descriptor", unix.Renameat2(from, filepath.Base(args[0]), to, filepath.Base(args[1]), unix.RENAME_EXCHANGE))
	}
}

func TestExchangedPathStaysProtected(t *testing.T) {
	for _, x := range exchanges {
		t.Run(x[0], func(t *testing.T) {
			b, held := newRenameBox(t)
			b.write(b.project+"/decoy/config", "evil")
			b.write(b.project+"/decoy/hooks/pre-commit", "evil")
			unchanged(t, func() { b.attack("exchange", x[0], x[1]) }, held...)

			before := inode(t, filepath.Join(b.project, x[0]))
			must(t, unix.Renameat2(unix.AT_FDCWD, filepath.Join(b.project, x[0]), unix.AT_FDCWD, filepath.Join(b.project, x[1]), unix.RENAME_EXCHANGE))
			if before == inode(t, filepath.Join(b.project, x[0])) {
				t.Errorf("control: the exchange does nothing")
			}
		})
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	return st.Ino
}

// refused expects that a command does not even start, with an error that says
// why, and that nothing ran.
func (b *box) refused(why string) {
	b.t.Helper()
	m, err := b.manager()
	if err == nil {
		err = m.Command("sh", "-c", "echo ran > "+loot+"/ran").Run()
	}
	if err == nil || !strings.Contains(err.Error(), why) {
		b.t.Errorf("got error %v, want one about %q", err, why)
	}
	b.expectNoLoot()
}

// expectRuns is the control of refused.
func (b *box) expectRuns() {
	b.t.Helper()
	b.run("sh", "-c", "echo ran > "+loot+"/ran")
	b.expectLoot("ran")
}

func TestHardLinkMadeBeforeIsRefused(t *testing.T) {
	for _, name := range []string{".git/config", ".git/hooks/pre-commit", ".mcp.json", ".claude/settings.json", "a/sub/denied"} {
		t.Run(name, func(t *testing.T) {
			b, _ := newRenameBox(t)
			b.expectRuns()
			must(t, os.Link(filepath.Join(b.project, name), b.project+"/innocent"))
			b.refused("hard link")
		})
	}
}

func init() {
	// alias shows a directory a second time and starts a sandbox there: the
	// mount is the host's, as far as the sandbox is concerned.
	attacks["alias"] = func(args []string) {
		project, source := args[0], args[1]
		report("bind", unix.Mount(source, project+"/alias", "", unix.MS_BIND, ""))
		m := bailey.New(bailey.Config{Dir: project})
		report("initialize", m.Initialize())
		out, err := m.Command("sh", "-c", "echo evil > alias/pre-commit; echo evil > alias/hooks/pre-commit").CombinedOutput()
		fmt.Printf("%s", out)
		report("run", err)
		// For control: the alias does lead there.
		if len(args) > 2 {
			report("write", os.WriteFile(project+"/alias/pre-commit", []byte("evil"), 0o755))
		}
	}
}

func TestBindOfAProtectedDirectoryIsRefused(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b, held := newRenameBox(t)
	must(t, os.Mkdir(b.project+"/alias", 0o755))
	for _, source := range []string{".git/hooks", ".git"} {
		unchanged(t, func() {
			out := b.runFree(namespaced(b.freeCommand("alias", b.project, filepath.Join(b.project, source))))
			if !strings.Contains(out, "bind: done") || !strings.Contains(out, "initialize: done") {
				t.Errorf("control: the attack was not made")
			}
		}, held...)
	}
	b.runFree(namespaced(b.freeCommand("alias", b.project, b.project+"/.git/hooks", "control")))
	if got, _ := os.ReadFile(b.project + "/.git/hooks/pre-commit"); string(got) != "evil" {
		t.Errorf("control: the alias leads nowhere")
	}
}

func TestBaileysOwnFilesAreNotWritten(t *testing.T) {
	b := newBox(t)
	own := []string{b.home + "/.config/bailey/bailey.jsonc", b.home + "/.local/state/bailey/trust.json"}
	b.write(own[0], "{}")
	b.write(own[1], `{"version": 1, "pins": []}`)
	b.write(b.home+"/.config/other/file", "original")
	// Even a policy that grants the directories around them.
	b.policy = `{"filesystem": {"allowWrite": ["~/.config", "~/.local"]}}`
	watched := []string{b.home + "/.config/bailey", b.home + "/.local/state/bailey"}
	if isContainer() {
		watched[1] = own[1] // beside it is the log of what the sandbox was refused
	}
	for _, v := range own {
		unchanged(t, func() { b.attack("write", v, "") }, watched...)
	}
	for _, line := range []string{
		"cd ~/.config && mv bailey b && mkdir bailey && echo evil > bailey/bailey.jsonc",
		"cd ~/.local && mv state s && mkdir -p state/bailey && echo evil > state/bailey/trust.json",
	} {
		unchanged(t, func() { b.run("sh", "-c", line) }, watched...)
	}
	b.attack("write", b.home+"/.config/other/file", "absolute path")
	if got, _ := os.ReadFile(b.home + "/.config/other/file"); string(got) != "evil" {
		t.Errorf("control: what is granted beside them is %q, want evil", got)
	}
}

func init() {
	// launch is an embedding program: it runs a command in a sandbox.
	attacks["launch"] = func(args []string) {
		dir, policy, argv := args[0], args[1], args[2:]
		m := bailey.New(bailey.Config{Dir: dir, Policy: policy})
		if err := m.Initialize(); err != nil {
			report("initialize", err)
			return
		}
		c := m.Command(argv[0], argv[1:]...)
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		report("run", c.Run())
	}
}

func TestLaunchingProgramIsNotReplaced(t *testing.T) {
	b := newBox(t)
	launcher := b.project + "/tools/launcher"
	must(t, os.Mkdir(b.project+"/tools", 0o755))
	copyProgram(t, launcher)
	// A program that runs cannot be written, whoever tries: replace it.
	lines := []string{
		"echo evil > evil; mv -f evil tools/launcher", "rm -f tools/launcher", "chmod 777 tools/launcher",
		"mv tools t; mkdir tools; cp t/launcher tools; echo >> tools/launcher",
	}
	for _, line := range lines {
		launch := b.freeCommand("launch", b.project, "", "sh", "-c", line)
		launch.Path = launcher
		unchanged(t, func() { b.runFree(launch) }, launcher)
	}
	// The same file is the attacker's to change when another program launches.
	b.run("sh", "-c", lines[0])
	if got, _ := os.ReadFile(launcher); string(got) != "evil\n" {
		t.Errorf("control: the file was not replaced")
	}
}

// disguises are shell lines that make git find a repository of the attacker's in the
// project: before, makes it what the line starts from, on the host.
var disguises = []struct{ name, before, line string }{
	{"parts beside .git", "git init -q .", "cp .git/HEAD h; mv .git/HEAD .git/x; cp -r .git/objects .git/refs .; cp h HEAD; " + configured},
	{"garbage in .git", "git init -q .", "echo ref: refs/heads/x > h; echo > .git/HEAD; cp -r .git/objects .git/refs .; mv h HEAD; " + configured},
	{"links to .git", "git init -q .", "echo ref: refs/heads/x > h; rm .git/HEAD; ln -s .git/objects; ln -s .git/refs; ln h HEAD; " + configured},
	{"no .git", "true", "git init -q --bare b; cp -r b/* .; " + configured},
	{"directories came before", "mkdir objects refs", "echo ref: refs/heads/x > HEAD; " + configured},
	{"a file of that name", "echo ref: refs/heads/x > HEAD", "mkdir objects refs; " + configured},
	{"repository without .git", "git init -q --bare .", configured},
	{"one that lacks a part", "git init -q --bare .; mv HEAD x", "mv x HEAD; " + configured},
}

// configured has git run a program of the attacker's at the next git status.
const configured = `printf '[core]\nrepositoryformatversion = 0\nbare = false\nworktree = %s\nfsmonitor = touch %s/ran; false\n' "$PWD" "$PWD" > config`

func TestProjectBecomesNoRepositoryOfTheCommand(t *testing.T) {
	for _, d := range disguises {
		t.Run(d.name, func(t *testing.T) {
			b := newBox(t)
			inProject := func(line string) {
				c := exec.Command("sh", "-c", line)
				c.Dir = b.project
				c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
				b.runFree(c)
			}
			ran := b.project + "/ran"
			inProject("rm -rf .git; " + d.before)
			b.run("sh", "-c", d.line)
			inProject("git status")
			if _, err := os.Lstat(ran); err == nil {
				t.Error("git ran a program of the sandbox's")
			}
			inProject(d.line + "; git status")
			if _, err := os.Lstat(ran); err != nil {
				t.Errorf("control: git runs nothing (%v), so this line shows nothing", err)
			}
		})
	}
}
