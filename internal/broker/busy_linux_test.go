package broker_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

const dotsWord = "go-up-and-down"

func init() {
	if len(os.Args) != 2 || os.Args[1] != dotsWord {
		return
	}
	for i := range 2000 {
		if err := unix.Mkdir(fmt.Sprintf("d/../new%d", i), 0o777); err != nil {
			fmt.Println(err)
		}
		_ = unix.Rmdir(fmt.Sprintf("new%d", i))
	}
	unix.Exit(0)
}

const comingWord = "make-what-comes-and-goes"

func init() {
	if len(os.Args) != 2 || os.Args[1] != comingWord {
		return
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Mkdir("coming", 0o777)
				_ = unix.Rmdir("coming")
			}
		}
	}()
	ways := []func() error{
		func() error { return unix.Mkdir("coming/x", 0o777) },
		func() error { return openAndClose("./coming/../coming/x", unix.O_WRONLY|unix.O_CREAT) },
		func() error { return unix.Symlink("x", "coming/x") },
		func() error { return unix.Rename("d", "coming/x") },
	}
	for i := range 4000 {
		if err := ways[i%len(ways)](); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EEXIST) {
			fmt.Println(i%len(ways), err)
		}
		_ = unix.Rename("coming/x", "d")
		_ = unix.Unlink("coming/x")
		_ = unix.Rmdir("coming/x")
	}
	close(stop)
	<-stopped
	unix.Exit(0)
}

func TestDirectoryThatComesMeanwhileIsNotRefused(t *testing.T) {
	out := runBusy(t, comingWord)
	if len(out) > 0 {
		t.Errorf("%.500s", out)
	}
}

// runBusy runs the program with a word in a sandbox, in a directory that has
// another one.
func runBusy(t *testing.T, word string) []byte {
	t.Helper()
	testenv.Requires(t, testenv.UserNamespaces)
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", base)
	trial := newTrial(t, filepath.Join(base, "p"))
	if err := os.Mkdir(filepath.Join(trial.dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	m := bailey.New(bailey.Config{Dir: trial.dir, Policy: "{}"})
	if err := m.Initialize(); err != nil {
		t.Fatal(err)
	}
	defer m.Cleanup()
	out, err := m.Command(trial.program, word).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return out
}

// To resolve ".." the kernel wants that nothing is renamed meanwhile, on the
// whole machine.
func TestPathsLeadUpwardsWhileFilesAreRenamed(t *testing.T) {
	dir := t.TempDir()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		_ = os.Mkdir(a, 0o755)
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.Rename(a, b)
				_ = os.Rename(b, a)
			}
		}
	}()
	out := runBusy(t, dotsWord)
	close(stop)
	<-stopped
	if len(out) > 0 {
		t.Errorf("%.500s", out)
	}
}
