package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/plain"
)

// life is one process of the gate.
type life struct {
	pid      int
	control  *os.File // its end is the gate's end
	messages *config.Conn
	events   *os.File
	line     []byte   // of which the end has not come yet
	said     *os.File // what it wrote to stderr, which is why it ended

	ready    bool          // every listener was served; known when hungUp is closed
	hungUp   chan struct{} // closed when nothing comes over control any more
	reloaded chan string   // why a configuration was refused
}

// ends are what the gate has of a life.
type ends struct{ events, control *os.File }

func (e ends) close() {
	_ = e.events.Close()
	_ = e.control.Close()
}

func newLife() (*life, ends, error) {
	said, err := memory("said")
	if err != nil {
		return nil, ends{}, err
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return nil, ends{}, errors.Join(os.NewSyscallError("pipe2", err), said.Close())
	}
	l := &life{said: said, events: os.NewFile(uintptr(pipe[0]), "events"), hungUp: make(chan struct{}), reloaded: make(chan string, 1)}
	theirs := ends{events: os.NewFile(uintptr(pipe[1]), "events")}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, ends{}, errors.Join(os.NewSyscallError("socketpair", err), said.Close(), l.events.Close(), theirs.events.Close())
	}
	// So that closing it ends reading. It cannot fail for a descriptor that is open.
	_ = unix.SetNonblock(pair[0], true)
	l.control, theirs.control = os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	l.messages = config.NewConn(l.control)
	return l, theirs, nil
}

func (l *life) close() error {
	return errors.Join(l.control.Close(), l.events.Close(), l.said.Close())
}

// take takes in what the gate tells. It reports false when there will be nothing
// more.
func (l *life) take(report func(*event.Event)) bool {
	buf := make([]byte, 16<<10)
	n, err := unix.Read(int(l.events.Fd()), buf)
	if err == unix.EINTR || err == unix.EAGAIN {
		return true
	}
	if n <= 0 || err != nil {
		return false
	}
	l.line = append(l.line, buf[:n]...)
	for {
		line, rest, found := bytes.Cut(l.line, []byte("\n"))
		if !found {
			return true
		}
		l.line = rest
		e := new(event.Event)
		if e.UnmarshalJSON(line) == nil {
			report(e)
		}
	}
}

// A gate that served, or was killed, is started again if it ends, but not for ever: what ends one
// gate after the other is not helped by the next.
const (
	maxRestarts   = 5
	restartWindow = time.Minute
)

// missed is told that a gate has ended before Close. It says so to whoever is told
// of the sandbox, and reports whether another is to be started. If not, connections
// are refused from now on.
func (g *Gate) missed(l *life) (again bool) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return false // Close has its part in that, and sees to the rest
	}
	g.life = nil
	g.mu.Unlock()
	killed, cause := l.end()
	if !l.ready && !killed {
		g.giveUp(fmt.Errorf("it could not be started: %w", cause))
		return false
	}
	if !g.mayRestart() {
		g.giveUp(fmt.Errorf("it ended %d times in a short while: %w", maxRestarts+1, cause))
		return false
	}
	g.tell("the network gate ended (" + cause.Error() + "): open connections are lost, and new ones get another gate")
	return true
}

// mayRestart counts.
func (g *Gate) mayRestart() bool {
	if now := time.Now(); now.Sub(g.since) > restartWindow {
		g.restarts, g.since = 0, now
	}
	g.restarts++
	return g.restarts <= maxRestarts
}

// giveUp tells why there is no gate, and then refuses every connection: who fails
// for want of it ends after that is known.
func (g *Gate) giveUp(err error) {
	g.tell("the network gate does not run: " + err.Error())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.broken = err
	g.closeListeners()
}

// tell tells of the gate itself.
func (g *Gate) tell(text string) {
	e := event.New(event.Deny)
	e.Op, e.Rule, e.Sandbox = event.OpConnect, text, g.now().Sandbox
	g.report(e)
}

// end collects the process, which has ended or is about to, and says why it has.
func (l *life) end() (killed bool, cause error) {
	<-l.hungUp
	ws := reap(l.pid)
	said := l.complaint()
	_ = l.close()
	switch {
	case ws.Signaled():
		return true, errors.New(unix.SignalName(ws.Signal()))
	case said != "":
		return false, errors.New(said)
	}
	return false, fmt.Errorf("status %d", ws.ExitStatus())
}

// complaint is the first line of what the gate wrote to stderr.
func (l *life) complaint() string {
	buf := make([]byte, 4<<10)
	n, err := l.said.ReadAt(buf, 0)
	if err != nil && n == 0 {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(buf[:n])), "\n")
	return plain.Text(strings.TrimPrefix(line, "bailey-gate: "))
}

// reap collects a process.
func reap(pid int) (ws unix.WaitStatus) {
	for {
		if _, err := unix.Wait4(pid, &ws, 0, nil); err != unix.EINTR {
			return ws
		}
	}
}
