package sandbox

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/event"
	gate "github.com/bailey-sandbox/bailey/internal/gate/launch"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Box is a resident sandbox: it stands until Close, and a command in it costs
// little more than outside.
type Box struct {
	spec     *spec.Spec
	resident *native.Resident
}

// Open makes a sandbox that stays.
func (m *Manager) Open() (*Box, error) {
	if m.loaded == nil {
		return nil, errNotInitialized
	}
	s, err := spec.Compile(m.loaded.Policy, m.facts, spec.Command{Later: true})
	if err != nil {
		return nil, err
	}
	r, err := OpenResident(s, native.Options{}, func(*event.Event) {})
	if err != nil {
		return nil, err
	}
	return &Box{s, r}, nil
}

// OpenResident makes a sandbox that stays. Its network gate starts when the first
// connection wants it, for as long as the sandbox stands, and reports what it
// does.
func OpenResident(s *spec.Spec, o native.Options, report func(*event.Event)) (*native.Resident, error) {
	program, err := gateProgram(s)
	if err != nil {
		return nil, err
	}
	r, err := native.Open(s, o)
	if err != nil || s.Gate == nil {
		return r, err
	}
	g := gate.New(program, s.Gate.Config, r.Listeners, report)
	go g.Wait()
	go func() {
		<-r.Done()
		g.Close()
	}()
	return r, nil
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
	job, err := b.resident.Start(native.Launch{
		Argv: argv, Env: b.spec.Env, Umask: -1, Streams: streams,
	})
	if err != nil {
		return nil, err
	}
	r := &boxed{box: b, job: job}
	r.limit = LimitTime(job.Signal, b.spec.TimeoutMillis)
	return r, nil
}

// boxed is a command in a Box.
type boxed struct {
	box   *Box
	job   *native.Job
	limit *Limit
}

func (r *boxed) Done() <-chan struct{} { return r.job.Done() }

func (r *boxed) Pid() int { return r.box.resident.Pid }

func (r *boxed) State() State {
	st := stateOf(r.job.State())
	st.TimedOut = r.limit.Stop()
	return st
}

func (r *boxed) Signal(sig unix.Signal) error {
	if sig == unix.SIGKILL {
		return r.job.Kill()
	}
	return r.job.Signal(sig)
}
