package gate

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/relay"
)

// wire is a connection of which something may have been read ahead. Once that is
// used up, the connection below can be handed to the kernel.
type wire struct {
	net.Conn
	ahead  []byte        // comes before what Conn still has
	reader *bufio.Reader // over both; made when it is wanted

	idle time.Duration // that may pass without a byte while something is expected; 0: any

	mu      sync.Mutex
	until   time.Time // when what is expected must have come; zero if nothing is
	hurried bool      // nothing more is waited for
}

func newWire(c net.Conn) *wire { return &wire{Conn: c} }

// NetConn is the connection below, for package relay.
func (w *wire) NetConn() net.Conn { return w.Conn }

// Read implements net.Conn.
func (w *wire) Read(b []byte) (int, error) {
	if len(w.ahead) > 0 {
		n := copy(b, w.ahead)
		w.ahead = w.ahead[n:]
		return n, nil
	}
	return w.receive(b)
}

// receive reads what was not read ahead.
func (w *wire) receive(b []byte) (int, error) {
	if w.idle > 0 {
		w.mu.Lock()
		if limit := time.Now().Add(w.idle); !w.hurried && w.until.After(limit) {
			_ = w.SetReadDeadline(limit) // as in expect
		}
		w.mu.Unlock()
	}
	return w.Conn.Read(b)
}

// CloseWrite ends one direction.
func (w *wire) CloseWrite() error {
	if half, ok := w.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// expect gives the other end this long for what it has to say next; 0 as long as
// it wants.
func (w *wire) expect(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until, w.hurried = time.Time{}, false
	if d > 0 {
		w.until = time.Now().Add(d)
	}
	// Fails only for connections that are closed, which the next read tells.
	_ = w.SetReadDeadline(w.until)
}

// hurry ends waiting for what is expected.
func (w *wire) hurry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hurried = true
	_ = w.SetReadDeadline(time.Now()) // as in expect
}

// isOverdue says whether all the time has passed that there was for what is
// expected. If it has not, and a deadline passed, the wire was idle.
func (w *wire) isOverdue() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !time.Now().Before(w.until)
}

const readerSize = 4 << 10

// buffered is a reader for protocols that are read by lines or fields.
func (w *wire) buffered() *bufio.Reader {
	if w.reader == nil {
		w.reader = bufio.NewReaderSize(w, readerSize)
	}
	return w.reader
}

// unbuffer puts back what the reader holds.
func (w *wire) unbuffer() {
	if w.reader == nil {
		return
	}
	held, _ := w.reader.Peek(w.reader.Buffered()) // cannot fail: it is there
	w.ahead = append(append([]byte(nil), held...), w.ahead...)
	w.reader = nil
}

// peek returns what was read ahead, at least n bytes of it.
func (w *wire) peek(n int) ([]byte, error) {
	w.unbuffer()
	for len(w.ahead) < n {
		if cap(w.ahead)-len(w.ahead) < 512 {
			w.ahead = append(make([]byte, 0, 2*cap(w.ahead)+2048), w.ahead...)
		}
		read, err := w.receive(w.ahead[len(w.ahead):cap(w.ahead)])
		w.ahead = w.ahead[:len(w.ahead)+read]
		if err != nil && len(w.ahead) < n {
			return w.ahead, err
		}
	}
	return w.ahead, nil
}

// flush sends what was read ahead, so that the connections below are all that
// is left.
func (w *wire) flush(to net.Conn) (int64, error) {
	w.unbuffer()
	if len(w.ahead) == 0 {
		return 0, nil
	}
	n, err := to.Write(w.ahead)
	w.ahead = nil
	return int64(n), err
}

// send carries n bytes to another wire, by the kernel as far as it can.
func (w *wire) send(to net.Conn, n int64, b *relay.Bucket) (int64, error) {
	w.unbuffer()
	var done int64
	if held := min(n, int64(len(w.ahead))); held > 0 {
		sent, err := to.Write(w.ahead[:held])
		done += int64(sent)
		w.ahead = w.ahead[sent:]
		b.Pay(int64(sent))
		if err != nil {
			return done, err
		}
	}
	if done == n {
		return done, nil
	}
	more, err := relay.Copy(below(to), w.Conn, n-done, b)
	return done + more, err
}

// below is what is written to directly.
func below(c net.Conn) io.Writer {
	if w, ok := c.(*wire); ok {
		return w.Conn
	}
	return c
}

// relayWires carries bytes in both directions until both ends have ended.
func relayWires(client, server *wire, l relay.Limits) relay.Result {
	out, err := client.flush(server.Conn)
	if err == nil {
		var in int64
		in, err = server.flush(client.Conn)
		if err == nil {
			r := relay.Run(client.Conn, server.Conn, l)
			r.In, r.Out = r.In+in, r.Out+out
			return r
		}
	}
	relay.Reset(client.Conn)
	relay.Reset(server.Conn)
	return relay.Result{Out: out, Err: err}
}
