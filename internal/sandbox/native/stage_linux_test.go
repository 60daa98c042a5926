package native

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// stagePlan says something that is found through every kind of address that a plan
// can have: in a call, through a result, and in memory. Then it fails.
func stagePlan(missing string) *plan {
	p := newPlan(8)
	p.begin(WallInit, "say something", "", "")
	p.call(unix.SYS_WRITE, num(1), p.str("direct\n"), num(7))
	size := p.result(p.call(unix.SYS_WRITE, num(1), p.bytes([]byte("nine byte")), num(9)))
	p.call(unix.SYS_WRITE, num(1), p.str("\nand so on"), from(size)) // as many as before
	p.alloc(20 << 10)                                                // another block
	text := []byte("\nin memory\n")
	at := p.alloc(len(text))
	copy(unsafe.Slice((*byte)(at), len(text)), text)
	vector := place(p, unix.Iovec{Base: (*byte)(at), Len: uint64(len(text))})
	p.inner = append(p.inner, (*uintptr)(unsafe.Pointer(&vector.Base)))
	p.call(unix.SYS_WRITEV, num(1), p.ptr(unsafe.Pointer(vector)), num(1))
	p.call(unix.SYS_CHDIR, p.str("/nowhere at all")).tolerate = uintptr(unix.ENOENT)
	p.begin(WallDir, "change to", missing, "")
	p.call(unix.SYS_CHDIR, p.str(missing))
	p.begin(WallInit, "say more", "", "")
	p.call(unix.SYS_WRITE, num(1), p.str("too much"), num(8))
	return p
}

const stageSays = "direct\nnine byte\nand so o\nin memory\n"

// writeStage is the role that writes a stage to a file.
func writeStage(args []string) error {
	return os.WriteFile(args[0], stageImage(stagePlan(args[1])), 0o755)
}

// runStage runs a stage and returns what it says, and what about.
func runStage(t *testing.T, argv ...string) (string, message) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := exec.Command(argv[0], argv[1:]...)
	c.ExtraFiles = []*os.File{w}
	var out bytes.Buffer
	c.Stdout = &out
	err = c.Run()
	w.Close()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the stage: %v", err)
	}
	var buf [messageSize]byte
	if _, err := io.ReadFull(r, buf[:]); err != nil {
		t.Fatal(err)
	}
	return out.String(), decodeMessage(buf[:])
}

func checkStage(t *testing.T, p *plan, said string, told message) {
	t.Helper()
	if said != stageSays {
		t.Errorf("it said %q, want %q", said, stageSays)
	}
	var failed *LaunchError
	if err := p.failed(p.staged(told)); !errors.As(err, &failed) || failed.Wall != WallDir || failed.Errno != unix.ENOENT || !strings.Contains(failed.Step, "/missing") {
		t.Errorf("it failed with %v", err)
	}
}

func TestStagePerformsAPlanInMemoryOfItsOwn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stage")
	if err := writeStage([]string{file, "/missing"}); err != nil {
		t.Fatal(err)
	}
	said, told := runStage(t, file)
	checkStage(t, stagePlan("/missing"), said, told)
}

func TestStageOnArm64(t *testing.T) {
	testenv.Requires(t, testenv.Modules, testenv.NoRace, testenv.Program("qemu-aarch64"))
	dir := t.TempDir()
	writer, file := buildForArm64(t, dir), filepath.Join(dir, "stage")
	if out, err := exec.Command("qemu-aarch64", "-0", "write-stage", writer, file, "/missing").CombinedOutput(); err != nil {
		t.Fatalf("write the stage: %v\n%s", err, out)
	}
	said, told := runStage(t, "qemu-aarch64", file)
	checkStage(t, stagePlan("/missing"), said, told)
}

func TestPlanThatPointsElsewhereIsNotMoved(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it was")
		}
	}()
	p := newPlan(1)
	p.begin(WallInit, "", "", "")
	p.call(unix.SYS_WRITE, num(1), p.ptr(unsafe.Pointer(new(int))), num(8))
	stageImage(p)
}
