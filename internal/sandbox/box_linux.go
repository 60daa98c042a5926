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
	program, err := gateProgram(s)
	if err != nil {
		return nil, err
	}
	r, err := native.Open(s, native.Options{})
	if err != nil {
		return nil, err
	}
	ServeGate(program, s, r, func(*event.Event) {})
	return &Box{s, r}, nil
}

// ServeGate has the network gate of a resident sandbox started when the first
// connection wants it, for as long as the sandbox stands.
func ServeGate(program string, s *spec.Spec, r *native.Resident, report func(*event.Event)) {
	if s.Gate == nil {
		return
	}
	g := gate.New(program, s.Gate.Config, r.Listeners, report)
	go g.Wait()
	go func() {
		<-r.Done()
		g.Close()
	}()
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
		Exec: b.spec.Programs(argv[0], exists), Argv: argv, Env: b.spec.Env, Umask: -1, Streams: streams,
	})
	if err != nil {
		return nil, err
	}
	r := &boxed{box: b, job: job}
	r.limit = LimitTime(job.Signal, b.spec.TimeoutMillis)
	return r, nil
}

// exists is without the allocation of os.Lstat.
func exists(file string) bool {
	return unix.Access(file, unix.F_OK) == nil
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
