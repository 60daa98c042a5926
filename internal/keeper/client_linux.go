package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/version"
)

// errGone says that the keeper has ended.
var errGone = errors.New("the keeper of resident sandboxes has ended")

// ask sends a request and returns the first answer. If there is no keeper, one
// is started, unless none is wanted; then there is neither answer nor error.
func ask(k kind, request any, wanted bool, files ...*os.File) (*conn, *received, error) {
	c, err := Own().dial(wanted)
	if c == nil || err != nil {
		return nil, nil, err
	}
	answer, err := c.exchange(k, request, files...)
	if err != nil {
		c.close()
		return nil, nil, err
	}
	return c, answer, nil
}

// dial returns a connection to a keeper that has said that it will serve it. One
// that ends because it has nothing to do may do so in this moment, and another
// is started; after a request that could mean that it is carried out twice.
func (s Site) dial(wanted bool) (*conn, error) {
	for range 10 {
		c, found, err := s.tryDial(wanted)
		if c != nil || err != nil && !errors.Is(err, errGone) || !found && !wanted {
			return c, err
		}
	}
	return nil, fmt.Errorf("%w as soon as it was started; try: baileyd --version", errGone)
}

// tryDial returns a connection, or nil if there is no keeper: then one was
// started, if it is wanted.
func (s Site) tryDial(wanted bool) (c *conn, found bool, err error) {
	find := s.find // who only looks leaves nothing behind
	if wanted {
		find = s.open
	}
	p, err := find()
	if p == nil || err != nil {
		return nil, false, err
	}
	defer p.close()
	if c, err = p.connect(); err != nil {
		return nil, false, err
	}
	if c == nil {
		if wanted {
			err = p.start()
		}
		return nil, false, err
	}
	c, err = c.greeted()
	return c, true, err
}

// greeted returns the connection once the keeper has said that it serves it.
func (c *conn) greeted() (*conn, error) {
	err := c.awaitGreeting()
	var hello *received
	if err == nil {
		hello, err = c.answer()
	}
	if err == nil {
		err = checkHello(hello)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	c.greeter = int(hello.from.Pid)
	return c, nil
}

// Early is a connection to a keeper that may be there, made before it is known
// what will be asked of it.
type Early struct{ conn *conn }

// Connect begins a connection, if there is a keeper, and does not wait for it.
func Connect() Early {
	p, err := Own().find()
	if p == nil || err != nil {
		return Early{}
	}
	defer p.close()
	c, _ := p.connect() // if it fails, Start says why
	return Early{c}
}

// Close gives the connection up, if Start was not called.
func (e Early) Close() {
	if e.conn != nil {
		e.conn.close()
	}
}

// dial goes on with the connection, or makes another.
func (e Early) dial(wanted bool) (*conn, error) {
	if e.conn != nil {
		if c, err := e.conn.greeted(); !errors.Is(err, errGone) {
			return c, err
		}
	}
	return Own().dial(wanted)
}

// checkHello wants to hear from a keeper of this user and this version.
func checkHello(r *received) error {
	if r.from == nil {
		return errors.New("nobody knows who answers at the keeper's socket")
	}
	if err := checkSender(r.from); err != nil {
		return fmt.Errorf("the keeper's socket: %w", err)
	}
	var h Hello
	if r.kind != tellHello || r.decode(&h) != nil || h.Version != version.Version {
		return ErrVersion
	}
	return nil
}

// exchange sends a message and waits for what is said to it.
func (c *conn) exchange(k kind, message any, files ...*os.File) (*received, error) {
	err := c.send(k, message, files...)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil, errGone
	}
	if err != nil {
		return nil, err
	}
	return c.answer()
}

// answer waits for a message.
func (c *conn) answer() (*received, error) {
	answer, err := c.receive()
	if errors.Is(err, ErrSilent) {
		return nil, err
	}
	if err != nil {
		return nil, errGone
	}
	if answer.kind == tellError {
		var f Failure
		if err := answer.decode(&f); err != nil {
			return nil, err
		}
		return nil, f.err()
	}
	return answer, nil
}

// Command is a command that the keeper runs for this process.
type Command struct {
	// Terminal is this process's end of the command's terminal, or nil.
	Terminal *os.File
	// Notes are what the user should know.
	Notes []string
	// Err, after Wait, says why the command could not be started, or that the
	// keeper has ended.
	Err error

	conn   *conn
	spec   *spec.Spec
	report func(Denial)
	asked  asked
}

// Start runs a command in a sandbox that stays. If there is none with this name
// and key, it is made from the Spec. Without a Spec there must be one of the
// name. Calls that are refused are reported while Wait waits, and questions are
// asked, several at once if there are.
func (e Early) Start(run Run, s *spec.Spec, streams [3]*os.File, report func(Denial), ask func(context.Context, config.Message) string) (*Command, error) {
	if s != nil {
		run.Key = Key(s)
	}
	c, err := e.dial(s != nil)
	if c == nil && err == nil {
		err = fmt.Errorf("%w: %s", ErrMissing, run.Name)
	}
	if err == nil {
		err = c.send(askRun, run, streams[:]...)
	}
	if err != nil {
		return nil, err
	}
	cmd := &Command{conn: c, spec: s, report: report, asked: asked{ask: ask}}
	if run.Terminal != nil || run.Detach {
		err = cmd.begin()
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return cmd, nil
}

// begin waits until the keeper says that the command has started.
func (c *Command) begin() error {
	for {
		answer, err := c.conn.answer()
		if err != nil {
			return err
		}
		if answer.kind == tellStarted {
			if len(answer.files) > 0 {
				c.Terminal = answer.files[0]
			}
			return nil
		}
		if _, err := c.take(answer); err != nil {
			return err
		}
	}
}

// take does what a message asks for, and returns the status if it is one.
func (c *Command) take(m *received) (*Status, error) {
	defer m.close()
	switch m.kind {
	case tellWant:
		return nil, c.conn.send(askSpec, planOf(c.spec, fileLimit()))
	case tellNote:
		var n Note
		err := m.decode(&n)
		c.Notes = append(c.Notes, n.Text)
		return nil, err
	case tellDenial:
		var d Denial
		err := m.decode(&d)
		if err == nil && c.report != nil {
			c.report(d)
		}
		return nil, err
	case tellQuestion:
		var q Question
		err := m.decode(&q)
		if err == nil {
			c.asked.begin(c.conn, q)
		}
		return nil, err
	case tellWithdrawn:
		var w Withdrawn
		err := m.decode(&w)
		c.asked.withdraw(w.Slot)
		return nil, err
	case tellStatus:
		st := new(Status)
		return st, m.decode(st)
	}
	return nil, fmt.Errorf("the keeper answered %q", m.kind)
}

// fileLimit is this process's soft limit of open files.
func fileLimit() uint64 {
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil {
		return 0
	}
	return lim.Cur
}

// Wait blocks until the command stops or ends and tells how. If it could not be
// started it says that it was killed, and Err why.
func (c *Command) Wait() native.State {
	err := c.conn.awaitTaken()
	c.conn.site = nil // the command may take as long as it wants
	for {
		var m *received
		if err == nil {
			m, err = c.conn.answer()
		}
		var st *Status
		if err == nil {
			st, err = c.take(m)
		}
		if err != nil {
			c.Err = err
			return native.State{Wait: unix.WaitStatus(unix.SIGKILL), Killed: true}
		}
		if st != nil {
			return native.State{Wait: unix.WaitStatus(st.Wait), Killed: st.Killed}
		}
	}
}

// Signal passes a signal on to the command.
func (c *Command) Signal(sig unix.Signal) error {
	_, err := c.conn.file.Write([]byte{byte(sig)})
	return err
}

// Descriptor is where a byte written is a signal for the command.
func (c *Command) Descriptor() int { return int(c.conn.file.Fd()) }

// Close ends the command, if it still runs.
func (c *Command) Close() {
	c.asked.end()
	c.conn.close()
}

// List returns the sandboxes that stand. Without a keeper there are none.
func List() ([]Box, error) {
	c, answer, err := ask(askList, nil, false)
	if c == nil || err != nil {
		return nil, err
	}
	defer c.close()
	var boxes []Box
	return boxes, answer.decode(&boxes)
}

// End ends sandboxes and waits until nothing of them is left.
func End(s Stop) error {
	c, _, err := ask(askStop, s, false)
	if c == nil && err == nil && len(s.Names) > 0 {
		err = fmt.Errorf("%w: %s", ErrMissing, s.Names[0])
	}
	if c == nil || err != nil {
		return err
	}
	c.close()
	return nil
}

// Read copies what detached commands of a sandbox wrote.
func Read(l Logs, to io.Writer) error {
	c, err := Own().dial(false)
	if c == nil && err == nil {
		err = fmt.Errorf("%w: %s", ErrMissing, l.Name)
	}
	if err != nil {
		return err
	}
	defer c.close()
	if l.Follow {
		c.site = nil // it may be long until anything is written
	}
	answer, err := c.exchange(askLogs, l)
	if err != nil {
		return err
	}
	for answer.kind == tellOutput {
		var o Output
		if err := answer.decode(&o); err != nil {
			return err
		}
		if _, err := to.Write(o.Data); err != nil {
			return err
		}
		if answer, err = c.answer(); err != nil {
			return err
		}
	}
	return nil
}

// Held is a sandbox that is kept for this process.
type Held struct{ conn *conn }

// Keep makes a sandbox, or finds the one of this name and Spec, and keeps it for
// as long as this process lives or until Release, and then for a while in which
// somebody can ask for it again.
func Keep(name string, s *spec.Spec, linger time.Duration) (*Held, error) {
	c, err := Own().dial(true)
	if err != nil {
		return nil, err
	}
	if err = c.send(askHold, Hold{Name: name, Key: Key(s), Linger: linger}); err == nil {
		err = (&Command{conn: c, spec: s}).begin()
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return &Held{c}, nil
}

// Release lets go of the sandbox.
func (h *Held) Release() { h.conn.close() }
