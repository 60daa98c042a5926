package socks

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
)

const hello5 = "\x05\x01\x00"

func TestRequestsOfEveryVersionAreRead(t *testing.T) {
	for _, c := range []struct {
		name, in, host string
		port           uint16
		answers        string // with the one to the request
	}{
		{"5, a name", hello5 + "\x05\x01\x00\x03\x0bExample.com\x01\xbb", "example.com", 443, "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"},
		{"5, IPv4", hello5 + "\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50", "127.0.0.1", 80, "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"},
		{"5, IPv6", hello5 + "\x05\x01\x00\x04" + strings.Repeat("\x00", 15) + "\x01\x00\x50", "::1", 80, "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"},
		{"5, mapped", hello5 + "\x05\x01\x00\x04" + strings.Repeat("\x00", 10) + "\xff\xff\x7f\x00\x00\x01\x00\x50", "127.0.0.1", 80, "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"},
		{"5, an address as a name", hello5 + "\x05\x01\x00\x03\x060x7f.1\x00\x50", "127.0.0.1", 80, "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"},
		{"5, of two methods", "\x05\x02\x02\x00\x05\x01\x00\x03\x01a\x00\x50", "a", 80, "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"},
		{"4", "\x04\x01\x00\x50\x01\x02\x03\x04user\x00", "1.2.3.4", 80, "\x00\x5a\x00\x00\x00\x00\x00\x00"},
		{"4a", "\x04\x01\x01\xbb\x00\x00\x00\x01\x00a.com\x00", "a.com", 443, "\x00\x5a\x00\x00\x00\x00\x00\x00"},
		{"4, to nowhere", "\x04\x01\x00\x50\x00\x00\x00\x00\x00", "0.0.0.0", 80, "\x00\x5a\x00\x00\x00\x00\x00\x00"},
	} {
		r := bufio.NewReader(strings.NewReader(c.in + "rest"))
		var w bytes.Buffer
		q, err := Accept(r, &w)
		if err != nil || q.Host.String() != c.host || q.Port != c.port {
			t.Errorf("%s: got %q %d, %v", c.name, q.Host, q.Port, err)
			continue
		}
		if err := q.Answer(&w, Succeeded); err != nil || w.String() != c.answers {
			t.Errorf("%s: answered %q, %v", c.name, w.String(), err)
		}
		if rest, _ := io.ReadAll(r); string(rest) != "rest" {
			t.Errorf("%s: %q is left", c.name, rest)
		}
	}
}

func TestWhatCannotBeServedIsAnswered(t *testing.T) {
	for _, c := range []struct{ name, in, answers string }{
		{"bind", hello5 + "\x05\x02\x00\x03\x01a\x00\x50", "\x05\x00\x05\x07"},
		{"udp", hello5 + "\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00", "\x05\x00\x05\x07"},
		{"unknown command", hello5 + "\x05\x09\x00\x03\x01a\x00\x50", "\x05\x00\x05\x07"},
		{"unknown address", hello5 + "\x05\x01\x00\x09a", "\x05\x00\x05\x08"},
		{"no name", hello5 + "\x05\x01\x00\x03\x00\x00\x50", "\x05\x00\x05\x08"},
		{"name with a blank", hello5 + "\x05\x01\x00\x03\x03a b\x00\x50", "\x05\x00\x05\x08"},
		{"port 0", hello5 + "\x05\x01\x00\x03\x01a\x00\x00", "\x05\x00\x05\x01"},
		{"reserved byte", hello5 + "\x05\x01\x01\x03\x01a\x00\x50", "\x05\x00\x05\x01"},
		{"only passwords", "\x05\x01\x02", "\x05\xff"},
		{"no methods", "\x05\x00", "\x05\xff"},
		{"4, bind", "\x04\x02\x00\x50\x01\x02\x03\x04\x00", "\x00\x5b"},
		{"4, endless user", "\x04\x01\x00\x50\x01\x02\x03\x04" + strings.Repeat("u", 300), "\x00\x5b"},
		{"4a, endless name", "\x04\x01\x00\x50\x00\x00\x00\x01\x00" + strings.Repeat("a", 300), "\x00\x5b"},
		{"http", "GET / HTTP/1.1\r\n\r\n", ""},
		{"cut short", hello5 + "\x05\x01\x00\x03\x0bexamp", "\x05\x00"},
	} {
		var w bytes.Buffer
		q, err := Accept(bufio.NewReader(strings.NewReader(c.in)), &w)
		if err == nil || !q.Host.IsZero() {
			t.Errorf("%s: got %q, %v", c.name, q.Host, err)
		}
		if !strings.HasPrefix(w.String(), c.answers) || c.answers == "" && w.Len() > 0 {
			t.Errorf("%s: answered %q, want %q", c.name, w.String(), c.answers)
		}
	}
}

func TestClientAndServerUnderstandEachOther(t *testing.T) {
	for _, name := range []string{"example.com", "192.0.2.1", "2001:db8::1"} {
		want, _ := hostname.Parse(name)
		a, b := net.Pipe()
		done := make(chan error)
		go func() { done <- Connect(a, want, 443, "", "") }()
		q, err := Accept(bufio.NewReader(b), b)
		if err != nil || q.Host != want || q.Port != 443 {
			t.Errorf("%s: got %q %d, %v", name, q.Host, q.Port, err)
		}
		_ = q.Answer(b, NotAllowed)
		var refused *Error
		if err := <-done; !errors.As(err, &refused) || refused.Reply != NotAllowed {
			t.Errorf("%s: the client got %v", name, err)
		}
	}
}

func TestPasswordIsSentOnlyIfWanted(t *testing.T) {
	host, _ := hostname.Parse("a")
	for _, c := range []struct {
		name, user, answers, sent string
		ok                        bool
	}{
		{"not wanted", "u", "\x05\x00\x05\x00\x00\x03\x02xy\x00\x00", "\x05\x02\x00\x02\x05\x01\x00\x03\x01a\x00\x50", true},
		{"wanted", "u", "\x05\x02\x01\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00", "\x05\x02\x00\x02\x01\x01u\x01p\x05\x01\x00\x03\x01a\x00\x50", true},
		{"refused", "u", "\x05\x02\x01\x01", "\x05\x02\x00\x02\x01\x01u\x01p", false},
		{"wanted without being offered", "", "\x05\x02", "\x05\x01\x00", false},
		{"nonsense", "", "HTTP/1.1", "\x05\x01\x00", false},
	} {
		var sent bytes.Buffer
		err := Connect(struct {
			io.Reader
			io.Writer
		}{strings.NewReader(c.answers), &sent}, host, 80, c.user, "p")
		if (err == nil) != c.ok || sent.String() != c.sent {
			t.Errorf("%s: sent %q, %v", c.name, sent.String(), err)
		}
	}
}

func FuzzHandshakeEndsInAHostOrAnError(f *testing.F) {
	f.Add([]byte(hello5 + "\x05\x01\x00\x03\x0bExample.com\x01\xbb"))
	f.Add([]byte("\x04\x01\x01\xbb\x00\x00\x00\x01\x00a.com\x00"))
	f.Add([]byte("\x05\x03\x00\x01\x02\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var w bytes.Buffer
		q, err := Accept(bufio.NewReader(bytes.NewReader(b)), &w)
		if err != nil {
			return
		}
		if q.Host.IsZero() || q.Port == 0 {
			t.Errorf("got %+v", q)
		}
		if again, err := hostname.Parse(q.Host.String()); err != nil || again != q.Host {
			t.Errorf("%q is not canonical", q.Host)
		}
		if w.Len() > 2 {
			t.Errorf("answered %q before the request was decided", w.Bytes())
		}
	})
}

func FuzzProxyAnswer(f *testing.F) {
	f.Add([]byte("\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x05\x02\x01\x00\x05\x00\x00\x03\x02xy\x00\x00"))
	host, _ := hostname.Parse("a.com")
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = Connect(struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(b), io.Discard}, host, 80, "u", "p")
	})
}
