package bailey

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

// Cmd is a command to be run in a sandbox. Its fields and methods mean what
// they mean in os/exec, and like there it cannot be used twice.
type Cmd struct {
	// Args is the command line, starting with the program's name.
	Args []string
	// Stdin, Stdout and Stderr are the command's streams. A nil stream is empty
	// or discarded; an *os.File is given to the command as it is. Any other
	// Stdin may be read ahead, and once more after the command has ended: Wait
	// does not wait for a reader that blocks.
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	ctx     context.Context
	launch  func(argv []string, streams [3]*os.File) (sandbox.Running, error)
	forget  func(sandbox.Running) error
	running sandbox.Running

	started     bool
	waited      bool
	childFiles  []*os.File // ours only until the command has them
	parentFiles []*os.File // closed by Wait
	feed        func()     // copies Stdin to the command
	copies      []func() error
	fed         chan error  // the end of feed
	copied      chan error  // the ends of copies
	stopKill    func() bool // of the context
	state       *State
}

// State is how a command ended.
type State struct{ s sandbox.State }

// ExitCode is the exit status, or -1 if a signal ended the command.
func (s *State) ExitCode() int { return s.s.Code }

// Signal is the signal that ended the command, or 0.
func (s *State) Signal() syscall.Signal { return syscall.Signal(s.s.Signal) }

// Success reports whether the command exited with status 0.
func (s *State) Success() bool { return s.s.Code == 0 }

// TimedOut reports whether the policy's timeout ended the command.
func (s *State) TimedOut() bool { return s.s.TimedOut }

// LimitsMet names the limits of the policy that were met while the command ran:
// memory if processes were killed for want of it, pids if some were not started,
// disk if no space was left at the end. In a Box they may have been met by other
// commands.
func (s *State) LimitsMet() []string { return slices.Clone(s.s.Met) }

func (s *State) String() string {
	if s.s.TimedOut {
		return "timed out"
	}
	if s.s.Signal != 0 && len(s.s.Met) > 0 {
		return "signal: " + syscall.Signal(s.s.Signal).String() + " (limit met: " + strings.Join(s.s.Met, ", ") + ")"
	}
	if s.s.Signal != 0 {
		return "signal: " + syscall.Signal(s.s.Signal).String()
	}
	return fmt.Sprintf("exit status %d", s.s.Code)
}

// ExitError is returned for a command that did not end with status 0.
type ExitError struct {
	*State
	// Stderr holds what the command wrote there, if Output collected it.
	Stderr []byte
}

func (e *ExitError) Error() string { return e.String() }

// State tells how the command ended; nil before Wait has returned.
func (c *Cmd) State() *State { return c.state }

// Pid is process 1 of the sandbox in the host's numbering, or 0.
func (c *Cmd) Pid() int {
	if c.running == nil {
		return 0
	}
	return c.running.Pid()
}

// Run starts the command and waits for it.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Start starts the command. When it returns without an error the command runs
// and every wall of its sandbox stands.
func (c *Cmd) Start() error {
	if c.started {
		return errors.New("bailey: already started")
	}
	c.started = true
	err := c.start()
	closeFiles(c.childFiles)
	if err != nil {
		closeFiles(c.parentFiles)
		return err
	}
	if c.feed != nil {
		go c.feed()
	}
	c.copied = make(chan error, len(c.copies))
	for _, f := range c.copies {
		go func() { c.copied <- f() }()
	}
	return nil
}

func (c *Cmd) start() error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	var streams [3]*os.File
	var err error
	if streams[0], err = c.input(); err != nil {
		return err
	}
	if streams[1], err = c.output(c.Stdout); err != nil {
		return err
	}
	if streams[2] = streams[1]; c.Stderr == nil || !sameWriter(c.Stdout, c.Stderr) {
		if streams[2], err = c.output(c.Stderr); err != nil {
			return err
		}
	}
	running, err := c.launch(c.Args, streams)
	if err != nil {
		return fmt.Errorf("bailey: %w", err)
	}
	c.running = running
	c.stopKill = context.AfterFunc(c.ctx, func() { _ = running.Signal(syscall.SIGKILL) })
	return nil
}

// sameWriter compares writers of types that may not be comparable.
func sameWriter(a, b io.Writer) (same bool) {
	defer func() { _ = recover() }()
	return a == b
}

func (c *Cmd) input() (*os.File, error) {
	switch in := c.Stdin.(type) {
	case nil:
		return c.null(os.O_RDONLY)
	case *os.File:
		return in, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.childFiles = append(c.childFiles, r)
	c.parentFiles = append(c.parentFiles, w)
	c.fed = make(chan error, 1)
	in := c.Stdin
	c.feed = func() {
		_, err := io.Copy(w, in)
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
			err = nil // the command ended without reading it all
		}
		c.fed <- err  // before the command can see the end of its input
		_ = w.Close() // Wait may have closed it already
	}
	return r, nil
}

func (c *Cmd) output(w io.Writer) (*os.File, error) {
	switch out := w.(type) {
	case nil:
		return c.null(os.O_WRONLY)
	case *os.File:
		return out, nil
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.childFiles = append(c.childFiles, pw)
	c.parentFiles = append(c.parentFiles, pr)
	c.copies = append(c.copies, func() error {
		defer pr.Close() // so that a command whose reader failed does not block
		_, err := io.Copy(w, pr)
		return err
	})
	return pw, nil
}

func (c *Cmd) null(flag int) (*os.File, error) {
	f, err := os.OpenFile(os.DevNull, flag, 0)
	if err != nil {
		return nil, err
	}
	c.childFiles = append(c.childFiles, f)
	return f, nil
}

// Wait waits for the command to end and its output to be copied. Nothing of
// the sandbox is left when it returns, unless it is a Box: what a command leaves
// running there goes on, and is waited for only if it holds the output.
func (c *Cmd) Wait() error {
	if c.running == nil {
		return errors.New("bailey: not started")
	}
	if c.waited {
		return errors.New("bailey: Wait was already called")
	}
	c.waited = true
	<-c.running.Done()
	c.stopKill()
	forgetErr := c.forget(c.running)
	c.state = &State{c.running.State()}
	// Output ends by itself, since nobody inside is left to write.
	copyErr := errors.Join(forgetErr, c.inputError())
	for range c.copies {
		copyErr = errors.Join(copyErr, <-c.copied)
	}
	closeFiles(c.parentFiles)
	if c.state.Success() {
		return copyErr
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	return &ExitError{State: c.state}
}

// inputError is why Stdin could not be copied. The command is gone, so writing
// to it fails at once; a reader that may block is not waited for.
func (c *Cmd) inputError() error {
	switch c.Stdin.(type) {
	case nil, *os.File:
		return nil
	case *bytes.Buffer, *bytes.Reader, *strings.Reader:
		return <-c.fed // and the caller may use it again
	}
	select {
	case err := <-c.fed:
		return err
	default:
		return nil
	}
}

// Signal passes a signal on to the command.
func (c *Cmd) Signal(sig syscall.Signal) error {
	if c.running == nil {
		return errors.New("bailey: not started")
	}
	return c.running.Signal(sig)
}

// Kill ends everything in the sandbox at once; in a Box, the command and its
// process group.
func (c *Cmd) Kill() error { return c.Signal(syscall.SIGKILL) }

// Output runs the command and returns what it wrote to its stdout.
func (c *Cmd) Output() ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("bailey: Stdout already set")
	}
	var out, errs bytes.Buffer
	c.Stdout = &out
	collect := c.Stderr == nil
	if collect {
		c.Stderr = &errs
	}
	err := c.Run()
	var exit *ExitError
	if collect && errors.As(err, &exit) {
		exit.Stderr = errs.Bytes()
	}
	return out.Bytes(), err
}

// CombinedOutput runs the command and returns its stdout and stderr together.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	if c.Stdout != nil || c.Stderr != nil {
		return nil, errors.New("bailey: Stdout or Stderr already set")
	}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}

// StdinPipe returns a pipe to the command's stdin. Closing it is the command's
// end of input.
func (c *Cmd) StdinPipe() (io.WriteCloser, error) {
	if c.Stdin != nil {
		return nil, errors.New("bailey: Stdin already set")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.Stdin = r
	c.childFiles = append(c.childFiles, r)
	c.parentFiles = append(c.parentFiles, w)
	return w, nil
}

// StdoutPipe returns a pipe from the command's stdout. Read it to its end
// before Wait, which closes it.
func (c *Cmd) StdoutPipe() (io.ReadCloser, error) {
	if c.Stdout != nil {
		return nil, errors.New("bailey: Stdout already set")
	}
	r, w, err := c.outputPipe()
	if err != nil {
		return nil, err
	}
	c.Stdout = w
	return r, nil
}

// StderrPipe is like StdoutPipe for stderr.
func (c *Cmd) StderrPipe() (io.ReadCloser, error) {
	if c.Stderr != nil {
		return nil, errors.New("bailey: Stderr already set")
	}
	r, w, err := c.outputPipe()
	if err != nil {
		return nil, err
	}
	c.Stderr = w
	return r, nil
}

func (c *Cmd) outputPipe() (*os.File, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	c.childFiles = append(c.childFiles, w)
	c.parentFiles = append(c.parentFiles, r)
	return r, w, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // a pipe the other side may have closed already
	}
}
