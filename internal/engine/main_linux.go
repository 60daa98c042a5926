package engine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/account"
	"github.com/bailey-sandbox/bailey/internal/foreground"
	gate "github.com/bailey-sandbox/bailey/internal/gate/launch"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/monitor"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/terminal"
	"github.com/bailey-sandbox/bailey/internal/wire"
)

// Word is the first argument of the program that carries out an Order; the second
// is the descriptor that the Order is on.
const Word = "carry"

// Order is what the command hands over.
type Order struct {
	Spec spec.Spec // Runtime names the engine
	// Origins are the places of what the policy says, for what is refused.
	Origins spec.Origins

	Quiet bool
	Debug bool
	// Pool, if not 0, has the keeper build sandboxes beforehand for as long as one was
	// asked for within this time, and the command run in one of them.
	Pool time.Duration
	// Monitor has what the command asks for and does not get told as it happens, and Stats
	// what it used told at the end; JSON says that programs read it.
	Monitor, Stats, JSON bool
	// Begun is when the caller began, in nanoseconds since 1970.
	Begun int64
}

// HandOver becomes the program that carries out an Order. It returns only if that
// fails.
func HandOver(program string, o Order) error {
	fd, err := unix.MemfdCreate("order", 0)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	// On the command line it would be seen by everybody.
	f := os.NewFile(uintptr(fd), "order")
	if _, err := f.Write(wire.Append(nil, o)); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	err = syscall.Exec(program, []string{"baileyd", Word, strconv.Itoa(fd)}, os.Environ())
	return fmt.Errorf("%s: %w", program, err)
}

// Main is the program that carries out an Order with one of the engines. It
// returns the exit status. It must run on the main thread, which the init of a
// program does, and main after runtime.LockOSThread there.
func Main(engines []Engine, args []string) int {
	runtime.LockOSThread()
	o, err := receive(args)
	if err != nil {
		return fail(err)
	}
	for _, e := range engines {
		if e.Name() == o.Spec.Runtime {
			return (&run{Order: o}).carry(e)
		}
	}
	return fail(errors.New("runtime " + o.Spec.Runtime + ": this baileyd does not have it; install all programs of Bailey's from one release"))
}

// receive reads an Order from its descriptor.
func receive(args []string) (o Order, err error) {
	if len(args) != 1 {
		return o, errors.New(Word + " takes a descriptor; it is not for people")
	}
	fd, err := strconv.Atoi(args[0])
	if err != nil || fd < 3 {
		return o, errors.New(Word + " takes a descriptor; it is not for people")
	}
	f := os.NewFile(uintptr(fd), "order")
	defer f.Close()
	data, err := io.ReadAll(f)
	if err == nil {
		err = wire.Decode(data, &o)
	}
	return o, err
}

// run is one Order on the way.
type run struct {
	Order
	tty   *terminal.Session
	seen  monitor.Report
	asked *keeper.Asked // for a sandbox that waits, or nil
}

// carry runs the command to its end and returns the exit status.
func (r *run) carry(e Engine) int {
	defer func() { r.asked.Close() }()
	s := &r.Spec
	streams := [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	var err error
	if r.tty, err = terminal.Open(streams); err != nil {
		return fail(err)
	}
	if err := r.watch(); err != nil {
		return fail(err)
	}
	if err := e.Refuses(s); err != nil {
		return fail(spec.Locate(err, r.Origins))
	}
	abi, _ := native.LandlockABI()
	if _, err := native.StreamRights(s, streams, abi); err != nil {
		return fail(err)
	}
	o := Options{Streams: streams, Report: r.seen.Denied, Account: r.Stats}
	if r.seen.Monitor != nil {
		o.Observe = r.seen.Monitor.Observe
	}
	if r.tty != nil {
		o.Terminal = &native.Terminal{Streams: r.tty.Streams, Termios: &r.tty.Termios, Size: &r.tty.Size}
	}
	g, err := gate.Prepare(s)
	if err != nil {
		return fail(err)
	}
	r.tell(g.Chosen())
	signals, err := newSignals()
	if err != nil {
		return fail(err)
	}
	o.Interrupt = signals.interrupt
	cmd, err := r.start(e, o)
	if err != nil {
		g.Close()
		return signals.startFailed(spec.Locate(err, r.Origins))
	}
	g.Beside(cmd.Pid(), cmd.Listeners(), r.seen.Network)
	state, expired := foreground.Follow(cmd, signals.forwardTo(cmd), r.tty, cmd.Terminal(), s.TimeoutMillis)
	g.Close() // it tells what it has still to tell
	used := cmd.Used()
	r.seen.Account.Used = &used
	return r.conclude(state, expired)
}

// watch makes the Spec one whose calls are told of, if that is asked for.
func (r *run) watch() error {
	r.seen.Account.Begun, r.seen.Account.Spec = time.Unix(0, r.Begun), &r.Spec
	r.seen.Of(&r.Spec)
	if !r.Monitor {
		return nil
	}
	r.seen.Monitor = monitor.New(&r.seen.Record, monitor.Voice{Warn: say, Note: say}, r.JSON)
	return r.seen.Monitor.Watch(&r.Spec, r.tty)
}

// start starts the command, in a sandbox that waits for one if that is asked for and
// there is one.
func (r *run) start(e Engine, o Options) (Command, error) {
	pooled, ok := e.(Pooled)
	if r.Pool != 0 && !ok {
		r.tell([]string{"--pool: the " + e.Name() + " runtime has no sandboxes that wait"})
	}
	if r.Pool == 0 || !ok || o.Terminal != nil {
		return e.Start(&r.Spec, o)
	}
	asked, err := keeper.AskWaiting(&r.Spec, r.Pool)
	if err != nil {
		r.tell([]string{"--pool: " + err.Error()})
		return e.Start(&r.Spec, o)
	}
	r.asked = asked
	if asked.Note != "" {
		r.tell([]string{"--pool: " + asked.Note})
	}
	if len(asked.Files) == 0 {
		return e.Start(&r.Spec, o)
	}
	if r.Debug {
		say("the sandbox was built before there was a command for it")
	}
	return pooled.Adopt(&r.Spec, o, Waiting{Files: asked.Files, Pid: asked.Pid, Group: asked.Group})
}

func (r *run) conclude(state native.State, expired bool) int {
	if r.seen.Monitor != nil {
		r.seen.Monitor.Show()
	}
	if !r.Quiet {
		r.tell(r.seen.Summary())
	}
	if r.Debug {
		say("the command ended: " + foreground.Describe(state))
	}
	hits := r.tellLimits(expired)
	r.seen.Ended(state.Wait, state.Killed)
	status, text := foreground.Status(state, expired, r.Spec.TimeoutMillis)
	if text != "" {
		say(text)
	}
	if r.Stats {
		r.tellStats(r.seen.Account.Stats(hits, expired, status))
	}
	return status
}

// tellLimits says which limits were met, and records them.
func (r *run) tellLimits(expired bool) []limits.Hit {
	hits := r.seen.Account.Hits()
	for _, h := range hits {
		say(h.Text)
		r.seen.Log(account.Event(h))
	}
	if expired {
		r.seen.Log(account.Event(limits.Hit{Name: "timeout"}))
	}
	return hits
}

// tellStats says what the command has used.
func (r *run) tellStats(s account.Stats) {
	if !r.JSON {
		say(s.Text())
		return
	}
	line, err := s.JSON()
	if err != nil {
		say(err.Error())
		return
	}
	_, _ = io.WriteString(os.Stderr, line) // nobody is left to tell
}

func (r *run) tell(lines []string) {
	for _, line := range lines {
		if !r.Quiet {
			say(line)
		}
	}
}

func fail(err error) int {
	say(err.Error())
	return foreground.Own
}

// say writes text to stderr, each line marked as Bailey's own.
func say(text string) {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		b.WriteString("bailey: " + plain.Text(line) + "\n")
	}
	_, _ = io.WriteString(os.Stderr, b.String())
}
