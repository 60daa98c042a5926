package broker_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// exchange sends something and tells what arrived. It must tell the same in a
// sandbox, where the broker sends, and without one.
type exchange struct {
	name string
	run  func() (string, error)
}

var exchanges = []exchange{
	{"sendto", func() (string, error) {
		return toServer(func(fd int, to unix.Sockaddr) error { return unix.Sendto(fd, []byte("text"), 0, to) })
	}},
	{"sendto by a long path", func() (string, error) {
		return toServer(func(fd int, _ unix.Sockaddr) error {
			return unix.Sendto(fd, []byte("text"), 0, &unix.SockaddrUnix{Name: ".///d/../" + serverName})
		})
	}},
	{"sendto nothing", func() (string, error) {
		return toServer(func(fd int, to unix.Sockaddr) error { return unix.Sendto(fd, nil, 0, to) })
	}},
	{"connect and send", func() (string, error) {
		return toServer(func(fd int, to unix.Sockaddr) error {
			return errors.Join(unix.Connect(fd, to), unix.Send(fd, []byte("text"), 0))
		})
	}},
	{"connect and write", func() (string, error) {
		return toServer(func(fd int, to unix.Sockaddr) error {
			_, err := unix.Write(fd, []byte("text"))
			return errors.Join(unix.Connect(fd, to), errorOf(unix.Write(fd, []byte("text"))), ignore(err))
		})
	}},
	{"sendmsg in parts", func() (string, error) {
		return toServer(func(fd int, to unix.Sockaddr) error {
			return errorOf(unix.SendmsgBuffers(fd, [][]byte{[]byte("te"), nil, []byte("xt")}, nil, to, 0))
		})
	}},
	{"sendmsg of a connected socket", func() (string, error) {
		return toServer(func(fd int, to unix.Sockaddr) error {
			return errors.Join(unix.Connect(fd, to), unix.Sendmsg(fd, []byte("text"), nil, nil, 0))
		})
	}},
	{"sendmmsg", func() (string, error) {
		return toServer(func(fd int, to unix.Sockaddr) error {
			if err := unix.Connect(fd, to); err != nil {
				return err
			}
			sizes, err := sendMany(fd, "text", "more text", "")
			if err == nil && !slices.Equal(sizes, []uint32{4, 9, 0}) {
				err = fmt.Errorf("sizes %v", sizes)
			}
			return err
		})
	}},
	{"reply to who sent", replyToSender},
	{"too long a datagram", func() (string, error) {
		return toServer(func(fd int, to unix.Sockaddr) error { return unix.Sendto(fd, make([]byte, 9<<20), 0, to) })
	}},
	{"no such socket", func() (string, error) {
		return onDatagram(func(fd int) error {
			return errors.Join(unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: "nothing"}),
				unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: "program"}), unix.Send(fd, []byte("x"), 0))
		})
	}},
	{"wait for room", waitForRoom(false)},
	{"wait for room, connected", waitForRoom(true)},
	{"no time to wait for room", func() (string, error) {
		return withServer(func(server, fd int, to unix.Sockaddr) (string, error) {
			wait := unix.NsecToTimeval(int64(50 * time.Millisecond))
			err := errors.Join(unix.Connect(fd, to), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait))
			for range 5000 {
				if err == nil {
					err = unix.Sendmsg(fd, []byte("x"), nil, nil, 0)
				}
			}
			return "", err
		})
	}},
	{"pass a descriptor", func() (string, error) { return passDescriptor(unix.SOCK_STREAM) }},
	{"pass a descriptor with a datagram", func() (string, error) { return passDescriptor(unix.SOCK_DGRAM) }},
	{"pass what is no descriptor", func() (string, error) {
		return inPair(unix.SOCK_STREAM, func(a, _ int) (string, error) {
			return "", unix.Sendmsg(a, []byte("x"), unix.UnixRights(99), nil, 0)
		})
	}},
	{"credentials of another", func() (string, error) {
		return inPair(unix.SOCK_STREAM, func(a, _ int) (string, error) {
			other := unix.UnixCredentials(&unix.Ucred{Pid: int32(os.Getpid()) + 1, Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())})
			return "", unix.Sendmsg(a, []byte("x"), other, nil, 0)
		})
	}},
	{"credentials of its own", func() (string, error) {
		return inPair(unix.SOCK_STREAM, func(a, b int) (string, error) {
			own := unix.UnixCredentials(&unix.Ucred{Pid: int32(os.Getpid()), Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())})
			return receiveText(b, unix.Sendmsg(a, []byte("text"), own, nil, 0))
		})
	}},
	{"control data that is cut off", func() (string, error) {
		return inPair(unix.SOCK_STREAM, func(a, _ int) (string, error) {
			return "", unix.Sendmsg(a, []byte("x"), unix.UnixRights(0, 1)[:20], nil, 0)
		})
	}},
	{"more than a stream has room for", longStream},
	{"a stream that nobody reads", func() (string, error) {
		broken := make(chan os.Signal, 1)
		signal.Notify(broken, unix.SIGPIPE)
		defer signal.Stop(broken)
		return inPair(unix.SOCK_STREAM, func(a, b int) (string, error) {
			err := errors.Join(unix.Shutdown(b, unix.SHUT_RD), unix.Sendmsg(a, []byte("x"), nil, nil, 0))
			select {
			case s := <-broken:
				return s.String(), err
			case <-time.After(5 * time.Second):
				return "no signal", err
			}
		})
	}},
	{"a stream that nobody reads, without a signal", func() (string, error) {
		return inPair(unix.SOCK_STREAM, func(a, b int) (string, error) {
			return "", errors.Join(unix.Shutdown(b, unix.SHUT_RD), unix.Sendmsg(a, []byte("x"), nil, nil, unix.MSG_NOSIGNAL))
		})
	}},
	{"an address for a stream", func() (string, error) {
		return inPair(unix.SOCK_STREAM, func(a, _ int) (string, error) {
			return "", unix.Sendto(a, []byte("x"), 0, &unix.SockaddrUnix{Name: serverName})
		})
	}},
	{"an address for packets in order", func() (string, error) {
		return inPair(unix.SOCK_SEQPACKET, func(a, b int) (string, error) {
			return receiveText(b, unix.Sendto(a, []byte("text"), 0, &unix.SockaddrUnix{Name: "nothing"}))
		})
	}},
	{"a datagram for an abstract name", func() (string, error) {
		server, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return "", err
		}
		defer unix.Close(server)
		name := fmt.Sprintf("@bailey-test-%d", os.Getpid())
		if err := unix.Bind(server, &unix.SockaddrUnix{Name: name}); err != nil {
			return "", err
		}
		text := ""
		_, err = onDatagram(func(fd int) (err error) {
			text, err = receiveText(server, unix.Sendto(fd, []byte("text"), 0, &unix.SockaddrUnix{Name: name}))
			return err
		})
		return text, err
	}},
	{"udp", overUDP},
	{"no socket", func() (string, error) {
		return "", errors.Join(unix.Sendmsg(99, []byte("x"), nil, nil, 0), unix.Sendto(0, []byte("x"), 0, &unix.SockaddrUnix{Name: "x"}))
	}},
	{"memory that is not there", func() (string, error) {
		return inPair(unix.SOCK_DGRAM, func(a, _ int) (string, error) {
			_, _, one := unix.Syscall(unix.SYS_SENDMSG, uintptr(a), 8, 0)
			_, _, many := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(a), 8, 2, 0, 0, 0)
			_, _, none := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(a), 8, 0, 0, 0, 0)
			return none.Error(), errors.Join(one, many)
		})
	}},
}

const serverName = "server"

func errorOf(_ int, err error) error { return err }

// ignore is for what fails in any case.
func ignore(error) error { return nil }

func onDatagram(use func(fd int) error) (string, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return "", use(fd)
}

// withServer gives a socket for datagrams with a name and one without.
func withServer(use func(server, fd int, to unix.Sockaddr) (string, error)) (text string, err error) {
	server, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(server)
	to := &unix.SockaddrUnix{Name: serverName}
	if err := unix.Bind(server, to); err != nil {
		return "", err
	}
	defer os.Remove(serverName)
	_, err = onDatagram(func(fd int) (err error) {
		text, err = use(server, fd, to)
		return err
	})
	return text, err
}

// toServer tells what arrived at the server.
func toServer(send func(fd int, to unix.Sockaddr) error) (string, error) {
	return withServer(func(server, fd int, to unix.Sockaddr) (string, error) {
		return receiveText(server, send(fd, to))
	})
}

// receiveText tells everything that has arrived.
func receiveText(fd int, sent error) (string, error) {
	if sent != nil {
		return "", sent
	}
	var all []string
	buf := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		if err == unix.EAGAIN || err == nil && n == 0 && len(all) > 8 {
			return fmt.Sprintf("%q", all), nil
		}
		if err != nil {
			return fmt.Sprintf("%q", all), err
		}
		all = append(all, string(buf[:n]))
	}
}

func inPair(kind int, use func(a, b int) (string, error)) (string, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	return use(pair[0], pair[1])
}

// sendMany calls sendmmsg and returns how much of each message was sent.
func sendMany(fd int, texts ...string) ([]uint32, error) {
	type many struct {
		header unix.Msghdr
		size   uint32
		_      uint32
	}
	all := make([]many, len(texts))
	parts := make([]unix.Iovec, len(texts))
	for i, text := range texts {
		data := []byte(text + "\x00")
		parts[i].Base = &data[0]
		parts[i].SetLen(len(text))
		all[i].header.Iov, all[i].size = &parts[i], 77
		all[i].header.SetIovlen(1)
	}
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&all[0])), uintptr(len(all)), 0, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	var sizes []uint32
	for _, m := range all[:n] {
		sizes = append(sizes, m.size)
	}
	return sizes, nil
}

// replyToSender sends from a socket with a name, so that the receiver knows where
// to reply to.
func replyToSender() (string, error) {
	return withServer(func(server, fd int, to unix.Sockaddr) (string, error) {
		defer os.Remove("client")
		if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: "client"}), unix.Sendto(fd, []byte("text"), 0, to)); err != nil {
			return "", err
		}
		n, from, err := unix.Recvfrom(server, make([]byte, 100), 0)
		if err != nil {
			return "", err
		}
		text, err := receiveText(fd, unix.Sendto(server, []byte("reply"), 0, from))
		return fmt.Sprint(n, from.(*unix.SockaddrUnix).Name, text), err
	})
}

// waitForRoom sends more than the receiver has room for, while it does not read.
func waitForRoom(connected bool) func() (string, error) {
	return func() (string, error) {
		return withServer(func(server, fd int, to unix.Sockaddr) (string, error) {
			if connected {
				if err := unix.Connect(fd, to); err != nil {
					return "", err
				}
				to = nil
			}
			const count = 2000
			done := make(chan error, 1)
			go func() {
				for range count {
					if err := unix.Sendmsg(fd, []byte("x"), nil, to, 0); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
			time.Sleep(50 * time.Millisecond)
			for range count {
				if _, _, err := unix.Recvfrom(server, make([]byte, 10), 0); err != nil {
					return "", err
				}
			}
			return "", <-done
		})
	}
}

func passDescriptor(kind int) (string, error) {
	return inPair(kind, func(a, b int) (string, error) {
		file, err := os.CreateTemp("", "")
		if err != nil {
			return "", err
		}
		defer file.Close()
		defer os.Remove(file.Name())
		if _, err := file.WriteString("content"); err != nil {
			return "", err
		}
		if err := unix.Sendmsg(a, []byte("x"), unix.UnixRights(int(file.Fd()), 0), nil, 0); err != nil {
			return "", err
		}
		control := make([]byte, 100)
		_, n, _, _, err := unix.Recvmsg(b, make([]byte, 10), control, unix.MSG_CMSG_CLOEXEC)
		if err != nil {
			return "", err
		}
		messages, err := unix.ParseSocketControlMessage(control[:n])
		if err != nil || len(messages) != 1 {
			return fmt.Sprint(len(messages)), err
		}
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil || len(fds) != 2 {
			return fmt.Sprint(len(fds)), err
		}
		defer unix.Close(fds[0])
		defer unix.Close(fds[1])
		buf := make([]byte, 100)
		n, err = unix.Pread(fds[0], buf, 0)
		return string(buf[:max(n, 0)]), err
	})
}

// longStream sends more in one call than the socket, or the broker, takes at once.
func longStream() (string, error) {
	return inPair(unix.SOCK_STREAM, func(a, b int) (string, error) {
		const size = 5 << 20
		done := make(chan string, 1)
		go func() {
			n, err := unix.SendmsgN(a, bytes.Repeat([]byte("0123456789"), size/10), nil, nil, 0)
			done <- fmt.Sprint(n, " ", err)
			_ = unix.Shutdown(a, unix.SHUT_WR)
		}()
		time.Sleep(20 * time.Millisecond)
		copied, err := unix.Dup(b)
		if err != nil {
			return "", err
		}
		file := os.NewFile(uintptr(copied), "")
		defer file.Close()
		read, err := io.ReadAll(file)
		return fmt.Sprint(len(read), string(read[len(read)-5:]), <-done), err
	})
}

func overUDP() (string, error) {
	server, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(server)
	if err := unix.Bind(server, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", err
	}
	to, err := unix.Getsockname(server)
	if err != nil {
		return "", err
	}
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(client)
	err = errors.Join(unix.Sendto(client, []byte("one"), 0, to), unix.Sendmsg(client, []byte("two"), nil, to, 0), unix.Connect(client, to))
	sizes, many := sendMany(client, "three", "four")
	text, err := receiveText(server, errors.Join(err, many))
	return text + fmt.Sprint(sizes), err
}

const exchangeWord = "exchange-messages"

func init() {
	if len(os.Args) != 2 || os.Args[1] != exchangeWord {
		return
	}
	if err := dropCapabilities(); err != nil {
		fmt.Println(err)
		unix.Exit(1)
	}
	for _, e := range exchanges {
		text, err := e.run()
		if err != nil {
			text += " " + err.Error()
		}
		fmt.Printf("%s: %q\n", e.name, text)
	}
	unix.Exit(0)
}

func TestMessagesArriveAsWithoutABroker(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", base)
	native := newTrial(t, filepath.Join(base, "native"))
	inside := newTrial(t, filepath.Join(base, "inside"))
	for _, r := range []*trial{native, inside} {
		if err := os.Mkdir(filepath.Join(r.dir, "d"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	free := exec.Command(native.program, exchangeWord)
	free.Dir = native.dir
	want, err := free.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, want)
	}
	got, err := aloneIn(inside.dir, inside.program).run(t, exchangeWord)
	if err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	wanted := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(wanted) || line != wanted[i] {
			t.Errorf("got  %s\nwant %s", line, wanted[min(i, len(wanted)-1)])
		}
	}
	t.Logf("without a sandbox:\n%s", want)
}

// senders are ways to a socket of the host for datagrams, in the working
// directory. Beside it the attacker has one of its own, whose name is as long.
var senders = []struct {
	name string
	way  func(socket, own string) error
}{
	{"sendto", func(socket, _ string) error {
		return second(onDatagram(func(fd int) error { return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: socket}) }))
	}},
	{"connect", func(socket, _ string) error {
		return second(onDatagram(func(fd int) error {
			return errors.Join(unix.Connect(fd, &unix.SockaddrUnix{Name: socket}), unix.Send(fd, []byte("x"), 0))
		}))
	}},
	{"sendmsg", func(socket, _ string) error {
		return second(onDatagram(func(fd int) error { return unix.Sendmsg(fd, []byte("x"), nil, &unix.SockaddrUnix{Name: socket}, 0) }))
	}},
	{"sendmsg of a pair", func(socket, _ string) error {
		return second(inPair(unix.SOCK_DGRAM, func(a, _ int) (string, error) {
			return "", unix.Sendmsg(a, []byte("x"), nil, &unix.SockaddrUnix{Name: socket}, 0)
		}))
	}},
	{"sendmsg while connected to an own socket", func(socket, own string) error {
		return second(onDatagram(func(fd int) error {
			return errors.Join(unix.Connect(fd, &unix.SockaddrUnix{Name: own}), unix.Sendmsg(fd, []byte("x"), nil, &unix.SockaddrUnix{Name: socket}, 0))
		}))
	}},
	{"raw socket", func(socket, _ string) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: socket})
	}},
	{"link", func(socket, _ string) error {
		defer os.Remove("link")
		return errors.Join(os.Symlink(socket, "link"), second(onDatagram(func(fd int) error {
			return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: "link"})
		})))
	}},
	{"name that changes", func(socket, own string) error { return sendFlipping(socket, own, unix.SYS_SENDMSG) }},
	{"name that changes in one of many", func(socket, own string) error { return sendFlipping(socket, own, unix.SYS_SENDMMSG) }},
	{"address that changes", func(socket, own string) error { return sendFlipping(socket, own, unix.SYS_SENDTO) }},
	{"socket that changes", sendSwapping},
}

func second(_ string, err error) error { return err }

// raceTime is how long something is tried that must not win.
const raceTime = 400 * time.Millisecond

// sendFlipping changes where a message goes to while it is sent: now to a socket
// of the attacker's own or nowhere, now to the victim.
func sendFlipping(socket, own string, call uintptr) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// In memory that the race detector does not know.
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	const name, victim, data, header = 0, 256, 512, 1024
	size := copy(page[name+2:], own) + 2
	copy(page[victim+2:], socket)
	page[name], page[victim] = unix.AF_UNIX, unix.AF_UNIX
	at := uintptr(unsafe.Pointer(&page[0]))
	m := (*[7]uintptr)(unsafe.Pointer(&page[header])) // name, its length, parts, their number
	m[0], m[1], m[2], m[3] = at+name, uintptr(size), at+data, 1
	copy((*[2]uintptr)(unsafe.Pointer(&page[data]))[:], []uintptr{at + data, 1})
	end := time.Now().Add(raceTime)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; time.Now().Before(end); i++ {
			copy(page[name+2:], [...]string{own, socket}[i%2])
			m[0] = [...]uintptr{at + name, 0, at + victim}[i%3]
		}
	}()
	for time.Now().Before(end) {
		switch call {
		case unix.SYS_SENDTO:
			_, _, _ = unix.Syscall6(call, uintptr(fd), at+data, 1, 0, at+name, uintptr(size))
		case unix.SYS_SENDMSG:
			_, _, _ = unix.Syscall(call, uintptr(fd), at+header, 0)
		case unix.SYS_SENDMMSG:
			_, _, _ = unix.Syscall6(call, uintptr(fd), at+header, 1, 0, 0, 0)
		}
	}
	<-stopped
	return unix.Munmap(page)
}

// sendSwapping changes which socket a descriptor is while something is sent: now
// one whose messages need no judgement, now one for datagrams.
func sendSwapping(socket, _ string) error {
	used, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(used)
	end := time.Now().Add(raceTime)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for time.Now().Before(end) {
			for _, domain := range []int{unix.AF_UNIX, unix.AF_INET} {
				s, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
				if err == nil {
					_ = unix.Dup3(s, used, unix.O_CLOEXEC)
					_ = unix.Close(s)
				}
			}
		}
	}()
	for time.Now().Before(end) {
		_ = unix.Sendmsg(used, []byte("x"), nil, &unix.SockaddrUnix{Name: socket}, 0)
	}
	<-stopped
	return nil
}

const sendWord = "send-to-host"

func init() {
	if len(os.Args) != 3 || os.Args[1] != sendWord {
		return
	}
	server, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(server, &unix.SockaddrUnix{Name: "mine"})
	}
	for _, s := range senders {
		if err == nil && s.name == os.Args[2] {
			err = s.way("host", "mine")
		}
	}
	fmt.Println(err)
	_ = os.Remove("mine")
	unix.Exit(0)
}

func TestDatagramsDoNotReachTheHost(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	trial := newTrial(t, filepath.Join(base, "p"))
	t.Chdir(trial.dir) // an address has no room for a long path
	host, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(host)
	if err := unix.Bind(host, &unix.SockaddrUnix{Name: "host"}); err != nil {
		t.Fatal(err)
	}
	arrived := func() (n int) {
		for {
			if _, _, err := unix.Recvfrom(host, make([]byte, 8), unix.MSG_DONTWAIT); err != nil {
				return n
			}
			n++
		}
	}
	for _, s := range senders {
		t.Run(s.name, func(t *testing.T) {
			a := aloneIn(trial.dir, trial.program)
			out, err := a.run(t, sendWord, s.name)
			if n := arrived(); n > 0 || err != nil {
				t.Errorf("%d messages reached the host (%v): %s", n, err, out)
			}
			if a.denied() == 0 {
				t.Errorf("nothing was denied: %s", out)
			}
			a = aloneIn(trial.dir, trial.program)
			a.filter.Sockets, a.filter.Datagrams = false, false
			if out, err = a.run(t, sendWord, s.name); arrived() == 0 {
				t.Errorf("control: without the broker nothing arrives either (%v): %s", err, out)
			}
			a = aloneIn(trial.dir, trial.program)
			a.spec.Broker.Sockets.Allowed = []string{trial.dir + "/host"}
			if out, err = a.run(t, sendWord, s.name); arrived() == 0 {
				t.Errorf("control: with the grant given nothing arrives (%v): %s", err, out)
			}
		})
	}
}
