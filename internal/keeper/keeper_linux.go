package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/signals"
	"github.com/bailey-sandbox/bailey/internal/version"
)

// Keeper holds the resident sandboxes of a user.
type Keeper struct {
	site     Site
	listener *os.File
	audit    event.Audit
	raise    Raise // or nil
	house    House // or nil
	gallery  gallery

	mu      sync.Mutex
	boxes   map[string]*box   // those that take commands
	all     map[*box]struct{} // and those that do not any more
	stocks  map[string]*stock // sandboxes that wait for a command, by key
	pooled  int               // those, those in use, and those being built
	clients int
	ended   bool
	freed   chan struct{} // a token after somebody has gone
	leave   *time.Timer   // runs while there is nothing to keep
	linked  linked        // what a server has
}

// patience is how long a keeper that has nothing to keep waits for something.
const patience = 300 * time.Millisecond

// Serve keeps sandboxes for the clients of the socket that this process was
// started with. It returns when there is nothing left to keep. Raise, if not nil,
// builds those that wait for a command, and house those that stay and are not of this
// package's own runtimes.
func Serve(site Site, raise Raise, house House) error {
	if err := unix.SetNonblock(fdListener, true); err != nil {
		return errors.New("the keeper is started by bailey, when the first resident sandbox is wanted")
	}
	unix.CloseOnExec(fdListener)
	// The kernel then tells clients that it is this process that listens, and not the
	// one that began to.
	if err := unix.Listen(fdListener, backlog); err != nil {
		return os.NewSyscallError("listen", err)
	}
	signals.IgnoreStops()
	home, _ := os.UserHomeDir() // without it nothing is recorded
	k := &Keeper{
		site:     site,
		listener: os.NewFile(fdListener, "listener"),
		boxes:    make(map[string]*box),
		all:      make(map[*box]struct{}),
		stocks:   make(map[string]*stock),
		raise:    raise,
		house:    house,
		freed:    make(chan struct{}, 1),
	}
	k.audit.Dir = event.AuditDir(sandbox.StateHome(home))
	go limits.SweepFrozen() // of a keeper before
	k.leave = time.AfterFunc(patience, k.end)
	return k.accept()
}

// accept serves clients until end closes the listener.
func (k *Keeper) accept() error {
	raw, err := k.listener.SyscallConn()
	if err != nil {
		return err
	}
	for {
		fd := -1
		var aerr error
		if err := raw.Read(func(s uintptr) bool {
			fd, _, aerr = unix.Accept4(int(s), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return aerr != unix.EAGAIN && aerr != unix.EINTR
		}); err != nil {
			return nil // closed
		}
		switch aerr {
		case nil:
			if !k.enter() {
				_ = unix.Close(fd) // it starts another keeper
				return nil
			}
			go k.serve(&conn{file: os.NewFile(uintptr(fd), "client")})
		case unix.ECONNABORTED:
		default:
			// Out of descriptors or memory. Who waits will be served when
			// somebody has gone.
			<-k.freed
		}
	}
}

// enter and exit count clients. Who comes when the end has begun is not served.
func (k *Keeper) enter() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return false
	}
	k.clients++
	k.leave.Stop()
	return true
}

func (k *Keeper) exit() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.clients--
	k.consider()
}

// notice says that descriptors are free again.
func (k *Keeper) notice() {
	select {
	case k.freed <- struct{}{}:
	default:
	}
}

// isIdle says whether there is nothing to keep.
func (k *Keeper) isIdle() bool {
	return k.clients == 0 && len(k.all) == 0 && len(k.stocks) == 0 && k.pooled == 0
}

// consider plans the end if there is nothing to keep.
func (k *Keeper) consider() {
	k.notice()
	if k.isIdle() {
		k.leave.Reset(patience)
	}
}

// end ends the keeper, unless somebody came in the last moment. A client whose
// connection is not accepted any more starts another keeper, but not before the
// name of the socket is free.
func (k *Keeper) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.isIdle() {
		return
	}
	if p, err := k.site.open(); err == nil {
		defer p.close()
		if p.lock() == nil {
			p.remove()
		}
	}
	k.ended = true
	_ = k.listener.Close()
}

// serve answers one client.
func (k *Keeper) serve(c *conn) {
	defer k.exit()
	defer c.close()
	err := c.checkPeer()
	if err == nil {
		err = c.send(tellHello, Hello{version.Version})
	}
	if err == nil {
		err = k.request(c)
	}
	if err != nil {
		_ = c.send(tellError, failureOf(err)) // it may be gone
	}
}

func (k *Keeper) request(c *conn) error {
	r, err := c.receive()
	if err != nil {
		return nil // it wanted nothing
	}
	defer r.close()
	switch r.kind {
	case askRun:
		return k.run(c, r)
	case askHold:
		return k.hold(c, r)
	case askList:
		return c.send(tellBoxes, k.list())
	case askStop:
		return k.stop(c, r)
	case askLogs:
		return k.logs(c, r)
	case askReload:
		return k.reload(c, r)
	case askLook:
		return k.look(c, r)
	case askAllow:
		return k.allow(c, r)
	case askShow:
		return k.show(c, r)
	case askTake:
		return k.take(c, r)
	case askLink:
		return k.link(c, r)
	}
	return fmt.Errorf("no request is %q", r.kind)
}

// acquire finds the sandbox, or makes it, and counts its new user.
func (k *Keeper) acquire(c *conn, name string, key []byte, linger time.Duration, hold bool) (*box, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	for {
		b, isNew, old := k.find(name, key, hold)
		if old != nil {
			if err := c.send(tellNote, Note{"what is decided about " + name + " has changed, so a new sandbox was made; the old one takes no commands any more"}); err != nil {
				return nil, err
			}
			old.finish()
			continue
		}
		if b == nil {
			return nil, fmt.Errorf("%w: %s", ErrMissing, name)
		}
		if isNew {
			b.make(c)
		}
		<-b.ready
		switch {
		case b.err == nil && (isNew || key == nil || k.isKnownBy(b, key)):
			b.setLinger(linger)
			return b, nil
		case b.err != nil && isNew:
			b.release(hold)
			return nil, b.err
		}
		b.release(hold)
	}
}

// find returns a sandbox with one user more, and whether it is still to be made.
// One with another key is taken out of the way.
func (k *Keeper) find(name string, key []byte, hold bool) (b *box, isNew bool, old *box) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b = k.boxes[name]
	switch {
	case b == nil && key == nil:
		return nil, false, nil
	case b != nil && key != nil && !bytes.Equal(b.key, key):
		b.leaving = true
		delete(k.boxes, name)
		return nil, false, b
	case b == nil:
		b = newBox(k, name, key)
		k.boxes[name], k.all[b] = b, struct{}{}
		isNew = true
	}
	b.count(hold, 1)
	return b, isNew, nil
}

// isKnownBy says whether a sandbox has a key. What was waited for may have become
// another than was announced.
func (k *Keeper) isKnownBy(b *box, key []byte) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return bytes.Equal(b.key, key)
}

// forget removes a sandbox that has ended.
func (k *Keeper) forget(b *box) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b.leaving = true
	if k.boxes[b.name] == b {
		delete(k.boxes, b.name)
	}
	delete(k.all, b)
	k.consider()
}

// hold keeps a sandbox until the client goes.
func (k *Keeper) hold(c *conn, r *received) error {
	var h Hold
	if err := r.decode(&h); err != nil {
		return err
	}
	if len(h.Key) == 0 {
		return errors.New("a sandbox is held by its key")
	}
	b, err := k.acquire(c, h.Name, h.Key, h.Linger, true)
	if err != nil {
		return err
	}
	defer b.release(true)
	if err := c.send(tellStarted, nil); err != nil {
		return nil
	}
	<-c.watch()
	return nil
}

// stop ends sandboxes.
func (k *Keeper) stop(c *conn, r *received) error {
	var s Stop
	if err := r.decode(&s); err != nil {
		return err
	}
	boxes, err := k.chosen(s)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	if s.All {
		group.Go(k.drain)
	}
	for _, b := range boxes {
		group.Go(func() { b.stop(s.Grace) })
	}
	group.Wait()
	return c.send(tellDone, nil)
}

// chosen takes the sandboxes that are to end out of the way.
func (k *Keeper) chosen(s Stop) ([]*box, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range s.Names {
		if k.boxes[name] == nil {
			return nil, fmt.Errorf("%w: %s", ErrMissing, name)
		}
	}
	var boxes []*box
	for _, name := range s.Names {
		if b := k.boxes[name]; b != nil { // it may be named twice
			boxes = append(boxes, b)
			delete(k.boxes, name)
		}
	}
	if s.All {
		boxes = boxes[:0]
		for b := range k.all {
			boxes = append(boxes, b)
		}
		clear(k.boxes)
	}
	for _, b := range boxes {
		b.leaving = true
	}
	return boxes, nil
}

// logs sends what detached commands wrote.
func (k *Keeper) logs(c *conn, r *received) error {
	var l Logs
	if err := r.decode(&l); err != nil {
		return err
	}
	k.mu.Lock()
	b := k.boxes[l.Name]
	k.mu.Unlock()
	if b == nil {
		return fmt.Errorf("%w: %s", ErrMissing, l.Name)
	}
	gone := c.watch()
	for place := int64(0); ; {
		data, next, more := b.output.after(place)
		place = next
		if len(data) > 0 {
			if err := c.send(tellOutput, Output{data}); err != nil {
				return nil
			}
		}
		if !l.Follow || more == nil {
			return c.send(tellDone, nil)
		}
		select {
		case <-more:
		case <-gone:
			return nil
		}
	}
}

// watch returns a channel that is closed when the client, which has nothing more
// to say, is gone.
func (c *conn) watch() <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		var buf [1]byte
		_, _ = c.file.Read(buf[:])
	}()
	return gone
}
