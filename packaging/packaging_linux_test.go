// Package packaging tests what Bailey is delivered as.
package packaging

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// asInstalled is run by root of a machine that is a copy of this one: it installs
// the package with the system's own tools, tries what it brought, and removes it.
// Before and after, the same files are there.
const asInstalled = `set -eu
unset TMPDIR
list() { find /usr /etc /opt /var -xdev \( -path /var/lib/dpkg -o -path /var/log -o -path /var/cache -o -path /var/tmp \) -prune -o -print | sort; }
list >/tmp/before
dpkg -i /package/*.deb
bailey --version
man -w bailey
test -s /usr/share/bash-completion/completions/bailey
test -s /usr/share/zsh/vendor-completions/_bailey
test -s /usr/share/fish/vendor_completions.d/bailey.fish
test -s /etc/apparmor.d/bailey
dpkg --verify bailey
dpkg -P bailey
list >/tmp/after
diff /tmp/before /tmp/after
`

func TestDebianPackageIsInstalledAndRemoved(t *testing.T) {
	testenv.Requires(t, testenv.Root, testenv.Modules, testenv.NoRace, testenv.Program("dpkg-deb"), testenv.Program("man"))
	dir := t.TempDir()
	run(t, "scripts/package-deb", "--output", filepath.Join(dir, "package"))
	// A machine of its own: this one's files below, all changes in memory.
	script := `set -eu
mount -t tmpfs none "$0"
mkdir "$0/upper" "$0/work" "$0/root"
mount -t overlay none -o lowerdir=/,upperdir="$0/upper",workdir="$0/work" "$0/root"
mount -t proc none "$0/root/proc"
mount -t tmpfs none "$0/root/tmp"
mkdir "$0/root/package"
mount --bind "$1" "$0/root/package"
exec chroot "$0/root" sh -c "$2"`
	root := filepath.Join(dir, "machine")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, root, filepath.Join(dir, "package"), asInstalled)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"bailey ", "/usr/share/man/man1/bailey.1"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("the output lacks %q: %s", want, out)
		}
	}
}

func TestEveryWayOfGettingItHasEveryProgram(t *testing.T) {
	programs, err := os.ReadDir("../cmd")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"../.goreleaser.yaml", "../Makefile", "../scripts/package-deb", "container/Dockerfile"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range programs {
			if !regexp.MustCompile(`/` + p.Name() + `[^\w-]`).Match(text) {
				t.Errorf("%s: %s is missing", file, p.Name())
			}
		}
	}
}

func TestPackageForTheOtherArchitectureIsBuilt(t *testing.T) {
	testenv.Requires(t, testenv.Modules, testenv.NoRace, testenv.Program("dpkg-deb"))
	dir := t.TempDir()
	run(t, "scripts/package-deb", "--arch", "arm64", "--output", dir)
	files, err := filepath.Glob(filepath.Join(dir, "bailey_*_arm64.deb"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	out, err := exec.Command("dpkg-deb", "--contents", files[0]).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"./usr/bin/bailey\n", "./usr/bin/baileyd\n", "./usr/bin/bailey-gate\n", "root/root"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("the package lacks %q:\n%s", want, out)
		}
	}
}

// A step of GitHub Actions: its files are the runner's, its secrets are not.
func TestActionRunsAStepInASandbox(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	temp := t.TempDir()
	if err := os.Symlink(filepath.Dir(testenv.Binary(t, "bailey")), filepath.Join(temp, "bailey")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		env  []string
		ok   bool
		want string
	}{
		{"a step", []string{"BAILEY_ACTION_RUN=echo one\necho two"}, true, "one\ntwo\n"},
		{"one that fails in its first line", []string{"BAILEY_ACTION_RUN=false\necho two"}, false, ""},
		{"one that looks for a secret", []string{"BAILEY_ACTION_RUN=echo \"[$GITHUB_TOKEN]\"", "GITHUB_TOKEN=ghs_0123456789abcdefghijklmnopqrstuvwxyz"}, true, "[]\n"},
		{"a preset and a flag", []string{"BAILEY_ACTION_RUN=touch x 2>/dev/null || echo read-only; echo $A", "BAILEY_ACTION_PRESET=locked", "BAILEY_ACTION_FLAGS=-q --env A=b"}, true, "read-only\nb\n"},
		{"no lines", []string{"BAILEY_ACTION_RUN="}, false, ""},
	} {
		project, err := os.MkdirTemp(home(t), "bailey-action-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(project) })
		cmd := exec.Command(filepath.Join(testenv.ModuleRoot(t), "packaging/action/run"))
		cmd.Dir = project
		cmd.Env = append(append(os.Environ(), "RUNNER_TEMP="+temp), c.env...)
		out, err := cmd.Output()
		if (err == nil) != c.ok || string(out) != c.want {
			t.Errorf("%s: %q, %v", c.name, out, err)
		}
	}
}

func home(t *testing.T) string {
	t.Helper()
	dir, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDevcontainerFeatureInstalls(t *testing.T) {
	testenv.Requires(t, testenv.Modules, testenv.NoRace)
	root, dir := testenv.ModuleRoot(t), t.TempDir()
	feature := filepath.Join(root, "packaging/devcontainer/src/bailey")
	data, err := os.ReadFile(filepath.Join(feature, "devcontainer-feature.json"))
	if err != nil {
		t.Fatal(err)
	}
	var about struct{ ID, Version, Name string }
	if err := json.Unmarshal(data, &about); err != nil || about.ID != "bailey" {
		t.Fatalf("%+v, %v", about, err)
	}
	cmd := exec.Command(filepath.Join(feature, "install.sh"))
	cmd.Env = append(os.Environ(), "SOURCE="+root, "DESTDIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(filepath.Join(dir, "usr/local/bin/bailey"), "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "bailey ") {
		t.Errorf("%q, %v", out, err)
	}
}

// run runs a program of the repository.
func run(t *testing.T, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(testenv.ModuleRoot(t), program), args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
}
