package owner

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// start runs this test once more, as a client of an address, and returns it when
// it is connected.
func start(t *testing.T, network, address string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestClient$")
	cmd.Env = append(os.Environ(), "OWNER_TEST_NETWORK="+network, "OWNER_TEST_ADDRESS="+address)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	return cmd
}

// TestClient is the client: it says one thing and waits for its end.
func TestClient(t *testing.T) {
	network := os.Getenv("OWNER_TEST_NETWORK")
	if network == "" {
		return // the tests below start it
	}
	c, err := net.Dial(network, os.Getenv("OWNER_TEST_ADDRESS"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
}

func finder(t *testing.T) *Finder {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(os.Getpid(), os.NewFile(uintptr(fd), "diag"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(f.diag) })
	return f
}

func TestClientOfAConnectionIsFound(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err) // without IPv6
			continue
		}
		defer l.Close()
		client := start(t, "tcp", l.Addr().String())
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f := finder(t)
		from, to := c.RemoteAddr().(*net.TCPAddr).AddrPort(), c.LocalAddr().(*net.TCPAddr).AddrPort()
		for range 2 { // the second time it is among those tried first
			if got := f.TCP(from, to); got.Pid != client.Process.Pid || got.Name == "" {
				t.Errorf("%s: got %+v, want process %d", address, got, client.Process.Pid)
			}
		}
		if got := f.TCP(netip.AddrPortFrom(from.Addr(), from.Port()^1), to); got != (Process{}) {
			t.Errorf("%s: nobody's connection belongs to %+v", address, got)
		}
	}
}

func TestSenderOfADatagramIsFound(t *testing.T) {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	client := start(t, "udp", c.LocalAddr().String())
	_, from, err := c.ReadFromUDPAddrPort(make([]byte, 1))
	if err != nil {
		t.Fatal(err)
	}
	if got := finder(t).UDP(from, c.LocalAddr().(*net.UDPAddr).AddrPort()); got.Pid != client.Process.Pid {
		t.Errorf("got %+v, want process %d", got, client.Process.Pid)
	}
}
