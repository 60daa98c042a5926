package escape

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	// turned-away has so many calls wait that the broker takes no further ones, and
	// goes on to make some.
	attacks["turned-away"] = func(args []string) {
		call := waitingCalls[args[0]]()
		full := make(chan struct{})
		for range 200 {
			go func() {
				if err := call(); errors.Is(err, unix.EAGAIN) {
					select {
					case full <- struct{}{}:
					default:
					}
				}
			}()
		}
		<-full
		for range 300 {
			if err := call(); !errors.Is(err, unix.EAGAIN) {
				fmt.Println("unexpected:", err)
				return
			}
		}
		fmt.Println("turned away")
	}
	// send-bulk sends a mapping of nothing, many times at once.
	attacks["send-bulk"] = func([]string) {
		const size, count = 8 << 20, 256
		data, err := unix.Mmap(-1, 0, size, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			fmt.Println(err)
			return
		}
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			fmt.Println(err)
			return
		}
		part := unix.Iovec{Base: &data[0]}
		part.SetLen(size)
		type message struct {
			unix.Msghdr
			sent uint64
		}
		var all [count]message
		for i := range all {
			all[i].Iov = &part
			all[i].SetIovlen(1)
		}
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(pair[0]), uintptr(unsafe.Pointer(&all[0])), count, unix.MSG_DONTWAIT, 0, 0)
		fmt.Println("sent", n > 0, errno)
	}
}

// waitingCalls are calls that wait for somebody who never comes.
var waitingCalls = map[string]func() func() error{
	"open": func() func() error {
		_ = unix.Mkfifo("pipe", 0o600)
		return func() error {
			_, err := unix.Open("pipe", unix.O_WRONLY|unix.O_CLOEXEC, 0)
			return err
		}
	},
	"connect": func() func() error {
		to := &unix.SockaddrUnix{Name: "socket"}
		listener, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err == nil {
			err = errors.Join(unix.Bind(listener, to), unix.Listen(listener, 0))
		}
		return func() error {
			fd, failed := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil || failed != nil {
				return errors.Join(err, failed)
			}
			defer unix.Close(fd)
			return unix.Connect(fd, to)
		}
	},
}

func TestCallsThatAreTurnedAwayLeaveNoDescriptors(t *testing.T) {
	for name := range waitingCalls {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			var before [2]int
			for i := range 2 {
				if out := b.attack("turned-away", name); !strings.Contains(out, "turned away") {
					t.Fatalf("the broker has let all calls wait: %s", out)
				}
				for _, left := range []string{"pipe", "socket"} {
					_ = os.Remove(b.project + "/" + left)
				}
				if now := settled(); i > 0 && now[0] > before[0]+50 {
					t.Errorf("got %d descriptors, want about %d", now[0], before[0])
				} else {
					before = now
				}
			}
		})
	}
}

func TestMessagesTakeLittleOfTheLauncher(t *testing.T) {
	b := newBox(t)
	b.policy = `{"network": {"allowUnixSockets": ["/nowhere"]}}`
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	before := allocated()
	if out := b.attack("send-bulk"); !strings.Contains(out, "sent true") {
		t.Errorf("nothing was sent: %s", out)
	}
	if took := allocated() - before; took > 200<<20 {
		t.Errorf("the launcher took %d MB for what the sandbox sent", took>>20)
	}
}

// asking is a program that has nothing but the name of its loader.
func asking(loader string) []byte {
	const header, entry, base = 64, 56, 0x10000000
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01")
	b.Write(make([]byte, 9))
	machine := map[string]uint16{"amd64": 62, "arm64": 183}[runtime.GOARCH]
	words := func(list ...any) {
		for _, w := range list {
			_ = binary.Write(&b, binary.LittleEndian, w)
		}
	}
	words(uint16(2), machine, uint32(1), uint64(base), uint64(header), uint64(0), uint32(0), uint16(header), uint16(entry), uint16(2), [3]uint16{})
	name := uint64(header + 2*entry)
	size := uint64(len(loader) + 1)
	words(uint32(3), uint32(4), name, name+base, name+base, size, size, uint64(1))
	words(uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), name+size, name+size, uint64(0x1000))
	b.WriteString(loader + "\x00")
	return b.Bytes()
}

// A file whose contents are denied must not come into the memory of a process, where
// they could be read, either as the interpreter of a script or as a loader.
func TestProgramOfADeniedPatternIsNotMapped(t *testing.T) {
	shell, err := exec.LookPath("sh")
	must(t, err)
	program, err := os.ReadFile(shell)
	must(t, err)
	b := newBox(t)
	denied := b.project + "/tool.key"
	must(t, os.WriteFile(denied, program, 0o755))
	must(t, os.WriteFile(b.project+"/script", []byte("#!"+denied+"\necho ran\n"), 0o755))
	must(t, os.WriteFile(b.project+"/asks", asking(denied), 0o755))
	must(t, os.WriteFile(b.project+"/asks-here", asking("./tool.key"), 0o755))
	b.policy = `{"filesystem": {"denyRead": ["**/*.key"]}}`
	for _, name := range []string{"script", "asks", "asks-here"} {
		line := "cd " + b.project + "; ./" + name + "; echo status $?"
		const refused = "status 126"
		if out := b.run("sh", "-c", line); !strings.Contains(out, refused) {
			t.Errorf("%s: it was executed: %s", name, out)
		}
		out, _ := exec.Command("sh", "-c", line).CombinedOutput()
		if strings.Contains(string(out), refused) {
			t.Errorf("control: %s is not executed without a sandbox either: %s", name, out)
		}
	}
	must(t, os.Remove(filepath.Join(b.project, "tool.key")))
}
