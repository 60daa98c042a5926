package keeper

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/wire"
)

// ErrGone says that the keeper has ended, and with it every sandbox it held.
var ErrGone = errGone

// Remote is a keeper as a server uses it: over one connection, from many
// goroutines. What the server leaves behind when it ends, in whatever way, waits
// in the keeper for the next one.
type Remote struct {
	conn *conn
	tell Told
	done chan struct{}

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan<- *answer // nil once the keeper has ended
}

// answer is a reply and what came with it.
type answer struct {
	reply
	files []*os.File
}

// Told is what a server is told unasked: of each command that ends, of each sandbox
// that does, and of each that has new events, once until they are asked for. One
// call comes after the other, and may come before Exec has returned. For a
// sandbox that is gone there may be no calls about its commands.
type Told struct {
	Exit  func(Execution)
	Gone  func(name string)
	Event func(name string)
}

// Link connects to the keeper of a site, and starts it if there is none. Without a
// server, sandboxes go on for as long as orphans says.
func (s Site) Link(orphans time.Duration, tell Told) (*Remote, error) {
	c, err := s.dial(true)
	if err != nil {
		return nil, err
	}
	if c, err = c.unblocked(); err != nil {
		return nil, err
	}
	first, err := c.exchange(askLink, Link{Orphans: orphans})
	if err == nil && first.kind != tellStarted {
		err = fmt.Errorf("the keeper answered %q", first.kind)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	r := &Remote{conn: c, tell: tell, done: make(chan struct{}), waiting: make(map[uint64]chan<- *answer)}
	go r.listen()
	return r, nil
}

// unblocked is the connection for who waits for it in many goroutines: none of
// them takes a thread for itself.
func (c *conn) unblocked() (*conn, error) {
	defer c.close()
	fd, err := unix.FcntlInt(c.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &conn{file: os.NewFile(uintptr(fd), "keeper")}, nil
}

// Done is closed when the keeper has ended, or Close was called.
func (r *Remote) Done() <-chan struct{} { return r.done }

// Close leaves everything to the keeper, for a while.
func (r *Remote) Close() {
	r.conn.hangUp()
	<-r.done
}

// listen takes what the keeper says.
func (r *Remote) listen() {
	for {
		m, err := r.conn.receive()
		if err == nil {
			err = r.take(m)
		}
		if err != nil {
			break
		}
	}
	r.conn.close()
	r.mu.Lock()
	for _, w := range r.waiting {
		close(w)
	}
	r.waiting = nil
	r.mu.Unlock()
	close(r.done)
}

func (r *Remote) take(m *received) error {
	switch m.kind {
	case tellReply:
		a := &answer{files: m.files}
		if err := m.decode(&a.reply); err != nil {
			m.close()
			return err
		}
		r.mu.Lock()
		w := r.waiting[a.Ref]
		delete(r.waiting, a.Ref)
		r.mu.Unlock()
		if w == nil {
			m.close()
			return errors.New("the keeper answered what was not asked")
		}
		w <- a
	case tellExit:
		var x Execution
		if err := m.decode(&x); err != nil {
			return err
		}
		r.tell.Exit(x)
	case tellGone:
		var n Name
		if err := m.decode(&n); err != nil {
			return err
		}
		r.tell.Gone(n.Name)
	case tellEvent:
		var n Name
		if err := m.decode(&n); err != nil {
			return err
		}
		r.tell.Event(n.Name)
	default:
		m.close()
	}
	return nil
}

// ask sends a request and waits for the reply. Request gets the number.
func (r *Remote) ask(k kind, request func(ref uint64) any, result any) ([]*os.File, error) {
	w := make(chan *answer, 1)
	r.mu.Lock()
	if r.waiting == nil {
		r.mu.Unlock()
		return nil, ErrGone
	}
	r.last++
	ref := r.last
	r.waiting[ref] = w
	r.mu.Unlock()
	if err := r.conn.send(k, request(ref)); err != nil {
		r.mu.Lock()
		delete(r.waiting, ref)
		r.mu.Unlock()
		if errors.Is(err, unix.E2BIG) {
			return nil, err
		}
		return nil, ErrGone
	}
	a := <-w
	switch {
	case a == nil:
		return nil, ErrGone
	case a.Failure != nil:
		closeAll(a.files)
		return nil, a.Failure.err()
	case result != nil:
		if err := wire.Decode(a.Data, result); err != nil {
			closeAll(a.files)
			return nil, err
		}
	}
	return a.files, nil
}

// Expect says that Open of a native sandbox will follow, which is begun meanwhile.
// If it does not, that costs nothing but time.
func (r *Remote) Expect(name string) {
	_ = r.conn.send(linkExpect, Name{Name: name}) // Open says what is wrong
}

// Open makes a sandbox of that name. Files is the soft limit of open files that its
// commands get, or 0.
func (r *Remote) Open(name string, s *spec.Spec, files uint64) (Standing, error) {
	var st Standing
	_, err := r.ask(linkOpen, func(ref uint64) any { return Open{ref, name, planOf(s, files)} }, &st)
	return st, err
}

// Streams are a command's, on the server's side. They are the caller's to close.
type Streams struct {
	// Input is where the command reads from; nil if it reads nothing. Of a command
	// with a terminal all three are that.
	Input, Output, Errors *os.File
}

// Close closes them.
func (s *Streams) Close() { closeAll([]*os.File{s.Input, s.Output, s.Errors}) }

// streams tells apart what came with a message.
func (x *Execution) streams(files []*os.File) (Streams, error) {
	var s Streams
	switch {
	case x.Terminal && len(files) == 1:
		s.Output = files[0]
	case !x.Terminal && x.Input == InputNone && len(files) == 2:
		s.Output, s.Errors = files[0], files[1]
	case !x.Terminal && x.Input != InputNone && len(files) == 3:
		s.Input, s.Output, s.Errors = files[0], files[1], files[2]
	default:
		closeAll(files)
		return s, fmt.Errorf("%w: the sandbox %s has ended", ErrMissing, x.Box)
	}
	return s, nil
}

// Exec starts a command.
func (r *Remote) Exec(e Exec) (Execution, Streams, error) {
	var x Execution
	files, err := r.ask(linkExec, func(ref uint64) any { e.Ref = ref; return e }, &x)
	if err != nil {
		return x, Streams{}, err
	}
	s, err := x.streams(files)
	return x, s, err
}

// Attach returns a command's streams once more.
func (r *Remote) Attach(id string) (Execution, Streams, error) {
	var x Execution
	files, err := r.ask(linkAttach, func(ref uint64) any { return Name{ref, id} }, &x)
	if err != nil {
		return x, Streams{}, err
	}
	s, err := x.streams(files)
	return x, s, err
}

func (r *Remote) do(k kind, request func(ref uint64) any) error {
	_, err := r.ask(k, request, nil)
	return err
}

// Signal sends a signal to a command; after its end it does nothing.
func (r *Remote) Signal(id string, sig unix.Signal) error {
	return r.do(linkSignal, func(ref uint64) any { return Signal{ref, id, int(sig)} })
}

// Tag writes something on a command, for who attaches to it.
func (r *Remote) Tag(id string, tag []byte) error {
	return r.do(linkTag, func(ref uint64) any { return Tag{ref, id, tag} })
}

// FinishInput says that nothing more will be written to a command. Its end is there
// when the caller has closed its own descriptor, too.
func (r *Remote) FinishInput(id string) error {
	return r.do(linkFinish, func(ref uint64) any { return Name{ref, id} })
}

// Forget says that nobody will ask for a command any more.
func (r *Remote) Forget(id string) error {
	return r.do(linkForget, func(ref uint64) any { return Name{ref, id} })
}

// Stop ends a sandbox, and waits until nothing of it is left. Its commands get
// some time to end by themselves.
func (r *Remote) Stop(name string, grace time.Duration) error {
	return r.do(linkStop, func(ref uint64) any { return Stopping{ref, name, grace} })
}

// Freeze holds everything in a sandbox where it is; Thaw lets it go on.
func (r *Remote) Freeze(name string) error {
	return r.do(linkFreeze, func(ref uint64) any { return Freeze{ref, name, false} })
}

// Thaw lets a sandbox go on.
func (r *Remote) Thaw(name string) error {
	return r.do(linkFreeze, func(ref uint64) any { return Freeze{ref, name, true} })
}

// Root returns a descriptor, without any right to read, of a directory as it is
// seen in a sandbox.
func (r *Remote) Root(name, dir string) (*os.File, error) {
	files, err := r.ask(linkRoot, func(ref uint64) any { return Root{ref, name, dir} }, nil)
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		closeAll(files)
		return nil, errors.New("the keeper sent no directory")
	}
	return files[0], nil
}

// Reload gives a sandbox the network rules of a Spec, which must be the same in
// everything else.
func (r *Remote) Reload(name string, s, viewed *spec.Spec) error {
	return r.do(linkReload, func(ref uint64) any { return Rules{ref, changeTo(name, s, viewed)} })
}

// Expose has a port of the host lead to one of a sandbox, and returns all that do.
func (r *Remote) Expose(name string, e spec.Exposure) ([]string, error) {
	var st Standing
	_, err := r.ask(linkPort, func(ref uint64) any { return Port{ref, name, e, false} }, &st)
	return st.Ports, err
}

// Withdraw ends what leads to a port of a sandbox, and returns what is left.
func (r *Remote) Withdraw(name string, inside uint16) ([]string, error) {
	var st Standing
	_, err := r.ask(linkPort, func(ref uint64) any { return Port{ref, name, spec.Exposure{Inside: inside}, true} }, &st)
	return st.Ports, err
}

// Usage says what a sandbox uses.
func (r *Remote) Usage(name string) (Used, error) {
	var u Used
	_, err := r.ask(linkUsage, func(ref uint64) any { return Name{ref, name} }, &u)
	return u, err
}

// Events returns the latest events of a sandbox, by numbers: one that comes again
// keeps its number, and has another count.
func (r *Remote) Events(name string) (list []event.Numbered, err error) {
	var h Happened
	if _, err := r.ask(linkEvents, func(ref uint64) any { return Name{Ref: ref, Name: name} }, &h); err != nil {
		return nil, err
	}
	for i, line := range h.Lines {
		e, err := event.Decode(line)
		if err != nil {
			return nil, err
		}
		list = append(list, event.Numbered{Number: h.Numbers[i], Event: *e})
	}
	return list, nil
}

// State lists what the keeper holds.
func (r *Remote) State() (State, error) {
	var s State
	_, err := r.ask(linkList, func(ref uint64) any { return Name{Ref: ref} }, &s)
	return s, err
}
