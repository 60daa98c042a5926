package sandbox

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/event"
	gate "github.com/bailey-sandbox/bailey/internal/gate/launch"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/sandbox/bwrap"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Box is a resident sandbox: it stands until Close, and a command in it costs
// little more than outside.
type Box struct {
	spec     *spec.Spec
	resident *native.Resident
	gate     *gate.Gate // nil without network rules
}

// Open makes a sandbox that stays.
func (m *Manager) Open() (*Box, error) { return m.OpenOver(m.config.Place) }

// OpenOver is Open with changes to the project kept apart, if over is not nil.
func (m *Manager) OpenOver(over *spec.Overlay) (*Box, error) {
	s, err := m.CompileBoxOver(over)
	if err != nil {
		return nil, err
	}
	r, g, err := OpenResident(s, native.Options{}, m.outside(), nil, m.config.Ask)
	if err != nil {
		return nil, err
	}
	return &Box{spec: s, resident: r, gate: g}, nil
}

// OpenResident makes a sandbox that stays. Its network gate, nil if it needs none,
// starts when the first connection wants it, for as long as the sandbox stands,
// and reports what it does. Environ is what the gate has for its environment, this
// process's if it is nil. Both report and ask may be nil.
func OpenResident(s *spec.Spec, o native.Options, environ []string, report func(*event.Event), ask gate.AskFunc) (*native.Resident, *gate.Gate, error) {
	open := native.Open
	if s.Runtime == spec.RuntimeBwrap {
		open = bwrap.Open
	}
	return OpenResidentBy(func() (*native.Resident, error) { return open(s, o) }, s, environ, report, ask)
}

// OpenResidentBy is OpenResident for a runtime that opens sandboxes by itself.
func OpenResidentBy(open func() (*native.Resident, error), s *spec.Spec, environ []string, report func(*event.Event), ask gate.AskFunc) (*native.Resident, *gate.Gate, error) {
	g, err := gate.Prepare(s)
	if err != nil {
		return nil, nil, err
	}
	if g != nil {
		g.Ask, g.Environ = ask, environ
	}
	r, err := open()
	if err != nil {
		g.Close()
		return nil, nil, err
	}
	g.Keep(r, report)
	return r, g, nil
}

// UpdateNetwork gives the sandbox the network rules of another Manager's policy,
// which must be the same in everything else. They hold for connections made from
// then on.
func (b *Box) UpdateNetwork(m *Manager) error {
	s, err := m.CompileBoxOver(b.spec.Overlay)
	if err != nil {
		return err
	}
	s = spec.Closing(b.spec, s)
	if err := spec.Changeable(b.spec, s); err != nil {
		return err
	}
	if s.Gate == nil {
		return nil // there was no network, and there is none
	}
	return b.gate.Reload(s.Gate.Config)
}

// Done is closed when nothing of the sandbox is left.
func (b *Box) Done() <-chan struct{} { return b.resident.Done() }

// Close ends everything in the sandbox.
func (b *Box) Close() { b.resident.Close() }

// Start starts a command. When it returns without an error the command runs.
func (b *Box) Start(argv []string, streams [3]*os.File) (Running, error) {
	if err := checkArgv(argv); err != nil {
		return nil, err
	}
	before, _ := b.resident.Used()
	job, err := b.resident.Start(native.Launch{
		Argv: argv, Env: b.spec.Env, Umask: -1, Streams: streams,
	})
	if err != nil {
		return nil, err
	}
	r := &boxed{box: b, job: job, before: before}
	r.limit = LimitTime(job.Signal, b.spec.TimeoutMillis)
	return r, nil
}

// boxed is a command in a Box.
type boxed struct {
	box   *Box
	job   *native.Job
	limit *Limit

	before limits.Usage
}

func (r *boxed) Done() <-chan struct{} { return r.job.Done() }

func (r *boxed) Pid() int { return r.box.resident.Pid }

func (r *boxed) State() State {
	st := stateOf(r.job.State())
	st.TimedOut = r.limit.Stop()
	if now, ok := r.box.resident.Used(); ok {
		st.Met = metBy(now.Since(r.before), r.box.spec.Limits)
	}
	return st
}

func (r *boxed) Signal(sig unix.Signal) error {
	if sig == unix.SIGKILL {
		return r.job.Kill()
	}
	return r.job.Signal(sig)
}
