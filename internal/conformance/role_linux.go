package conformance

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// roleWord is the first argument of this program as a probe.
const roleWord = "conformance-probe"

// roles are what this program can be inside. They say on stdout what they got, and
// return why not.
var roles = map[string]func(args []string) error{
	"connect": connect, "connect-own": connectOwn, "fetch": fetch, "unix": dialUnix,
	"mount": mountSomething, "unshare": unshare, "open-device": openDevice, "open": open,
	"kill": killProcess, "calls": forbiddenCalls, "terminal": terminal,
	"allocate": allocate, "fork": forkMany, "wait": waitForSignal, "daemon": leaveDaemon, "stay": stay,
}

// Role is what a program that runs the suite calls before anything else: if it was
// started as a probe, it is one, and must exit with the status.
func Role() (status int, is bool) {
	if len(os.Args) < 3 || os.Args[1] != roleWord {
		return 0, false
	}
	role, ok := roles[os.Args[2]]
	if !ok {
		return 2, true
	}
	if err := role(os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// tell says something on stdout, which is the host's to read.
func tell(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format, args...) }

// connect opens a connection and says what it is told there.
func connect(args []string) error { return hear("tcp", args[0]) }

// connectOwn is connect with something that this process serves itself.
func connectOwn([]string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.WriteString(c, "heard\n")
			_ = c.Close()
		}
	}()
	return hear("tcp", l.Addr().String())
}

func dialUnix(args []string) error { return hear("unix", args[0]) }

// hear asks as one asks for a page, and says everything that it is told.
func hear(network, address string) error {
	c, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n") // who only speaks may have closed it
	told, err := io.ReadAll(c)
	tell("%s", told)
	if len(told) > 0 {
		return nil
	}
	return err
}

// fetch asks a proxy, which is at a unix socket or at a port, for a page.
func fetch(args []string) error {
	network, proxy, url := args[0], args[1], args[2]
	c, err := net.Dial(network, proxy)
	if err != nil {
		return err
	}
	defer c.Close()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Close = true
	if err := request.WriteProxy(c); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(c), request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	line, _ := bufio.NewReader(response.Body).ReadString('\n') // an empty page has none
	tell("%s", line)
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// mountSomething leaves nothing behind, should it work.
func mountSomething([]string) error {
	if err := unix.Mount("tmpfs", "sub", "tmpfs", 0, ""); err != nil {
		return err
	}
	return unix.Unmount("sub", 0)
}

func unshare([]string) error { return unix.Unshare(unix.CLONE_NEWUSER | unix.CLONE_NEWNS) }

// openDevice makes the node of a device that is everybody's, and opens it.
func openDevice([]string) error {
	const name, zero = "device", 1<<8 | 5
	if err := unix.Mknod(name, unix.S_IFCHR|0o666, zero); err != nil {
		return err
	}
	_, err := os.ReadFile(name)
	return err
}

func open(args []string) error {
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	return f.Close()
}

func killProcess(args []string) error {
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	if pid == 0 { // one of its own
		child := exec.Command("sleep", "1000")
		if err := child.Start(); err != nil {
			return err
		}
		pid = child.Process.Pid
	}
	return unix.Kill(pid, unix.SIGKILL)
}

// forbiddenCalls says which of the calls that no sandbox needs got past a filter:
// they fail otherwise, but not for want of privileges.
func forbiddenCalls([]string) error {
	var through []string
	for name, call := range map[string]func() error{
		"keyctl": func() error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true); return err },
		"bpf":    func() error { return plainCall(unix.SYS_BPF, 0, 0, 0) },
		"perf_event_open": func() error {
			_, err := unix.PerfEventOpen(&unix.PerfEventAttr{Size: unix.PERF_ATTR_SIZE_VER0}, 0, -1, -1, 0)
			return err
		},
		"io_uring_setup": func() error { return plainCall(unix.SYS_IO_URING_SETUP, 1, 0, 0) },
		"userfaultfd":    func() error { return plainCall(unix.SYS_USERFAULTFD, 0, 0, 0) },
		"kexec_load":     func() error { return plainCall(unix.SYS_KEXEC_LOAD, 0, 0, 0) },
		"init_module":    func() error { return plainCall(unix.SYS_INIT_MODULE, 0, 0, 0) },
		"af_alg":         func() error { _, err := unix.Socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0); return err },
		"af_vsock":       func() error { _, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0); return err },
		"af_packet":      func() error { _, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); return err },
	} {
		if err := call(); !isRefusal(err) {
			through = append(through, fmt.Sprintf("%s: %v", name, err))
		}
	}
	if len(through) == 0 {
		return nil
	}
	return errors.New(strings.Join(through, ", "))
}

func plainCall(nr, a, b, c uintptr) error {
	if _, _, errno := unix.Syscall(nr, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

// isRefusal says whether a call was refused, or does not exist.
func isRefusal(err error) bool {
	for _, errno := range []unix.Errno{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EAFNOSUPPORT, unix.ENOPKG} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// allocate uses so many megabytes.
func allocate(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	memory := make([]byte, n<<20)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	tell("had %d\n", n)
	return nil
}

// forkMany has so many processes at once.
func forkMany(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread() // with which they end, should nothing else end them
	for range n {
		c := exec.Command("sleep", "1000")
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			return err
		}
	}
	tell("had %d\n", n)
	return nil
}

// waitForSignal says which signal came.
func waitForSignal([]string) error {
	came := make(chan os.Signal, 1)
	signal.Notify(came, unix.SIGTERM, unix.SIGUSR1)
	tell("ready\n")
	tell("%s\n", <-came)
	return nil
}

// leaveDaemon leaves a process in a session of its own, which holds stdout open for
// as long as it lives, and ends, or stays if it is told to.
func leaveDaemon(args []string) error {
	daemon := exec.Command("sleep", "1000")
	daemon.Stdout = os.Stdout
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := daemon.Start(); err != nil {
		return err
	}
	tell("ready\n")
	if len(args) > 0 {
		_ = os.Stdout.Close()
		pause()
	}
	return nil
}

// stay holds stdout open until it is ended.
func stay([]string) error {
	tell("ready\n")
	pause()
	return nil
}

// pause waits for its end.
func pause() { _ = unix.Pause() }

// terminal says what stdin is, and what it cannot be made to do.
func terminal([]string) error {
	size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
	if err != nil {
		return err
	}
	char := byte('x')
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&char)))
	tell("%dx%d typed=%v\n", size.Row, size.Col, errno == 0)
	return nil
}
