package top

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/keeper"
)

const (
	// interval is how often the keeper is asked.
	interval = time.Second
	// grace is what the commands of a sandbox get to end, as with "box stop".
	grace = 2 * time.Second
	// hesitation is how long the rest of an escape sequence may be under way.
	hesitation = 50 * time.Millisecond
)

// exitSignal and the number of a signal are the exit status of who ends by it.
const exitSignal = 128

// Run shows the screen until somebody quits, and returns the exit status.
func Run(in, out *os.File) (int, error) {
	if _, err := keeper.List(); err != nil { // said better on the screen that stays
		return 0, err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGWINCH, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGTSTP)
	defer signal.Stop(signals)
	p := &program{
		screen:  screen{in: in, out: out},
		signals: signals,
		typed:   make(chan string),
		news:    make(chan news),
		said:    make(chan string),
		poke:    make(chan struct{}, 1),
	}
	if err := p.screen.take(); err != nil {
		return 0, err
	}
	defer p.screen.giveBack()
	go p.read()
	go p.watch()
	return p.loop()
}

// program is the screen at work.
type program struct {
	model  model
	screen screen
	rest   string // of what was typed, the beginning of a key

	signals chan os.Signal
	typed   chan string // closed when the terminal is gone
	news    chan news
	said    chan string   // how an action went
	poke    chan struct{} // a token when there may be news

	selected atomic.Int64 // whom the news should be about
}

// read passes on what is typed.
func (p *program) read() {
	defer close(p.typed)
	buf := make([]byte, 256)
	for {
		n, err := p.screen.in.Read(buf)
		if n > 0 {
			p.typed <- string(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// watch asks the keeper again and again. It takes a while where there are many
// processes, and keys must not wait for it.
func (p *program) watch() {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	singles := keeper.NewSingles()
	defer singles.Close()
	for {
		p.news <- ask(singles, int(p.selected.Load()))
		select {
		case <-p.poke:
		case <-tick.C:
		}
	}
}

// ask returns what there is, and what is inside the selected sandbox or, if it
// has ended, inside the first.
func ask(singles *keeper.Singles, selected int) (n news) {
	n.boxes, n.err = keeper.List()
	n.boxes = append(n.boxes, singles.List()...)
	if n.err != nil || len(n.boxes) == 0 {
		return n
	}
	at := max(slices.IndexFunc(n.boxes, func(b keeper.Box) bool { return b.Pid == selected }), 0)
	b := &n.boxes[at]
	n.pid = b.Pid
	if b.Launcher != 0 {
		n.inside = singles.Inspect(b)
		return n
	}
	n.inside, n.err = keeper.Inspect(n.pid)
	if errors.Is(n.err, keeper.ErrMissing) {
		n.err = nil // it has just ended
	}
	return n
}

func (p *program) loop() (int, error) {
	more := time.NewTimer(hesitation)
	for {
		if err := p.draw(); err != nil {
			return 0, err
		}
		more.Stop()
		if p.rest != "" {
			more.Reset(hesitation)
		}
		isOver, status := false, 0
		select {
		case text, ok := <-p.typed:
			isOver = !ok || p.enter(p.rest+text)
		case <-more.C:
			p.rest = ""
			isOver = p.do(p.model.press(keyEscape))
		case n := <-p.news:
			p.model.take(n)
			p.selected.Store(int64(p.model.selected))
		case p.model.message = <-p.said:
			p.refresh()
		case s := <-p.signals:
			isOver, status = p.signal(s)
		}
		if isOver {
			return status, nil
		}
	}
}

func (p *program) draw() error { return p.screen.draw(p.model.view(p.screen.size())) }

// enter takes keys, and says whether one of them was to quit.
func (p *program) enter(text string) (isOver bool) {
	keys, rest := parseKeys(text)
	p.rest = rest
	for _, k := range keys {
		if p.do(p.model.press(k)) {
			return true
		}
	}
	return false
}

// signal does what a signal asks for, and says whether that was to end, and with
// which status.
func (p *program) signal(s os.Signal) (isOver bool, status int) {
	switch s {
	case unix.SIGWINCH:
		_ = p.screen.write(blank) // drawing says so too if it fails
		return false, 0
	case unix.SIGTSTP:
		p.do(action{kind: suspend})
		return false, 0
	}
	number, _ := s.(syscall.Signal)
	return true, exitSignal + int(number)
}

// refresh has the keeper asked now.
func (p *program) refresh() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// do carries out what a key asks for, and says whether that was to quit.
func (p *program) do(a action) (isOver bool) {
	switch a.kind {
	case quit:
		return true
	case suspend:
		p.suspend()
	case redraw:
		_ = p.screen.write(blank)
	case look:
		p.selected.Store(int64(p.model.selected))
		p.refresh()
	case stop:
		p.model.message = "stopping " + a.name
		go func() { p.said <- outcome("stopped "+a.name, end(a)) }()
	case allow:
		go func() {
			p.said <- outcome(a.name+" may reach "+a.what+" until it ends", keeper.AllowDenied(a.pid, a.number))
		}()
	}
	return false
}

func end(a action) error {
	if a.single != 0 {
		return keeper.EndSingle(&keeper.Box{Pid: a.pid, Launcher: a.single}, grace)
	}
	return keeper.End(keeper.Stop{Names: []string{a.name}, Grace: grace})
}

func outcome(done string, err error) string {
	if err != nil {
		return err.Error()
	}
	return done
}

// suspend gives the terminal back and stops, as Ctrl-Z does elsewhere, and goes
// on when somebody says so. Without a shell that could there is nobody who would.
func (p *program) suspend() {
	if session, err := unix.Getsid(0); err != nil || session == unix.Getpgrp() {
		return
	}
	p.screen.giveBack()
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, unix.SIGCONT)
	defer signal.Stop(goOn)
	_ = unix.Kill(0, unix.SIGSTOP) // the whole job: another process of it may wait
	<-goOn                         // other threads may be the ones that have stopped
	if err := p.screen.take(); err != nil {
		p.model.message = err.Error()
	}
}
