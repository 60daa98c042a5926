package gate

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/hello"
)

// spoken is a connection on which a client said something and ended.
type spoken struct {
	net.Conn
	io.Reader
}

func (s *spoken) Read(b []byte) (int, error)      { return s.Reader.Read(b) }
func (s *spoken) SetReadDeadline(time.Time) error { return nil }

// one reads byte by byte.
type one struct{ io.Reader }

func (o one) Read(b []byte) (int, error) { return o.Reader.Read(b[:1]) }

func TestFirstBytesTellTheProtocol(t *testing.T) {
	for text, want := range map[string]speech{
		"":                                  speechNone,
		"GET / HTTP/1.1\r\n":                speechHTTP1,
		"OPTIONS * HTTP/1.0\r\nmore":        speechHTTP1,
		"get / http/1.1\n":                  speechHTTP1,
		"GET /\tHTTP/1.1\r\n":               speechHTTP1,
		"\r\nGET / HTTP/1.1\r\n":            speechHTTP1,
		"\nGET / HTTP/1.1\r\n":              speechHTTP1,
		" \r\n":                             speechHTTP1,
		"GET / HTTP/1.1":                    speechHTTP1, // and then the end
		"GET " + strings.Repeat("x", 10000): speechHTTP1, // to be refused
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":  speechHTTP2,

		"SSH-2.0-OpenSSH_9.2 Debian HTTP/1.1\r\n": speechSSH,
		"EHLO me.example\r\n":                     speechOther,
		"PING\r\n":                                speechOther,
		"NICK a\r\n":                              speechOther,
		"\x00\x00\x00\x08\x04\xd2\x16\x2f":        speechOther,
		"*1\r\n$4\r\nPING\r\n":                    speechOther,
		"\x16\x02\x00\x00\x00":                    speechOther, // no TLS
		"\x16":                                    speechOther,
		"\x80\x2e\x01\x03\x01":                    speechOther, // an SSL 2 hello
		strings.Repeat("a", 100):                  speechOther,
		"EHLO":                                    speechOther,
		string(rawHello(serverName("a.example"))): speechTLS,
	} {
		for _, r := range []io.Reader{strings.NewReader(text), one{strings.NewReader(text)}} {
			w := newWire(&spoken{Reader: r})
			got, h, err := sniff(w)
			if err != nil || got != want {
				t.Errorf("%.40q: got %v, %v, want %v", text, got, err, want)
			}
			if want == speechTLS && h.ServerName != "a.example" {
				t.Errorf("got %+v", h)
			}
			// Nothing is lost.
			if rest, _ := io.ReadAll(w); string(rest) != text {
				t.Errorf("%.40q: %.40q is left", text, rest)
			}
		}
	}
}

func FuzzSniffLosesNothing(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Add([]byte("SSH-2.0-x\r\n"))
	f.Add(rawHello(serverName("a.example")))
	f.Add([]byte("\r\nGET\t/ http/1.1\n"))
	f.Add([]byte("GET\r/ HTTP/1.1@"))
	f.Add([]byte("GET\u0085/\u00a0HTTP/1.1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newWire(&spoken{Reader: bytes.NewReader(b)})
		said, _, err := sniff(w)
		rest, _ := io.ReadAll(w)
		if !bytes.Equal(rest, b) {
			t.Fatalf("%q became %q", b, rest)
		}
		if err != nil {
			return
		}
		// What a server could read as HTTP/1 with a version is told as HTTP.
		line, _, _ := bytes.Cut(bytes.TrimLeft(b, "\r\n \t"), []byte("\n"))
		words := bytes.Fields(line)
		if said == speechOther && len(words) == 3 && len(words[0]) <= 20 && len(line) < maxFirstLine && bytes.HasPrefix(bytes.ToUpper(words[2]), []byte("HTTP/1.")) && isWord(words[0]) {
			t.Errorf("%q is not told as HTTP", b)
		}
		if said == speechTLS {
			if _, err := hello.Parse(b); err != nil {
				t.Errorf("%q is told as TLS: %v", b, err)
			}
		}
	})
}

func isWord(b []byte) bool {
	for _, c := range b {
		if (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return len(b) > 0
}
