package gate

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
)

// expose leads a new port to a server, and returns where it is. Without a server
// nobody listens inside.
func (w *world) expose(port uint16, server func(net.Conn)) string {
	w.t.Helper()
	outside, inside := tcpListener(w.t), tcpListener(w.t)
	go func() {
		for {
			c, err := inside.Accept()
			if err != nil {
				return
			}
			go server(c)
		}
	}()
	done := make(chan error, 1)
	go func() {
		done <- w.Expose(outside, port, func(to uint16, _ time.Duration) (*net.TCPConn, error) {
			if to != port || server == nil {
				return nil, errors.New("refused")
			}
			c, err := net.Dial("tcp", inside.Addr().String())
			if err != nil {
				return nil, err
			}
			return c.(*net.TCPConn), nil
		})
	}()
	w.t.Cleanup(func() {
		outside.Close()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	return outside.Addr().String()
}

func tcpListener(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// answerer says "hello" to what it is told, when that has come to its end.
func answerer(c net.Conn) {
	defer c.Close()
	text, _ := io.ReadAll(c)
	fmt.Fprintf(c, "hello %s", text)
}

func talk(address, text string) (string, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	data, err := io.ReadAll(c)
	return string(data), err
}

func TestExposedPortLeadsInsideAndIsRecorded(t *testing.T) {
	w := newWorld(t, `{}`)
	at := w.expose(3000, answerer)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if got, err := talk(at, "world"); err != nil || got != "hello world" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	group.Wait()
	e := w.event("a connection", func(e *event.Event) bool { return e.Kind == event.Connection })
	if e.Op != event.OpAccept || e.Address != "127.0.0.1" || e.Port != 3000 || e.BytesIn != 5 || e.BytesOut != 11 || e.Sandbox != "b7" {
		t.Errorf("got %+v", e)
	}
	w.untouched("connections from outside")
}

func TestExposedPortWithNobodyBehindItIsReset(t *testing.T) {
	w := newWorld(t, `{}`)
	if got, err := talk(w.expose(3000, nil), "world"); err == nil {
		t.Errorf("got %q", got)
	}
}

func TestExposedPortCountsForTheLimit(t *testing.T) {
	w := newWorld(t, `{"network": {"limits": {"connections": 1}}}`)
	held := make(chan struct{})
	at := w.expose(3000, func(c net.Conn) {
		defer c.Close()
		io.WriteString(c, "x")
		<-held
	})
	defer close(held)
	first, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := io.ReadFull(first, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if got, _ := talk(at, ""); got != "" {
		t.Errorf("a second one got %q", got)
	}
	w.event("the limit", func(e *event.Event) bool {
		return e.Kind == event.Limit && strings.HasSuffix(e.Limit, "limits.connections")
	})
}

// The gate ends with the sandbox, and what a server inside had sent by then is
// still on its way. A client that keeps its side open does not keep the gate.
func TestLastBytesFromInsideOutliveTheGate(t *testing.T) {
	const size = 1 << 20
	w := newWorld(t, `{}`)
	ended := make(chan struct{})
	at := w.expose(3000, func(c net.Conn) {
		defer close(ended)
		defer c.Close()
		_, _ = c.Write(make([]byte, size))
	})
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-ended
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		w.Close()
	}()
	if got, err := io.Copy(io.Discard, c); err != nil || got != size {
		t.Errorf("%d bytes of %d came, %v", got, size, err)
	}
	<-closed
}
