// Package relay carries bytes between two connections. Where the kernel can move
// them from socket to socket (splice), they never enter the process: that is why
// it takes plain connections, and leaves it to the caller to send first what was
// read already.
package relay

import (
	"errors"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Limits bound a relay. What is zero is not limited.
type Limits struct {
	Idle   time.Duration // without a byte in either direction
	Total  time.Duration
	Bucket *Bucket // shared by all relays of a gate

	// Gone is closed when the client is no more. What it had sent is carried to its
	// end, for at most Grace; whatever else the server says, nobody waits for.
	Gone  <-chan struct{}
	Grace time.Duration
}

// Result is what went through.
type Result struct {
	In  int64 // from the server to the client
	Out int64
	// Err is os.ErrDeadlineExceeded if a limit on time was met, and nil if both
	// sides came to their end.
	Err error
}

// Run relays until both sides have ended or a limit is met, and closes both
// connections. The end of one side is passed on to the other as such.
func Run(client, server net.Conn, l Limits) Result {
	r := &run{client: client, server: server, limits: l}
	defer r.close()
	if l.Total > 0 {
		defer time.AfterFunc(l.Total, r.expire).Stop()
	}
	r.active.Store(time.Now().UnixNano())
	defer Watch(server, l.Idle, r.expire)()
	var result Result
	var wait sync.WaitGroup
	sent, over := make(chan struct{}), make(chan struct{})
	wait.Go(func() { result.In = r.carry(client, server) })
	wait.Go(func() {
		defer close(sent)
		result.Out = r.carry(server, client)
	})
	if l.Gone != nil {
		go r.outlive(sent, over)
	}
	wait.Wait()
	close(over)
	result.Err = r.failure()
	return result
}

// Copy carries bytes in one direction under the limits on bandwidth, up to n or,
// if n is negative, to the end of src.
func Copy(dst io.Writer, src io.Reader, n int64, b *Bucket) (int64, error) {
	var done int64
	for n < 0 || done < n {
		chunk := b.chunk()
		if n >= 0 {
			chunk = min(chunk, n-done)
		}
		copied, err := copyChunk(dst, src, chunk)
		done += copied
		b.Pay(copied)
		switch {
		case err != nil:
			return done, err
		case copied < chunk && n < 0:
			return done, nil
		case copied < chunk:
			return done, io.ErrUnexpectedEOF
		}
	}
	return done, nil
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// copyChunk hands a whole chunk to the kernel if it can take it, and otherwise
// uses a buffer that is shared with other relays.
func copyChunk(dst io.Writer, src io.Reader, chunk int64) (int64, error) {
	limited := &io.LimitedReader{R: src, N: chunk}
	switch kernelCopies(dst, src) {
	case intoTCP:
		return dst.(*net.TCPConn).ReadFrom(limited)
	case outOfTCP:
		if chunk == math.MaxInt64 { // to the end: it cannot be told to stop earlier
			return src.(*net.TCPConn).WriteTo(dst)
		}
	}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	return io.CopyBuffer(onlyWriter{dst}, limited, *buffer)
}

// direction is how the kernel can move bytes from one socket to another.
type direction int

const (
	nowhere direction = iota
	intoTCP
	outOfTCP
)

// onlyWriter hides ReadFrom, which would take a buffer of its own.
type onlyWriter struct{ io.Writer }

// run is one relay under way.
type run struct {
	client, server net.Conn
	limits         Limits
	active         atomic.Int64 // when a byte passed, where the kernel does not tell

	mu  sync.Mutex
	err error
}

func (r *run) carry(dst, src net.Conn) int64 {
	from := io.Reader(src)
	if r.limits.Idle > 0 && !tellsIdle(r.server) {
		from = &timed{src, r}
	}
	n, err := Copy(dst, from, -1, r.limits.Bucket)
	if err == nil {
		err = closeWrite(dst)
	}
	if err != nil {
		r.fail(err)
		if errors.Is(err, syscall.EPIPE) {
			// dst had ended in order before. What it said may still be on its way
			// to src, and the other direction passes that end on.
			return n
		}
		// Not an orderly end: the other side must not take it for one.
		Reset(dst)
		Reset(src)
	}
	return n
}

// outlive ends the relay after its client: when everything that the client sent
// has been handed to the kernel, or when the server took too long to take it. It
// closes in order, since a reset would take back what is still on its way.
func (r *run) outlive(sent, over <-chan struct{}) {
	select {
	case <-r.limits.Gone:
	case <-over:
		return
	}
	timer := time.NewTimer(r.limits.Grace)
	defer timer.Stop()
	select {
	case <-sent:
		r.close()
	case <-timer.C:
		r.expire()
	case <-over:
	}
}

func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil && !errors.Is(err, net.ErrClosed) {
		r.err = err
	}
}

func (r *run) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// expire ends the relay because of a limit.
func (r *run) expire() {
	r.fail(os.ErrDeadlineExceeded)
	Reset(r.client)
	Reset(r.server)
}

func (r *run) close() {
	_ = r.client.Close()
	_ = r.server.Close()
}

// Watch calls expire when no byte has come over a connection or gone over it for
// this time. It looks only when that could be so. The function it returns ends
// the watch. Where the kernel does not tell, or the time is 0, nothing is watched.
func Watch(c net.Conn, idle time.Duration, expire func()) (stop func()) {
	if idle <= 0 || !tellsIdle(c) {
		return func() {}
	}
	w := &watch{conn: c, idle: idle, begin: time.Now(), expire: expire}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(idle, w.look)
	return w.stop
}

type watch struct {
	conn   net.Conn
	idle   time.Duration
	begin  time.Time
	expire func()

	mu    sync.Mutex
	timer *time.Timer // nil once the watch has ended
}

func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		return
	}
	idle, err := idleTime(w.conn)
	idle = min(idle, time.Since(w.begin))
	if err != nil || idle >= w.idle {
		w.timer = nil
		w.expire()
		return
	}
	w.timer.Reset(w.idle - idle + time.Millisecond)
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// timed is for connections that the kernel does not tell about.
type timed struct {
	net.Conn
	run *run
}

func (t *timed) Read(b []byte) (int, error) {
	for {
		last := time.Unix(0, t.run.active.Load())
		if err := t.SetReadDeadline(last.Add(t.run.limits.Idle)); err != nil {
			return 0, err
		}
		n, err := t.Conn.Read(b)
		if n > 0 {
			t.run.active.Store(time.Now().UnixNano())
		}
		// The other direction may have been busy meanwhile.
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && t.run.active.Load() != last.UnixNano() {
			continue
		}
		return n, err
	}
}

// closeWrite passes the end of one side on.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		err := half.CloseWrite()
		if isGone(err) {
			return nil // it ended on its own
		}
		return err
	}
	return c.Close()
}

// Reset closes a connection in a way that nobody takes for its end.
func Reset(c net.Conn) {
	if tcp, ok := Raw(c).(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
		_ = tcp.Close()
		return
	}
	_ = c.Close()
}

// Raw is the connection below layers such as TLS.
func Raw(c net.Conn) net.Conn {
	for {
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = outer.NetConn()
	}
}
