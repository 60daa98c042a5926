package broker_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/seccomp"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// alone is a broker without a sandbox around it: a program whose calls it
// answers, with no namespaces, no mounts and no Landlock.
type alone struct {
	spec    *spec.Spec
	filter  seccomp.Options
	dir     string
	program string

	mu      sync.Mutex
	denials []broker.Denial
}

// aloneIn is one whose program works in a directory, which is all that it may
// write.
func aloneIn(dir, program string) *alone {
	return &alone{
		dir: dir, program: program,
		spec: &spec.Spec{
			Network: spec.NetworkNone,
			Mounts: []spec.Mount{
				{Kind: spec.Bind, Source: "/", Target: "/"},
				{Kind: spec.Bind, Source: dir, Target: dir, Write: true},
			},
			Broker: &spec.Broker{Areas: []string{dir}},
		},
		filter: seccomp.Options{
			Families: []uint32{seccomp.FamilyUnix, seccomp.FamilyInet, seccomp.FamilyInet6, seccomp.FamilyNetlink},
			Writes:   true, Sockets: true, Datagrams: true,
		},
	}
}

// denied counts what was refused.
func (a *alone) denied() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.denials)
}

// run runs the program with a word to its end and returns what it said.
func (a *alone) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	options, err := json.Marshal(a.filter)
	if err != nil {
		t.Fatal(err)
	}
	told, tell := pipe(t)
	wait, release := pipe(t)
	c := exec.Command(a.program, append([]string{aloneWord}, args...)...)
	var out bytes.Buffer
	c.Dir, c.Stdout, c.Stderr, c.ExtraFiles = a.dir, &out, &out, []*os.File{tell, wait}
	c.Env = append(os.Environ(), aloneWord+"="+string(options))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	tell.Close()
	wait.Close()
	stop := a.serve(t, c.Process.Pid, listenerOf(t, c.Process.Pid, told))
	release.Close()
	err = c.Wait()
	stop()
	return out.String(), err
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}

// listenerOf takes over the listener whose number the program tells.
func listenerOf(t *testing.T, pid int, told *os.File) int {
	t.Helper()
	var number [8]byte
	if _, err := told.Read(number[:]); err != nil {
		t.Fatalf("the program has no listener: %v", err)
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, int(binary.NativeEndian.Uint64(number[:])), 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// serve answers calls until the returned function is called.
func (a *alone) serve(t *testing.T, pid, listener int) (stop func()) {
	t.Helper()
	until, end := pipe(t)
	b := broker.New(a.spec, pid, broker.Options{Report: func(d broker.Denial) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.denials = append(a.denials, d)
	}})
	b.Listen(listener, 0o22)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- b.Serve(int(until.Fd()))
		b.Close()
	}()
	return func() {
		end.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

const aloneWord = "BAILEY_ALONE"

// The program before it becomes the one that was asked for: it gives up what a
// command in a sandbox does not have, and installs the filter.
func init() {
	if len(os.Args) < 2 || os.Args[1] != aloneWord {
		return
	}
	if err := installFilter(); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		unix.Exit(1)
	}
	err := unix.Exec("/proc/self/exe", append(os.Args[:1], os.Args[2:]...), os.Environ())
	_, _ = os.Stderr.WriteString(err.Error() + "\n")
	unix.Exit(1)
}

func installFilter() error {
	runtime.LockOSThread() // the filter is this thread's, and it is the one that goes on
	var options seccomp.Options
	if err := json.Unmarshal([]byte(os.Getenv(aloneWord)), &options); err != nil {
		return err
	}
	if err := dropCapabilities(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := seccomp.Assemble(seccomp.New(options))
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: (*unix.SockFilter)(unsafe.Pointer(&program[0]))}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	const tell, wait = 3, 4
	if _, err := unix.Write(tell, binary.NativeEndian.AppendUint64(nil, uint64(fd))); err != nil {
		return err
	}
	_, _ = unix.Read(wait, make([]byte, 1)) // its end, when somebody answers
	for _, own := range []int{tell, wait, int(fd)} {
		_ = unix.Close(own)
	}
	return nil
}

func dropCapabilities() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&hdr, &none[0])
}
