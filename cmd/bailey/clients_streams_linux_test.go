package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// streams tries a protocol in the clear, in TLS, and in TLS that the gate opens.
func (s *site) streams(t *testing.T, name, plain, secure string, argv func(scheme, host string) []string, works func(result) error) {
	c := client{name: name + ", " + plain, works: works, argv: func(host string) []string { return argv(plain, host) }}
	s.reaches(t, c)
	c.name, c.argv = name+", "+secure, func(host string) []string { return argv(secure, host) }
	s.reaches(t, c)
	vars, env := maps.Clone(s.vars), s.env
	s.trustTheGate()
	c.name, c.network = c.name+", inspected", inspected
	s.reaches(t, c)
	s.vars, s.env = vars, env
}

func TestWebSocketsTalkToGrantedHosts(t *testing.T) {
	testenv.Requires(t, testenv.File(systemPython), testenv.File(pythonPackages(t)))
	atSite(t, func(t *testing.T, s *site) {
		s.python(t)
		s.mux.Handle("/echo", websocket.Server{Handler: func(c *websocket.Conn) { _, _ = io.Copy(c, c) }})
		script := s.program(t, "websocket.py")
		for _, library := range []string{"websockets", "aiohttp"} {
			s.streams(t, library, "ws", "wss", func(scheme, host string) []string {
				return []string{systemPython, script, library, scheme + "://" + host + "/echo"}
			}, prints("one two three\n"))
		}
	})
}

func TestRemoteProceduresOfGrantedHostsAreCalled(t *testing.T) {
	testenv.Requires(t, testenv.File(systemPython), testenv.File(pythonPackages(t)))
	atSite(t, func(t *testing.T, s *site) {
		s.python(t)
		s.mux.HandleFunc("POST /greeting.Greeter/", echoMessages)
		script := s.program(t, "rpc.py")
		s.streams(t, "grpc", "insecure", "secure", func(scheme, host string) []string {
			port := ":443"
			if scheme == "insecure" {
				port = ":80"
			}
			return []string{systemPython, script, scheme, host + port}
		}, prints("hello\none\ntwo\nthree\n"))
	})
}

// echoMessages is a server of gRPC that sends every message back: a byte for
// compression, four for the length, the message.
func echoMessages(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	answer := http.NewResponseController(w)
	head := make([]byte, 5)
	for {
		_ = answer.Flush()
		if _, err := io.ReadFull(r.Body, head); err != nil {
			break
		}
		message := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(r.Body, message); err != nil {
			return
		}
		_, _ = w.Write(append(head[:5:5], message...))
	}
	w.Header().Set("Grpc-Status", "0")
}

// Each event is sent only after the client has said that it saw the last one, so
// that one that is held back anywhere ends it all.
func TestServerSentEventsArriveOneByOne(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"), testenv.Program("bash"))
	atSite(t, func(t *testing.T, s *site) {
		seen := make(chan string, 1)
		s.mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, name := range []string{"one", "two", "three"} {
				fmt.Fprintf(w, "data: %s\n\n", name)
				_ = http.NewResponseController(w).Flush()
				select {
				case got := <-seen:
					if got != name {
						t.Errorf("saw %q, want %q", got, name)
					}
				case <-r.Context().Done():
					t.Errorf("the client left without having seen %q", name)
					return
				}
			}
		})
		s.mux.HandleFunc("POST /seen", func(_ http.ResponseWriter, r *http.Request) {
			name, _ := io.ReadAll(r.Body)
			seen <- string(name)
		})
		const script = `set -o pipefail
			curl -sSfN --max-time 60 "$0/events" | while read -r key name; do
				[ -z "$key" ] || { echo "$name" && curl -sSf --max-time 60 -d "$name" "$0/seen"; } || exit
			done`
		s.streams(t, "curl", "http", "https", func(scheme, host string) []string {
			return []string{"bash", "-c", script, scheme + "://" + host}
		}, prints("one\ntwo\nthree\n"))
	})
}

const largeSize = 2<<30 + 1234567

// large is content of that size. It repeats after so many bytes that a part
// that is missing or doubled shows.
type large struct {
	pattern []byte
	offset  int64
}

func newLarge() *large {
	random := rand.NewChaCha8([32]byte{})
	l := &large{pattern: make([]byte, 1000003)}
	_, _ = random.Read(l.pattern)
	return l
}

func (l *large) Read(p []byte) (int, error) {
	if l.offset >= largeSize {
		return 0, io.EOF
	}
	n := copy(p, l.pattern[l.offset%int64(len(l.pattern)):])
	n = int(min(int64(n), largeSize-l.offset))
	l.offset += int64(n)
	return n, nil
}

func (l *large) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += l.offset
	case io.SeekEnd:
		offset += largeSize
	}
	l.offset = offset
	return offset, nil
}

func TestALargeDownloadIsResumed(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	atSite(t, func(t *testing.T, s *site) {
		s.mux.HandleFunc("GET /large", func(w http.ResponseWriter, r *http.Request) {
			content := newLarge()
			if r.Header.Get("Range") == "" {
				w.Header().Set("Content-Length", fmt.Sprint(largeSize))
				_, _ = io.CopyN(w, content, largeSize/3)
				panic(http.ErrAbortHandler)
			}
			http.ServeContent(w, r, "large", time.Time{}, content)
		})
		const script = `get() { curl -sSf -o large "$@"; }; get "$0" || get -C - "$0"`
		s.reaches(t, client{
			name: "curl",
			argv: func(host string) []string { return []string{"sh", "-c", script, "http://" + host + "/large"} },
			works: func(result) error {
				defer os.Remove(filepath.Join(s.dir, "large"))
				return isLarge(filepath.Join(s.dir, "large"))
			},
		})
	})
}

// isLarge compares a file with the content.
func isLarge(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	want, got := make([]byte, 1<<20), make([]byte, 1<<20)
	for content := newLarge(); ; {
		n, err := io.ReadFull(content, want)
		m, _ := io.ReadFull(f, got)
		if !bytes.Equal(want[:n], got[:m]) {
			return fmt.Errorf("it differs in the million bytes before %d", content.offset)
		}
		if err != nil {
			return nil
		}
	}
}
