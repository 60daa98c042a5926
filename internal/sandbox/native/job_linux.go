package native

import (
	"os"

	"golang.org/x/sys/unix"
)

// Job is a command in a resident sandbox.
type Job struct {
	// Terminal is the caller's end of the command's terminal, or nil.
	Terminal *os.File

	resident *Resident
	slot     uint32
	wake     chan struct{} // one token when something has changed
	done     chan struct{} // closed at the end

	// Guarded by the resident's mutex.
	pid     uint32 // inside
	begun   bool
	failure uint32
	stopped uint32 // the wait status, until somebody was told
	state   State
	over    bool
}

// tell takes what process 1 says and reports whether that was the last.
func (j *Job) tell(what uint32, used unix.Rusage) (last bool) {
	ws := unix.WaitStatus(what)
	switch {
	case what&msgExecFailed != 0:
		j.failure, j.over = what, true
	case what&msgStarted != 0:
		j.begun = true
	case ws.Continued():
		j.stopped = 0
		return false
	case ws.Stopped():
		j.stopped = what
	default:
		j.state, j.over = State{Wait: ws, Rusage: used}, true
	}
	if j.over {
		close(j.done)
	}
	j.notify()
	return j.over
}

// kill says that the sandbox has ended.
func (j *Job) kill() {
	j.state, j.over = State{Wait: unix.WaitStatus(unix.SIGKILL), Killed: true}, true
	close(j.done)
	j.notify()
}

func (j *Job) notify() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// until waits for a condition, which is asked with the resident's mutex held.
func (j *Job) until(met func() bool) {
	for {
		j.resident.mu.Lock()
		ok := met()
		j.resident.mu.Unlock()
		if ok {
			return
		}
		<-j.wake
	}
}

// started waits until the command runs, or says why it does not.
func (j *Job) started(name string) error {
	var failure uint32
	var ended bool
	j.until(func() bool {
		failure, ended = j.failure, j.over && !j.begun
		return j.begun || j.over
	})
	switch errno := unix.Errno(failure & 0xffff); {
	case failure&msgNoDir != 0:
		return &DirError{errno}
	case failure != 0:
		return &ExecError{Name: name, Errno: errno}
	case ended:
		return ErrEnded
	}
	return nil
}

// Done is closed when the command has ended.
func (j *Job) Done() <-chan struct{} { return j.done }

// State is how the command ended; it is valid once Done is closed.
func (j *Job) State() State { return j.state }

// Pid is the command's process, as it is numbered inside.
func (j *Job) Pid() int { return int(j.pid) }

// Wait blocks until the command stops or ends and tells how. Only one goroutine
// may wait.
func (j *Job) Wait() (st State) {
	j.until(func() bool {
		if !j.over && j.stopped != 0 {
			st, j.stopped = State{Wait: unix.WaitStatus(j.stopped)}, 0
			return true
		}
		st = j.state
		return j.over
	})
	return st
}

// jobSignals concern the whole job, as from a terminal: HUP INT QUIT CONT TSTP
// WINCH. Process 1 has the same set.
const jobSignals = 0x1014000e

const toGroup = 0x100

// Signal passes a signal on to the command, as that of Process does. After its
// end it does nothing.
func (j *Job) Signal(sig unix.Signal) error {
	arg := uint32(sig) & 0xff
	if sig < 32 && jobSignals&(1<<sig) != 0 {
		arg |= toGroup
	}
	return j.ask(arg)
}

// Kill ends the command and its process group.
func (j *Job) Kill() error { return j.ask(uint32(unix.SIGKILL) | toGroup) }

// ask sends a signal. While it is on the way no other command can get the slot.
func (j *Job) ask(signal uint32) error {
	r := j.resident
	r.sending.Lock()
	defer r.sending.Unlock()
	r.mu.Lock()
	over := j.over
	r.mu.Unlock()
	if over {
		return os.ErrProcessDone
	}
	return r.write(header(askSignal, j.slot, signal, 0), nil)
}
