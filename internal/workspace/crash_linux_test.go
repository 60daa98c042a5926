package workspace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
	"github.com/bailey-sandbox/bailey/internal/workspace/fault"
	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

// The test binary runs itself with these: the store, the project to import, and the
// step at which it kills itself.
const (
	crashStore   = "BAILEY_TEST_CRASH_STORE"
	crashProject = "BAILEY_TEST_CRASH_PROJECT"
	crashStep    = "BAILEY_TEST_CRASH_STEP"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(cloneStore); dir != "" {
		os.Exit(cloneInto(dir, os.Args[1], os.Args[2]))
	}
	if dir := os.Getenv(crashStore); dir != "" {
		os.Exit(crash(dir))
	}
	if dir := os.Getenv(writerDir); dir != "" {
		os.Exit(writeInTurns(dir))
	}
	os.Exit(m.Run())
}

// operations are what is cut short, in this order. Each must be all there or not
// at all.
var operations = []struct {
	name string
	do   func(s *Store, project string) error
}{
	{"import", func(s *Store, project string) error {
		_, err := s.ImportDirectory(project, ImportOptions{Name: "base"})
		return err
	}},
	{"start", func(s *Store, _ string) error {
		d, err := s.Start("base", delta.Options{Name: "one", Target: "/work", State: delta.Kept})
		if err == nil {
			d.Close()
		}
		return err
	}},
	{"write", func(s *Store, _ string) error { return writeFiles(s, "first") }},
	{"snapshot", snapshotOne},
	{"write", func(s *Store, _ string) error { return writeFiles(s, "second") }},
	{"snapshot", snapshotOne},
	{"import again", func(s *Store, project string) error {
		_, err := s.ImportDirectory(project, ImportOptions{Name: "same"})
		return err
	}},
	{"squash", func(s *Store, _ string) error { return s.Squash("one") }},
	{"write", func(s *Store, _ string) error { return writeFiles(s, "third") }},
	{"absorb", func(s *Store, project string) error { return absorb(s, project) }},
	{"running snapshot", func(s *Store, _ string) error {
		_, err := s.SnapshotRunning("one", &freezer{})
		return err
	}},
	{"fork", func(s *Store, _ string) error {
		d, err := s.Fork("one", "s1", delta.Options{Name: "two", State: delta.Kept})
		if err == nil {
			d.Close()
		}
		return err
	}},
	{"rollback", func(s *Store, _ string) error { return s.Rollback("one", "s1") }},
	{"new codebase", func(s *Store, _ string) error {
		_, err := s.MakeCodebase("one", "s2", "next")
		return err
	}},
	{"remove a codebase", func(s *Store, _ string) error { return s.RemoveCodebase("base") }},
	{"remove a snapshot", func(s *Store, _ string) error { return s.RemoveSnapshot("one", "s2") }},
	{"remove a workspace", func(s *Store, _ string) error {
		d, err := s.Store.Open("one", delta.Write)
		if err != nil {
			return err
		}
		if err := d.Remove(); err != nil {
			return err
		}
		_, err = s.Collect()
		return err
	}},
}

func snapshotOne(s *Store, _ string) error {
	_, err := s.Snapshot("one")
	return err
}

// writeFiles writes as a command would that wants to find it after a crash, in one
// step as far as this test goes.
func writeFiles(s *Store, content string) error {
	d, err := s.Store.Open("one", delta.Write)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := os.WriteFile(d.Upper()+"/written", []byte(content), 0o600); err != nil {
		return err
	}
	return errors.Join(syncDir(d.Upper()+"/written"), syncDir(d.Upper()))
}

// absorb puts changes that were kept elsewhere into the workspace: those of the
// project itself.
func absorb(s *Store, project string) error {
	d, err := s.Store.Open("one", delta.Write)
	if err != nil {
		return err
	}
	defer d.Close()
	changes, err := os.Open(project + "/dir")
	if err != nil {
		return err
	}
	defer changes.Close()
	return d.Absorb(changes, nil)
}

// crash carries the operations out, says which are done, and kills itself at a
// step.
func crash(dir string) int {
	until, _ := strconv.Atoi(os.Getenv(crashStep))
	steps := 0
	fault.At = func(string) {
		if steps++; steps == until {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	s, err := Open(delta.At(dir))
	for i, o := range operations {
		if err == nil {
			err = o.do(s, os.Getenv(crashProject))
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", o.name, err)
			return 1
		}
		_, _ = os.Stdout.WriteString(strconv.Itoa(i) + "\n")
	}
	_, _ = os.Stdout.WriteString("steps " + strconv.Itoa(steps) + "\n")
	return 0
}

// runUntil runs the operations until a step, and returns how many were acknowledged
// and, if all were, how many steps there are.
func runUntil(t *testing.T, store, project string, step int) (done, steps int) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), crashStore+"="+store, crashProject+"="+project, crashStep+"="+strconv.Itoa(step))
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != -1) {
		t.Fatalf("step %d: %v\n%s", step, err, stderr.String())
	}
	for line := range bufioLines(out) {
		if n, ok := strings.CutPrefix(line, "steps "); ok {
			steps, _ = strconv.Atoi(n)
			continue
		}
		done++
	}
	return done, steps
}

func bufioLines(out []byte) func(func(string) bool) {
	return func(yield func(string) bool) {
		for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
			if !yield(s.Text()) {
				return
			}
		}
	}
}

// state describes everything that a user sees in a store.
func state(t *testing.T, s *Store) string {
	t.Helper()
	var b strings.Builder
	codebases, err := s.Codebases()
	must(t, err)
	for _, c := range codebases {
		fmt.Fprintf(&b, "codebase %s:\n%s", c.Name, shownStack(t, s, c.stack()))
	}
	list, err := s.List()
	must(t, err)
	for _, l := range list {
		must(t, l.Err)
		d, err := s.Store.Open(l.Name, delta.Read)
		must(t, err)
		fmt.Fprintf(&b, "workspace %s, %s:\n%s", l.Name, l.State, shownBy(t, d))
		d.Close()
		snapshots, err := s.Snapshots(l.Name)
		must(t, err)
		for _, n := range snapshots {
			fmt.Fprintf(&b, "snapshot %s of %s:\n%s", n.ID, l.Name, shownStack(t, s, n.stack()))
		}
	}
	return b.String()
}

func shownStack(t *testing.T, s *Store, stack []delta.Lower) string {
	t.Helper()
	var dirs []string
	for _, l := range stack {
		dirs = append(dirs, s.LayerTree(l.Layer))
	}
	return shown(t, dirs...)
}

// statesInOrder are what is to be seen before the first operation and after each.
func statesInOrder(t *testing.T, project string) []string {
	t.Helper()
	s := newStore(t)
	states := []string{state(t, s)}
	for _, o := range operations {
		if err := o.do(s, project); err != nil {
			t.Fatalf("%s: %v", o.name, err)
		}
		states = append(states, state(t, s))
	}
	return states
}

// In memory: whether a process is killed has nothing to do with the disk.
func memory(t *testing.T) {
	t.Helper()
	const dir = "/dev/shm"
	f, err := os.CreateTemp(dir, "bailey-test-")
	if err != nil {
		return
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if unix.Fsetxattr(int(f.Fd()), "user.bailey", []byte("x"), 0) == nil {
		t.Setenv("TMPDIR", dir)
	}
}

func TestKilledAtEveryStepNothingIsHalfDone(t *testing.T) {
	memory(t)
	dir := project(t, "a", "dir/b", "c")
	states := statesInOrder(t, dir)
	for step := 1; ; step++ {
		if _, steps := tryStep(t, dir, states, step); steps > 0 {
			if steps < 30 {
				t.Errorf("only %d steps", steps)
			}
			return
		}
	}
}

func TestKilledAtRandomStepsAgainAndAgain(t *testing.T) {
	testenv.Requires(t, testenv.Long)
	memory(t)
	dir := project(t, "a", "dir/b", "c")
	states := statesInOrder(t, dir)
	_, steps := tryStep(t, dir, states, 1<<30)
	for range testenv.Count(10, 3000) {
		tryStep(t, dir, states, 1+rand.IntN(steps))
	}
}

// tryStep kills the operations at a step and looks at what is left: everything that
// was acknowledged, and the one that was cut short all or not at all.
func tryStep(t *testing.T, project string, states []string, step int) (done, steps int) {
	t.Helper()
	outer := t.TempDir()
	defer func() {
		f, err := os.Open(outer)
		must(t, err)
		defer f.Close()
		must(t, tree.Remove(f, "data"))
	}()
	done, steps = runUntil(t, outer+"/data", project, step)
	s, err := Open(delta.At(outer + "/data"))
	must(t, err)
	got := state(t, s)
	next := min(done+1, len(states)-1)
	if got != states[done] && got != states[next] {
		t.Fatalf("killed at step %d, in %s:\n%swant\n%sor\n%s", step, operations[min(done, len(operations)-1)].name, got, states[done], states[next])
	}
	reclaimed(t, s, step)
	return done, steps
}

// reclaimed checks that nothing is left that nobody needs, and that layers are what
// they are called.
func reclaimed(t *testing.T, s *Store, step int) {
	t.Helper()
	_, err := s.Collect()
	must(t, err)
	if left, _ := os.ReadDir(s.Dir() + "/tmp"); len(left) != 0 {
		t.Errorf("killed at step %d: left in tmp: %v", step, left)
	}
	named, err := s.named()
	must(t, err)
	for _, id := range layers(t, s) {
		if !named[id] {
			t.Errorf("killed at step %d: the layer %s is left", step, id)
		}
		l, err := s.Layer(id)
		must(t, err)
		if digest, ok := strings.CutPrefix(id, "sha256-"); ok && digest != l.Digest {
			t.Errorf("killed at step %d: the layer %s has the digest %s", step, id, l.Digest)
		}
	}
}
