package native

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

func TestOnlyTheStreamsGoIn(t *testing.T) {
	requireSandbox(t)
	dir, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	// Directories of the host, inheritable, on the numbers the launch itself
	// uses and many more.
	var leaked []int
	for len(leaked) < 300 {
		fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD, 3)
		if err != nil {
			t.Fatal(err)
		}
		leaked = append(leaked, fd)
	}
	defer func() {
		for _, fd := range leaked {
			unix.Close(fd)
		}
	}()
	if got := run(t, probeSpec(t, "fds")).exit(t, 0).out; got != "0\n1\n2\n" {
		t.Errorf("descriptors inside: %q", got)
	}
}

func TestLowNumbersMayBeFree(t *testing.T) {
	requireSandbox(t)
	// The streams stand on high numbers and the numbers of the launch are free
	// or in use at random.
	streams, collect := outputTo(t)
	var high [3]*os.File
	for i, f := range streams {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 500+i)
		if err != nil {
			t.Fatal(err)
		}
		high[i] = os.NewFile(uintptr(fd), "stream")
	}
	st := start(t, probeSpec(t, "fds"), Options{Streams: high}).Wait()
	for _, f := range high {
		f.Close()
	}
	(result{st, collect()}).exit(t, 0)
}

func TestDirectoryIsNoStream(t *testing.T) {
	requireSandbox(t)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	fd, err := unix.Open("/etc/passwd", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	path := os.NewFile(uintptr(fd), "path")
	defer path.Close()
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		for _, bad := range []*os.File{dir, path} {
			streams := nulls(t)
			streams[i] = bad
			err := launchError(t, shell(t, "exit 0"), streams)
			if !errors.Is(err, ErrDirectory) || !strings.HasPrefix(err.Error(), name+": ") {
				t.Errorf("%s is %s: got %v", name, bad.Name(), err)
			}
		}
	}
}

func TestClosedStreamIsRefused(t *testing.T) {
	requireSandbox(t)
	for i := range 3 {
		streams := nulls(t)
		streams[i] = openNull(t)
		streams[i].Close()
		if err := launchError(t, shell(t, "exit 0"), streams); !errors.Is(err, unix.EBADF) {
			t.Errorf("stream %d closed: got %v", i, err)
		}
	}
}

func TestStreamIsReopenedWithItsOwnRightsOnly(t *testing.T) {
	requireSandbox(t)
	// As root the file's own mode would not refuse anything, so this is
	// Landlock's answer.
	file := filepath.Join(t.TempDir(), "stream")
	if err := os.WriteFile(file, []byte("content"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		flags   int
		how     string
		allowed bool
	}{
		{os.O_RDONLY, "read", true},
		{os.O_RDONLY, "write", false},
		{os.O_RDONLY, "both", false},
		{os.O_RDONLY, "truncate", false},
		{os.O_WRONLY, "write", true},
		{os.O_WRONLY, "read", false},
		{os.O_WRONLY, "both", false},
		{os.O_RDWR, "both", true},
		{os.O_RDWR, "read", true},
	} {
		f, err := os.OpenFile(file, test.flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"/dev/stdin", "/dev/stdout"} {
			streams := nulls(t)
			streams[i] = f
			st := start(t, probeSpec(t, "reopen", name, test.how), Options{Streams: streams}).Wait()
			if got := st.Wait.Exited() && st.Wait.ExitStatus() == 0; got != test.allowed {
				t.Errorf("%s opened with flags %d, reopened to %s: allowed %v, want %v", name, test.flags, test.how, got, test.allowed)
			}
		}
		f.Close()
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "content" {
		t.Errorf("the file holds %q, %v", got, err)
	}
}

func TestNullAndPipesAreReopened(t *testing.T) {
	requireSandbox(t)
	got := run(t, shell(t, "cat /dev/stdin && echo out >/dev/stdout && echo err >/dev/stderr && echo gone 2>/dev/null >/dev/null && echo done >/dev/fd/1"))
	if got.exit(t, 0).out != "out\nerr\ndone\n" {
		t.Errorf("got %q", got.out)
	}
}

func TestReaderSeesTheEndWhenTheCommandClosesIts(t *testing.T) {
	requireSandbox(t)
	in, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, shell(t, "echo first; exec >/dev/null 2>&1; read line; exit 5"), Options{Streams: [3]*os.File{in, w, w}})
	w.Close()
	in.Close()
	if out, err := io.ReadAll(r); string(out) != "first\n" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	r.Close()
	// It still runs: only this line ends it.
	if _, err := hold.WriteString("go\n"); err != nil {
		t.Error(err)
	}
	hold.Close()
	(result{State: p.Wait()}).exit(t, 5)
}

func TestWriterSeesThatNobodyReads(t *testing.T) {
	requireSandbox(t)
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	null := openNull(t)
	p := start(t, shell(t, "exec <&-; kill -STOP $$"), Options{Streams: [3]*os.File{in, null, null}})
	in.Close()
	if st := p.Wait(); !st.Stopped() {
		t.Errorf("got %#x, want stopped", uint32(st.Wait))
	}
	if _, err := w.WriteString("x"); !errors.Is(err, unix.EPIPE) {
		t.Errorf("writing to a command without stdin: %v", err)
	}
	w.Close()
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if st := p.Wait(); !st.Killed || st.Wait.Signal() != unix.SIGKILL {
		t.Errorf("got %+v, want killed from outside", st)
	}
	runtime.KeepAlive(p)
}

func TestReadOnlyFileIsRefusedWhereItCouldBeTruncated(t *testing.T) {
	const read = unix.LANDLOCK_ACCESS_FS_READ_FILE
	for _, tc := range []struct {
		access uint64
		abi    int
		want   bool
	}{{read, 1, true}, {read, 2, true}, {read, 3, false}, {read, 7, false}, {0, 1, false}, {read | unix.LANDLOCK_ACCESS_FS_WRITE_FILE, 1, false}} {
		if got := isTruncatable(tc.access, tc.abi); got != tc.want {
			t.Errorf("rights %#x with interface %d: got %v", tc.access, tc.abi, got)
		}
	}
}

func TestProtectedFileIsNoStream(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"plain", "protected", "hidden"} {
		if err := os.WriteFile(dir+"/"+name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &spec.Spec{
		Network: spec.NetworkNone,
		Mounts: []spec.Mount{
			{Kind: spec.Bind, Source: dir, Target: dir, Write: true},
			{Kind: spec.Hide, Source: "file", Target: dir + "/hidden", File: true},
			{Kind: spec.Bind, Source: dir + "/protected", Target: dir + "/protected", File: true},
		},
		Landlock: spec.Landlock{Rules: []spec.LandlockRule{{Path: dir, Read: true, Write: true}}},
	}
	for name, want := range map[string]error{"plain": nil, "protected": ErrProtected, "hidden": ErrProtected} {
		f, err := os.Open(dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		access, err := streamRights(int(f.Fd()))
		if err == nil {
			err = checkStream(s, int(f.Fd()), access)
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
		f.Close()
	}
}

func TestOnlyConnectedUnixSocketsAreStreams(t *testing.T) {
	closed := &spec.Spec{Network: spec.NetworkNone}
	for _, tc := range []struct {
		domain, kind int
		want         error
	}{
		{unix.AF_INET, unix.SOCK_STREAM, ErrSocket},
		{unix.AF_INET6, unix.SOCK_DGRAM, ErrSocket},
		{unix.AF_UNIX, unix.SOCK_DGRAM, ErrSocket},
		{unix.AF_UNIX, unix.SOCK_STREAM, nil},
		{unix.AF_UNIX, unix.SOCK_SEQPACKET, nil},
	} {
		fd, err := unix.Socket(tc.domain, tc.kind, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkStream(closed, fd, 0); !errors.Is(err, tc.want) {
			t.Errorf("domain %d kind %d: got %v, want %v", tc.domain, tc.kind, err, tc.want)
		}
		if err := checkStream(&spec.Spec{Network: spec.NetworkHost}, fd, 0); err != nil {
			t.Errorf("with the host's network: %v", err)
		}
		unix.Close(fd)
	}
}
