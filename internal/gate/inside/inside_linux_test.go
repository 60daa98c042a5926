package inside

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is for a loaded machine; nothing here takes long.
const patience = 20 * time.Second

// pair makes the two sockets of one family, and says where the first listens.
func pair(t *testing.T, d *Dialer, address unix.Sockaddr) unix.Sockaddr {
	t.Helper()
	family := unix.AF_INET
	if _, six := address.(*unix.SockaddrInet6); six {
		family = unix.AF_INET6
	}
	var fds [2]int
	for i := range fds {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Skipf("no sockets of this family: %v", err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		fds[i] = fd
	}
	if err := errors.Join(unix.Bind(fds[0], address), unix.Listen(fds[0], 100)); err != nil {
		t.Skipf("no loopback of this family: %v", err)
	}
	at, err := unix.Getsockname(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	// As a gate leaves them that is killed in the middle of something.
	if err := unix.Connect(fds[1], at); err != nil {
		t.Fatal(err)
	}
	if err := d.Add(fds[0], fds[1]); err != nil {
		t.Fatal(err)
	}
	return at
}

func four() unix.Sockaddr { return &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}} }
func six() unix.Sockaddr  { return &unix.SockaddrInet6{Addr: [16]byte{15: 1}} }

// echo answers what is said, with the address of who said it before.
func echo(t *testing.T, network, address string) (port uint16) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprintf(c, "%s ", c.RemoteAddr().(*net.TCPAddr).IP)
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func converse(c *net.TCPConn, text string) (string, error) {
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	if err := c.CloseWrite(); err != nil {
		return "", err
	}
	data, err := io.ReadAll(c)
	return string(data), err
}

func TestTwoSocketsMakeConnectionsWithoutEnd(t *testing.T) {
	d := &Dialer{}
	pair(t, d, four())
	port := echo(t, "tcp", "127.0.0.1:0")
	var group sync.WaitGroup
	for i := range 200 {
		group.Go(func() {
			c, err := d.Dial(port, patience)
			if err != nil {
				t.Error(err)
				return
			}
			text := fmt.Sprint("message ", i)
			if got, err := converse(c, text); err != nil || got != "127.0.0.1 "+text {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	group.Wait()
}

func TestTheFamilyIsUsedInWhichSomebodyListens(t *testing.T) {
	d := &Dialer{}
	pair(t, d, four())
	pair(t, d, six())
	for address, want := range map[string]string{"127.0.0.1:0": "127.0.0.1 ", "[::1]:0": "::1 ", "[::]:0": "127.0.0.1 ", "0.0.0.0:0": "127.0.0.1 "} {
		c, err := d.Dial(echo(t, "tcp", address), patience)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if got, err := converse(c, ""); err != nil || got != want {
			t.Errorf("%s: got %q, %v", address, got, err)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	d := &Dialer{}
	pair(t, d, four())
	pair(t, d, six())
	port := echo(t, "tcp", "127.0.0.1:0")
	for range 3 {
		if c, err := d.Dial(1, patience); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("got %v, %v", c, err)
		}
		c, err := d.Dial(port, patience)
		if err != nil {
			t.Fatalf("after a refusal: %v", err)
		}
		c.Close()
	}
	if c, err := new(Dialer).Dial(port, patience); err == nil {
		t.Errorf("without any socket: %v", c)
	}
}

// Programs inside can reach the listener as well.
func TestStrangersAreTurnedAway(t *testing.T) {
	d := &Dialer{}
	at := pair(t, d, four()).(*unix.SockaddrInet4)
	port := echo(t, "tcp", "127.0.0.1:0")
	var strangers []net.Conn
	for range 50 {
		c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", at.Port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		strangers = append(strangers, c)
	}
	c, err := d.Dial(port, patience)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := converse(c, "x"); err != nil || got != "127.0.0.1 x" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, s := range strangers {
		_ = s.SetDeadline(time.Now().Add(patience))
		if n, err := s.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a stranger read %d, %v", n, err)
		}
	}
}
