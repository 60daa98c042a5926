package relay

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// pair is a connection of the given kind, from both ends.
func pair(t testing.TB, network string) (near, far net.Conn) {
	t.Helper()
	if network == "pipe" {
		return net.Pipe()
	}
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err = net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// start relays between two new connections, and returns their far ends.
func start(t testing.TB, client, server string, l Limits) (net.Conn, net.Conn, <-chan Result) {
	c, gateC := pair(t, client)
	s, gateS := pair(t, server)
	done := make(chan Result, 1)
	go func() { done <- Run(gateC, gateS, l) }()
	return c, s, done
}

func wait(t testing.TB, done <-chan Result) Result {
	t.Helper()
	select {
	case r := <-done:
		return r
	case <-time.After(10 * time.Second):
		t.Fatal("the relay does not end")
		return Result{}
	}
}

func TestBothDirectionsArriveWholeAndEndsArePassedOn(t *testing.T) {
	up, down := make([]byte, 300_000), make([]byte, 700_001)
	random := rand.New(rand.NewPCG(1, 1))
	for i := range up {
		up[i] = byte(random.Uint32())
	}
	for i := range down {
		down[i] = byte(random.Uint32())
	}
	for _, kinds := range [][2]string{{"tcp", "tcp"}, {"unix", "tcp"}, {"tcp", "unix"}, {"unix", "unix"}} {
		for _, bucket := range []*Bucket{nil, NewBucket(100 << 20)} {
			client, server, done := start(t, kinds[0], kinds[1], Limits{Idle: time.Minute, Total: time.Minute, Bucket: bucket})
			go func() {
				_, _ = client.Write(up)
				_ = client.(interface{ CloseWrite() error }).CloseWrite()
			}()
			got, err := io.ReadAll(server)
			if err != nil || !bytes.Equal(got, up) {
				t.Errorf("%v: %d bytes went up, %v", kinds, len(got), err)
			}
			// The server learned of the end, and can still answer.
			go func() {
				_, _ = server.Write(down)
				server.Close()
			}()
			got, err = io.ReadAll(client)
			if err != nil || !bytes.Equal(got, down) {
				t.Errorf("%v: %d bytes came down, %v", kinds, len(got), err)
			}
			if r := wait(t, done); r.Err != nil || r.In != int64(len(down)) || r.Out != int64(len(up)) {
				t.Errorf("%v: got %+v", kinds, r)
			}
		}
	}
}

func TestResetIsNotTakenForAnEnd(t *testing.T) {
	client, server, done := start(t, "tcp", "tcp", Limits{})
	_, _ = server.Write([]byte("x"))
	if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	_ = server.(*net.TCPConn).SetLinger(0)
	server.Close()
	if _, err := io.ReadAll(client); err == nil {
		t.Error("the client saw an orderly end")
	}
	if r := wait(t, done); r.Err == nil {
		t.Error("the relay ended without an error")
	}
}

// The server has said its last and is gone, and the client goes on sending: that
// takes nothing from what the server said.
func TestAnswerArrivesThoughNobodyListensAnyMore(t *testing.T) {
	const size = 96 << 10
	client, server, done := start(t, "tcp", "tcp", Limits{Bucket: NewBucket(64 << 10)})
	if _, err := server.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	server.Close()
	if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the first is answered with a reset, the next cannot be written
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if got, err := io.Copy(io.Discard, client); err != nil || got != size-1 {
		t.Errorf("%d bytes of %d came, %v", got+1, size, err)
	}
	wait(t, done)
}

func TestWhatAClientSentBeforeItsEndArrives(t *testing.T) {
	const size = 1 << 20
	gone := make(chan struct{})
	client, server, done := start(t, "tcp", "tcp", Limits{Gone: gone, Grace: time.Minute})
	if _, err := client.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	client.Close()
	close(gone)
	if got, err := io.Copy(io.Discard, server); err != nil || got != size {
		t.Errorf("%d bytes of %d came, %v", got, size, err)
	}
	// The server does not close its side, and is not waited for.
	if r := wait(t, done); r.Err != nil || r.Out != size {
		t.Errorf("got %+v", r)
	}
}

func TestRelayWithoutAClientEndsAtItsGrace(t *testing.T) {
	gone := make(chan struct{})
	client, server, done := start(t, "tcp", "tcp", Limits{Gone: gone, Grace: 100 * time.Millisecond})
	// More than the kernel takes for a server that does not read.
	go func() { _, _ = client.Write(make([]byte, 64<<20)) }()
	if _, err := io.ReadFull(server, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	close(gone)
	if r := wait(t, done); !errors.Is(r.Err, os.ErrDeadlineExceeded) {
		t.Errorf("got %+v", r)
	}
}

func TestIdleRelayEnds(t *testing.T) {
	const idle, pause = time.Second, 400 * time.Millisecond
	for _, server := range []string{"tcp", "unix", "pipe"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			client, far, done := start(t, "tcp", server, Limits{Idle: idle})
			begin := time.Now()
			go func() { _, _ = io.Copy(io.Discard, far) }()
			// A trickle in one direction keeps both open.
			for range 4 {
				time.Sleep(pause)
				if _, err := client.Write([]byte("x")); err != nil {
					t.Fatalf("ended while in use: %v", err)
				}
			}
			r := wait(t, done)
			if !errors.Is(r.Err, os.ErrDeadlineExceeded) || r.Out != 4 {
				t.Errorf("got %+v", r)
			}
			if took := time.Since(begin); took < 4*pause+idle*8/10 {
				t.Errorf("ended after %v", took)
			}
		})
	}
}

func TestRelayEndsAtItsTotal(t *testing.T) {
	client, server, done := start(t, "tcp", "tcp", Limits{Total: 200 * time.Millisecond, Idle: time.Minute})
	go func() { _, _ = io.Copy(server, server) }()
	writing := make(chan error, 1)
	go func() {
		for {
			if _, err := client.Write([]byte("x")); err != nil {
				writing <- err
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	if r := wait(t, done); !errors.Is(r.Err, os.ErrDeadlineExceeded) {
		t.Errorf("got %+v", r)
	}
	// The kernel tells of a reset once: to who reads or to who writes.
	_, reading := io.Copy(io.Discard, client)
	if written := <-writing; !errors.Is(reading, syscall.ECONNRESET) && !errors.Is(written, syscall.ECONNRESET) {
		t.Errorf("the client saw %v and %v, want a reset", reading, written)
	}
}

func TestBandwidthIsShared(t *testing.T) {
	const rate, each = 1 << 20, 256 << 10
	bucket := NewBucket(rate)
	begin := time.Now()
	var all []<-chan Result
	for range 2 {
		client, server, done := start(t, "tcp", "tcp", Limits{Bucket: bucket})
		go func() {
			_, _ = server.Write(make([]byte, each))
			server.Close()
		}()
		go func() {
			_, _ = io.Copy(io.Discard, client)
			client.Close()
		}()
		all = append(all, done)
	}
	for _, done := range all {
		if r := wait(t, done); r.In != each {
			t.Errorf("got %+v", r)
		}
	}
	if took := time.Since(begin); took < 400*time.Millisecond || took > 3*time.Second {
		t.Errorf("%d bytes took %v at %d a second", 2*each, took, rate)
	}
}

func TestCopyOfACertainLength(t *testing.T) {
	var b bytes.Buffer
	if n, err := Copy(&b, bytes.NewReader([]byte("hello world")), 5, nil); n != 5 || err != nil || b.String() != "hello" {
		t.Errorf("got %d %q, %v", n, b.String(), err)
	}
	if n, err := Copy(&b, bytes.NewReader([]byte("he")), 5, NewBucket(1<<20)); n != 2 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %d, %v", n, err)
	}
}
