//go:build linux

package sandbox_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/trace"
)

// The second layer of the benchmarks (see docs/benchmarking.md): what the Go API
// costs, without a program of its own to start. A cold sandbox is made for one
// command by a Manager that was just made; a warm one by a Manager that is kept;
// in a box nothing is made at all.

// job is a command of the kind that agents run.
type job struct {
	name string
	argv []string
}

// jobs are the commands of every group. They run in the directory that newProject
// makes.
var jobs = []job{
	{"True", []string{"true"}},
	{"Echo", []string{"echo", "hello"}},
	{"Python", []string{"python3", "-c", "pass"}},
	{"Node", []string{"node", "-e", ""}},
	{"GitStatus", []string{"git", "status", "--porcelain"}},
	{"Rg", []string{"rg", "--no-config", "-c", "needle", "."}},
	{"FileCreate", []string{"sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do : >made$i; done; rm made*"}},
}

func BenchmarkBaseline_True(b *testing.B)       { baseline(b, 0) }
func BenchmarkBaseline_Echo(b *testing.B)       { baseline(b, 1) }
func BenchmarkBaseline_Python(b *testing.B)     { baseline(b, 2) }
func BenchmarkBaseline_Node(b *testing.B)       { baseline(b, 3) }
func BenchmarkBaseline_GitStatus(b *testing.B)  { baseline(b, 4) }
func BenchmarkBaseline_Rg(b *testing.B)         { baseline(b, 5) }
func BenchmarkBaseline_FileCreate(b *testing.B) { baseline(b, 6) }

func BenchmarkColdSandbox_True(b *testing.B)       { cold(b, 0) }
func BenchmarkColdSandbox_Echo(b *testing.B)       { cold(b, 1) }
func BenchmarkColdSandbox_Python(b *testing.B)     { cold(b, 2) }
func BenchmarkColdSandbox_Node(b *testing.B)       { cold(b, 3) }
func BenchmarkColdSandbox_GitStatus(b *testing.B)  { cold(b, 4) }
func BenchmarkColdSandbox_Rg(b *testing.B)         { cold(b, 5) }
func BenchmarkColdSandbox_FileCreate(b *testing.B) { cold(b, 6) }

func BenchmarkWarmSandbox_True(b *testing.B)       { warm(b, 0) }
func BenchmarkWarmSandbox_Echo(b *testing.B)       { warm(b, 1) }
func BenchmarkWarmSandbox_Python(b *testing.B)     { warm(b, 2) }
func BenchmarkWarmSandbox_Node(b *testing.B)       { warm(b, 3) }
func BenchmarkWarmSandbox_GitStatus(b *testing.B)  { warm(b, 4) }
func BenchmarkWarmSandbox_Rg(b *testing.B)         { warm(b, 5) }
func BenchmarkWarmSandbox_FileCreate(b *testing.B) { warm(b, 6) }

func BenchmarkBox_True(b *testing.B)       { inBox(b, 0) }
func BenchmarkBox_Echo(b *testing.B)       { inBox(b, 1) }
func BenchmarkBox_Python(b *testing.B)     { inBox(b, 2) }
func BenchmarkBox_Node(b *testing.B)       { inBox(b, 3) }
func BenchmarkBox_GitStatus(b *testing.B)  { inBox(b, 4) }
func BenchmarkBox_Rg(b *testing.B)         { inBox(b, 5) }
func BenchmarkBox_FileCreate(b *testing.B) { inBox(b, 6) }

func BenchmarkManagerInitialize(b *testing.B) {
	dir := newProject(b)
	b.ReportAllocs()
	for b.Loop() {
		initialized(b, dir)
	}
}

func BenchmarkWrapCommand(b *testing.B) {
	// It only names the program, whichever that is.
	program, err := os.Executable()
	check(b, err)
	m := bailey.New(bailey.Config{Dir: newProject(b), Policy: "{}", Binary: program})
	check(b, m.Initialize())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.WrapCommand("true"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCompile is what a policy and the facts of a host cost to become a Spec. It
// is a part of every launch; internal/spec has one that runs on every system.
func BenchmarkCompile(b *testing.B) {
	facts, err := host.New()
	check(b, err)
	facts.Caller.Dir = newProject(b)
	p := policy.Default()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := spec.Compile(p, facts, spec.Command{Argv: []string{"true"}}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOverhead has the four ways to run a command beside each other.
func BenchmarkOverhead(b *testing.B) {
	for i, j := range jobs {
		b.Run(j.name+"/baseline", func(b *testing.B) { baseline(b, i) })
		b.Run(j.name+"/cold", func(b *testing.B) { cold(b, i) })
		b.Run(j.name+"/warm", func(b *testing.B) { warm(b, i) })
		b.Run(j.name+"/box", func(b *testing.B) { inBox(b, i) })
	}
}

// BenchmarkTraceMark is what a moment costs while a launch is recorded, and
// BenchmarkTraceOff while it is not.
func BenchmarkTraceMark(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		log := trace.Open(os.DevNull, 0)
		for range 20 {
			log.Mark("part")
		}
	}
}

func BenchmarkTraceOff(b *testing.B) {
	var log *trace.Log
	b.ReportAllocs()
	for b.Loop() {
		for range 20 {
			log.Mark("part")
		}
	}
}

func baseline(b *testing.B, i int) {
	dir, argv := newProject(b), found(b, i)
	for b.Loop() {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = dir, environ()
		check(b, cmd.Run())
	}
}

func cold(b *testing.B, i int) {
	dir, argv := newProject(b), found(b, i)
	for b.Loop() {
		m := initialized(b, dir)
		check(b, m.Command(argv[0], argv[1:]...).Run())
		check(b, m.Cleanup())
	}
}

func warm(b *testing.B, i int) {
	argv := found(b, i)
	m := initialized(b, newProject(b))
	for b.Loop() {
		check(b, m.Command(argv[0], argv[1:]...).Run())
	}
	check(b, m.Cleanup())
}

func inBox(b *testing.B, i int) {
	argv := found(b, i)
	m := initialized(b, newProject(b))
	box, err := m.Open()
	check(b, err)
	for b.Loop() {
		check(b, box.Command(argv[0], argv[1:]...).Run())
	}
	check(b, m.Cleanup())
}

// found returns a job's command with the program itself, past the shims of version
// managers.
func found(b *testing.B, i int) []string {
	b.Helper()
	argv := jobs[i].argv
	real := map[string][]string{
		"python3": {"python3", "-c", "import sys; print(sys.executable)"},
		"node":    {"node", "-p", "process.execPath"},
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		b.Skipf("%s is not installed", argv[0])
	}
	if ask := real[argv[0]]; ask != nil {
		out, err := exec.Command(ask[0], ask[1:]...).Output()
		check(b, err)
		path = strings.TrimSpace(string(out))
	}
	return append([]string{path}, argv[1:]...)
}

func initialized(b *testing.B, dir string) *bailey.Manager {
	b.Helper()
	m := bailey.New(bailey.Config{Dir: dir, Policy: "{}", Env: environ()})
	check(b, m.Initialize())
	return m
}

// environ is what every variant starts from. Bailey keeps most variables out, and one
// that slows a program down would otherwise slow down only what it is compared with.
func environ() []string {
	var small []string
	for _, name := range []string{"HOME", "USER", "LOGNAME", "PATH", "LANG"} {
		if value, ok := os.LookupEnv(name); ok {
			small = append(small, name+"="+value)
		}
	}
	return small
}

// newProject makes a small repository. It is not below /tmp, which is private to
// each sandbox.
func newProject(b *testing.B) string {
	b.Helper()
	base, err := os.UserCacheDir()
	check(b, err)
	check(b, os.MkdirAll(base, 0o755))
	dir, err := os.MkdirTemp(base, "bailey-benchmark-")
	check(b, err)
	b.Cleanup(func() { check(b, os.RemoveAll(dir)) })
	for i := range 100 {
		file := filepath.Join(dir, "src", strconv.Itoa(i%10), fmt.Sprintf("%d.txt", i))
		check(b, os.MkdirAll(filepath.Dir(file), 0o755))
		check(b, os.WriteFile(file, []byte(strings.Repeat("a line\nneedle\n", 50)), 0o644))
	}
	// Neither a key nor a hook of whoever runs this has a part in it.
	commit := []string{"-c", "user.name=b", "-c", "user.email=b@localhost", "-c", "commit.gpgSign=false", "-c", "core.hooksPath=/dev/null", "commit", "-qm", "files"}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, commit} {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = dir, environ()
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("git: %v: %s", err, out)
		}
	}
	return dir
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
