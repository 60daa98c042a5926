//go:build !race

// Not with the race detector: this program is then its own probe inside, behind limits of
// memory and processors that are not meant for it.

package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bailey-sandbox/bailey/internal/bench/walls"
	"github.com/bailey-sandbox/bailey/internal/sandbox/oci"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// This program is the probe and the launcher of its own runs.
func TestMain(m *testing.M) {
	if status, is := oci.Become(); is {
		os.Exit(status)
	}
	if len(os.Args) > 1 && os.Args[1] == probeWord {
		os.Exit(probe(os.Args[2:]))
	}
	if os.Args[0] == launcherName {
		os.Exit(launcher())
	}
	os.Exit(m.Run())
}

// measured runs the bench and returns its exit status and what it wrote.
func measured(t *testing.T, runtimes ...string) (int, *walls.Results) {
	t.Helper()
	testenv.Requires(t, testenv.UserNamespaces)
	work, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("BENCH_ROOTFS", libraries(t))
	o := &options{
		bin: filepath.Dir(testenv.Binary(t, "bailey")), out: filepath.Join(work, "out"), work: work,
		iterations: 1, runtimes: runtimes, commit: "none", warmOnly: true, // others use this machine
	}
	if err := o.environment(); err != nil {
		t.Fatal(err)
	}
	status, err := perform(o)
	if err != nil {
		t.Fatal(err)
	}
	results, err := walls.Read(filepath.Join(o.out, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"results.md", "methodology.txt"} {
		if text, err := os.ReadFile(filepath.Join(o.out, name)); err != nil || len(text) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
	return status, results
}

// libraries makes a root directory with what this program is linked with: a test, unlike
// the bench itself, may be linked dynamically.
func libraries(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"bin", "etc", "lib", "usr"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command("/usr/bin/ldd", self).Output() // which fails for what is static
	for word := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(word, "/") {
			continue
		}
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(word)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := copyFile(word, filepath.Join(root, word), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// of returns what was seen of a runtime.
func of(t *testing.T, r *walls.Results, name string) *walls.Runtime {
	t.Helper()
	for i := range r.Runtimes {
		if r.Runtimes[i].Name == name {
			return &r.Runtimes[i]
		}
	}
	t.Fatalf("nothing is said of %s", name)
	return nil
}

func TestARuntimeThatWorksIsMeasuredWhole(t *testing.T) {
	testenv.Requires(t, testenv.Program("crun"))
	status, results := measured(t, "native", "crun")
	if status != 0 {
		t.Errorf("status %d", status)
	}
	for name, modes := range map[string][]string{
		walls.Unsandboxed: {walls.Warm}, "bailey native": {walls.Warm, walls.Exec},
		"crun": {walls.Warm, walls.Exec}, "bailey crun": {walls.Warm, walls.Pool},
	} {
		seen := of(t, results, name)
		for _, line := range seen.Broken() {
			t.Errorf("%s: %s", name, line)
		}
		for _, mode := range modes {
			if total := seen.Find(mode, walls.PhaseTotal); total == nil || total.Min <= 0 {
				t.Errorf("%s: nothing was measured %s", name, mode)
			}
		}
		if m := seen.Memory; m == nil || m.USS <= 0 || m.PSS < m.USS || m.RSS < m.PSS {
			t.Errorf("%s: memory %+v", name, m)
		}
		if len(seen.Work) != 2 || seen.Work[0].P50 <= 0 || seen.Work[1].P50 <= 0 {
			t.Errorf("%s: work %+v", name, seen.Work)
		}
	}
	for _, phase := range walls.Phases {
		if of(t, results, "crun").Find(walls.Warm, phase) == nil {
			t.Errorf("crun: %s is not told apart", phase)
		}
	}
}

// pretend is a runtime in Python that does something where the command should run.
const pretend = `#!/usr/bin/env python3
import json, os, sys
args = sys.argv
verb = next(a for a in args if a in ("create", "start", "delete", "run", "exec", "kill"))
if verb == "create":
    os.mkfifo("/run/begin")
    pid = os.fork()
    if pid == 0:
        os.setsid()
        open("/run/begin").read()
        config = json.load(open("/run/config.json"))
        words = config["process"]["args"]
        argv = words[4 + int(words[3]):]
        @
        os._exit(0)
    with open(args[args.index("--pid-file") + 1], "w") as f:
        f.write(str(pid))
elif verb == "start":
    open("/run/begin", "w").close()
elif verb == "run":
    sys.exit("no sandbox here")
`

func TestABrokenRuntimeIsReported(t *testing.T) {
	testenv.Requires(t, testenv.Program("python3"))
	for _, c := range []struct{ name, script, want string }{
		{"fails", "#!/bin/sh\necho 'no such platform' >&2\nexit 1\n", "could not start: did not end with status 0"},
		{"says nothing", strings.Replace(pretend, "@", "pass", 1), "the nonce came back as nothing"},
		{"says something else", strings.Replace(pretend, "@", `os.write(1, b"nonce-of-another\n")`, 1), `the nonce came back as "nonce-of-another"`},
		{"ends with another status", strings.Replace(pretend, "@", `os.write(1, argv[2].encode() + b"\n"); os._exit(3)`, 1), "the sandbox ended with 0x300"},
		{"has no walls", strings.Replace(pretend, "@", `os.execv("/run/sources/init", argv)`, 1), "no new privileges is no, must be yes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "runsc"), []byte(c.script), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			status, results := measured(t, "runsc-systrap")
			seen := of(t, results, "runsc-systrap")
			if got := strings.Join(seen.Broken(), "\n"); status != exitBroken || !strings.Contains(got, c.want) {
				t.Errorf("status %d, %q; want %d and %q", status, got, exitBroken, c.want)
			}
			if len(seen.Launch) != 0 || len(seen.Work) != 0 {
				t.Errorf("what does not stand was timed: %+v", seen.Launch)
			}
			if of(t, results, walls.Unsandboxed).Find(walls.Warm, walls.PhaseTotal) == nil {
				t.Error("the rest was not measured")
			}
		})
	}
}

// A runtime that stops working after its boundary was looked at has failures and no
// figures.
func TestLaunchesThatFailAreCountedAndInNoFigure(t *testing.T) {
	testenv.Requires(t, testenv.Program("crun"))
	crun, err := exec.LookPath("crun")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := `#!/bin/sh
case " $* " in *" create "*) echo x >>` + dir + `/count; [ "$(wc -l <` + dir + `/count)" -le ` + boundaryLaunches() + ` ] || exit 1 ;; esac
exec ` + crun + ` "$@"
`
	if err := os.WriteFile(filepath.Join(dir, "crun"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	status, results := measured(t, "crun")
	seen := of(t, results, "crun")
	if status != exitBroken || len(seen.Launch) == 0 {
		t.Fatalf("status %d, %+v", status, seen)
	}
	for _, l := range seen.Launch {
		if l.Failures == 0 || l.Failures != l.Attempts || len(l.Phases) != 0 || len(l.Reasons) == 0 {
			t.Errorf("%s: %+v", l.Mode, l)
		}
	}
}

// boundaryLaunches is how often a runtime is launched to look at its boundary.
func boundaryLaunches() string {
	if os.Geteuid() != 0 {
		return "1" // there are no limits to be tried
	}
	return "4"
}

func TestARuntimeThatIsMissingIsReported(t *testing.T) {
	t.Setenv("PATH", "/nowhere")
	status, results := measured(t, "runc")
	if seen := of(t, results, "runc"); status != exitBroken || !strings.Contains(seen.Missing, "runc is not installed") {
		t.Errorf("status %d, %+v", status, seen)
	}
}

func TestTheRootDirectoryComesFromAnImage(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "image.tar")
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	const text = "of an image"
	if err := w.WriteHeader(&tar.Header{Name: "etc/marker", Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(archive, name.MustParseReference("bench.test/image:1"), img); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "root")
	what, err := stageRoot(&options{image: archive}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(dir + "/etc/marker"); err != nil || string(got) != text || !strings.Contains(what, "sha256:") {
		t.Errorf("%q, %v; it is %q", got, err, what)
	}
	again := filepath.Join(t.TempDir(), "root")
	if _, err := stageRoot(&options{rootfs: dir}, again); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(again + "/etc/marker"); err != nil || string(got) != text {
		t.Errorf("from a directory: %q, %v", got, err)
	}
}

func TestSettingsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, c := range []struct {
		variable, value string
		args            []string
	}{
		{"BENCH_MEM_MB", "little", nil},
		{"BENCH_MEM_MB", "1", nil},
		{"BENCH_CPUS", "-1", nil},
		{"BENCH_CPUS", "NaN", nil},
		{"BENCH_CPUS", "inf", nil},
		{"", "", []string{"--iterations", "0"}},
		{"", "", []string{"--runtimes", "runk"}},
		{"", "", []string{"more"}},
	} {
		t.Run(c.variable+c.value+strings.Join(c.args, ""), func(t *testing.T) {
			if c.variable != "" {
				t.Setenv(c.variable, c.value)
			}
			if o, err := parse(append([]string{"--out", "o", "--work", "w"}, c.args...)); err == nil {
				t.Errorf("taken: %+v", o)
			}
		})
	}
	o, err := parse([]string{"--out", "o", "--work", "w", "--runtimes", "runc,runsc,docker+runsc"})
	if err != nil || strings.Join(o.runtimes, " ") != "runc runsc-systrap runsc-ptrace docker+runsc" || o.iterations != 50 {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestProgramsThatAreNotThereAreRefusedAtOnce(t *testing.T) {
	script := filepath.Join(testenv.ModuleRoot(t), "scripts/bench/sandbox-bench.sh")
	for _, args := range [][]string{{"--bin", "/nope"}, {"--bin=/nope"}} {
		c := exec.Command(script, args...)
		c.Env = []string{"PATH=" + os.Getenv("PATH"), "BENCH_WORK=/nope"} // it gets nowhere else
		if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "--bin /nope: no bailey there; ") {
			t.Errorf("%q: %v, %s", args, err, out)
		}
	}
}

func TestRollupIsRead(t *testing.T) {
	const text = "55d0-7ffc ---p 00000000 00:00 0    [rollup]\nRss:    900 kB\nPss:    500 kB\nPss_Dirty: 3 kB\nShared_Clean: 400 kB\nPrivate_Clean: 100 kB\nPrivate_Dirty: 30 kB\n"
	if rss, pss, uss := parseRollup(text); rss != 900 || pss != 500 || uss != 130 {
		t.Errorf("got %d, %d, %d", rss, pss, uss)
	}
}
