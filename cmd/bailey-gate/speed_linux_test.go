package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// pour is a server that sends as many bytes as the path says.
func pour(w http.ResponseWriter, r *http.Request) {
	size, _ := strconv.ParseInt(strings.Trim(r.URL.Path, "/"), 10, 64)
	w.Header().Set("Content-Length", fmt.Sprint(size))
	buffer := make([]byte, 256<<10)
	for size > 0 {
		n, err := w.Write(buffer[:min(size, int64(len(buffer)))])
		if err != nil {
			return
		}
		size -= int64(n)
	}
}

// request asks for bytes, at the server itself or through the gate.
type request func(port string, size int64) (net.Conn, error)

func direct(port string, size int64) (net.Conn, error) {
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err == nil {
		_, err = fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: good.example:%s\r\n\r\n", size, port)
	}
	return c, err
}

// bytesOnly asks a server, or a relay to it, for bytes without HTTP.
func bytesOnly(port string, size int64) (net.Conn, error) {
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err == nil {
		_, err = fmt.Fprintf(c, "%d\n", size)
	}
	return c, err
}

func (p *process) proxied(port string, size int64) (net.Conn, error) {
	c, err := net.Dial("tcp", p.address(config.RoleHTTP))
	if err == nil {
		_, err = fmt.Fprintf(c, "GET http://good.example:%s/%d HTTP/1.1\r\nHost: good.example:%s\r\n\r\n", port, size, port)
	}
	return c, err
}

func (p *process) tunnelled(port string, size int64) (net.Conn, error) {
	c, err := net.Dial("tcp", p.address(config.RoleHTTP))
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c, "CONNECT good.example:%s HTTP/1.1\r\nHost: good.example:%s\r\n\r\n", port, port)
	r := bufio.NewReaderSize(c, 64)
	for {
		line, err := r.ReadString('\n')
		if err != nil || line == "\r\n" {
			_, err = fmt.Fprintf(c, "%d\n", size)
			return c, err
		}
	}
}

// fetch reads what was asked for, and how long that took.
func fetch(t testing.TB, ask request, port string, size int64) time.Duration {
	begin := time.Now()
	c, err := ask(port, size)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(60 * time.Second))
	if n, err := io.CopyN(io.Discard, struct{ io.Reader }{c}, size); err != nil {
		t.Errorf("%d of %d bytes: %v", n, size, err)
	}
	return time.Since(begin)
}

// rawServer sends as many bytes as it is told in one line.
func rawServer(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
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
				line, _ := bufio.NewReader(c).ReadString('\n')
				size, _ := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
				buffer := make([]byte, 256<<10)
				for size > 0 {
					n, err := c.Write(buffer[:min(size, int64(len(buffer)))])
					if err != nil {
						return
					}
					size -= int64(n)
				}
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func TestMemoryUnderManyStreamsStaysSmall(t *testing.T) {
	testenv.Requires(t, testenv.NoRace)
	const streams, size, most = 64, 8 << 20, 40 << 10 // in kilobytes
	p := start(t, goodOnly, config.RoleHTTP)
	for name, c := range map[string]struct {
		ask  request
		port string
	}{"requests": {p.proxied, page(t, pour)}, "tunnels": {p.tunnelled, rawServer(t)}} {
		var wait sync.WaitGroup
		for range streams {
			wait.Go(func() { fetch(t, c.ask, c.port, size) })
		}
		wait.Wait()
		if peak := p.peakMemory(); peak > most {
			t.Errorf("%s: %d KB, want at most %d", name, peak, most)
		} else {
			t.Logf("%s: %d KB", name, peak)
		}
	}
}

// peakMemory is the most memory the gate ever had resident, in kilobytes.
func (p *process) peakMemory() int {
	p.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				p.t.Fatal(err)
			}
			return n
		}
	}
	p.t.Fatal("no VmHWM")
	return 0
}

func BenchmarkDownload(b *testing.B) {
	p := start(b, goodOnly, config.RoleHTTP)
	web, raw := page(b, pour), rawServer(b)
	const size = 64 << 20
	for _, c := range []struct {
		name string
		ask  request
		port string
	}{
		{"direct", direct, web},
		{"proxied", p.proxied, web},
		{"tunnelled", p.tunnelled, raw},
		{"direct bytes", bytesOnly, raw},
		{"socat", bytesOnly, socat(b, raw)},
	} {
		if c.port == "" {
			b.Logf("%s is not installed", c.name)
			continue
		}
		for _, streams := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", c.name, streams), func(b *testing.B) {
				b.SetBytes(size)
				for range b.N {
					var wait sync.WaitGroup
					for range streams {
						wait.Go(func() { fetch(b, c.ask, c.port, int64(size/streams)) })
					}
					wait.Wait()
				}
			})
		}
	}
}

// socat relays to a port, for comparison; it returns its own, or "".
func socat(b *testing.B, to string) string {
	b.Helper()
	if _, err := exec.LookPath("socat"); err != nil {
		return ""
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	cmd := exec.Command("socat", "TCP-LISTEN:"+port+",bind=127.0.0.1,fork,reuseaddr,backlog=128", "TCP:127.0.0.1:"+to)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for {
		if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			c.Close()
			return port
		}
		runtime.Gosched()
	}
}

func BenchmarkRequest(b *testing.B) {
	p := start(b, goodOnly, config.RoleHTTP)
	port := page(b, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
	for _, c := range []struct {
		name    string
		address string
		target  string
	}{
		{"direct", "127.0.0.1:" + port, "/"},
		{"proxied", p.address(config.RoleHTTP), "http://good.example:" + port + "/"},
	} {
		ask := func(conn net.Conn, r *bufio.Reader) {
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: good.example:%s\r\n\r\n", c.target, port)
			answer, err := http.ReadResponse(r, nil)
			if err != nil {
				b.Fatal(err)
			}
			io.Copy(io.Discard, answer.Body)
		}
		b.Run(c.name+"/kept", func(b *testing.B) {
			conn, err := net.Dial("tcp", c.address)
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			r := bufio.NewReader(conn)
			for range b.N {
				ask(conn, r)
			}
		})
		b.Run(c.name+"/new", func(b *testing.B) {
			for range b.N {
				conn, err := net.Dial("tcp", c.address)
				if err != nil {
					b.Fatal(err)
				}
				ask(conn, bufio.NewReader(conn))
				conn.Close()
			}
		})
	}
}
