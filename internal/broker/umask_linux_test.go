package broker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

const umaskWord = "change-umask"

// The program that changes its file mode mask in one thread while others make
// files, and then looks what mask the others have.
func init() {
	if len(os.Args) != 2 || os.Args[1] != umaskWord {
		return
	}
	if err := changeMasks(); err != nil {
		fmt.Println(err)
	}
	unix.Exit(0)
}

func changeMasks() error {
	const rounds, threads = 100, 3
	var failed atomic.Pointer[error]
	var busy, checked sync.WaitGroup
	start := make([]chan int, threads)
	for i := range start {
		start[i] = make(chan int)
		go func() {
			runtime.LockOSThread()
			for round := range start[i] {
				if round >= 0 {
					if err := checkMode(fmt.Sprintf("f%d-%d", i, round), 0o666&^maskOf(round)); err != nil {
						failed.Store(&err)
					}
					checked.Done()
					continue
				}
				for n := range 20 {
					name := fmt.Sprintf("b%d-%d", i, n)
					_ = unix.Mknod(name, unix.S_IFREG|0o666, 0)
					_ = unix.Unlink(name)
				}
				busy.Done()
			}
		}()
	}
	runtime.LockOSThread()
	for round := range rounds {
		busy.Add(threads)
		for _, c := range start {
			c <- -1
		}
		unix.Umask(int(maskOf(round)))
		busy.Wait()
		checked.Add(threads)
		for _, c := range start {
			c <- round
		}
		checked.Wait()
		if err := failed.Load(); err != nil {
			return *err
		}
	}
	return nil
}

func maskOf(round int) uint32 { return uint32(round*0o13) & 0o777 }

func checkMode(name string, want uint32) error {
	defer os.Remove(name)
	if err := unix.Mknod(name, unix.S_IFREG|0o666, 0); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return err
	}
	if got := st.Mode & 0o777; got != want {
		return fmt.Errorf("%s: got mode %o, want %o", name, got, want)
	}
	return nil
}

func TestMaskIsKnownToAllThreads(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	trial := newTrial(t, filepath.Join(base, "p"))
	for range 3 {
		out, err := aloneIn(trial.dir, trial.program).run(t, umaskWord)
		if err != nil || strings.TrimSpace(out) != "" {
			t.Fatalf("%v: %s", err, out)
		}
	}
}
