package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/bench/walls"
	"github.com/bailey-sandbox/bailey/internal/sandbox/oci"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// launcherName is what this program is called when it calls a runtime by itself.
const launcherName = "bench-launcher"

// job is what a launcher is to do.
type job struct {
	Spec     spec.Spec
	Program  string
	Platform string
	Group    string
	Serial   uint32
	Mode     string // Warm, Exec, or "idle"
	Exec     []string
}

// done is what a launcher says at its end.
type done struct {
	Phases map[string]time.Duration
	Out    []byte
	Memory *walls.Memory
	Error  string
}

// idleMode has a launcher start the sandbox, look at its memory, and end it.
const idleMode = "idle"

// bundled is a runtime that is called by hand, with Bailey's bundle.
type bundled struct {
	runtime  string // as Bailey calls it
	program  string
	platform string
	spec     spec.Spec
}

var serial atomic.Uint32

// launch launches the probe.
func (b *bundled) launch(probe []string) (*launch, error) { return b.perform(walls.Warm, probe) }

// exec runs the probe beside one that sleeps.
func (b *bundled) exec(probe []string) (*launch, error) { return b.perform(walls.Exec, probe) }

func (b *bundled) perform(mode string, probe []string) (*launch, error) {
	word := nonce()
	argv := append([]string{probePath, probeWord, word}, probe...)
	j := b.job(mode)
	if mode == walls.Exec {
		j.Exec = argv
		argv = []string{probePath, probeWord, word, "idle"}
	}
	j.Spec.Argv, j.Spec.Exec = argv, argv[:1]
	d, err := enclosed(j)
	if err != nil {
		return nil, err
	}
	rest, err := answer(d.Out, word)
	if err != nil {
		return nil, err
	}
	return &launch{out: rest, phases: d.Phases}, nil
}

// memory is what the sandbox takes while its command sleeps.
func (b *bundled) memory() (*walls.Memory, error) {
	j := b.job(idleMode)
	j.Spec.Argv, j.Spec.Exec = []string{probePath, probeWord, nonce(), "idle"}, []string{probePath}
	d, err := enclosed(j)
	if err != nil {
		return nil, err
	}
	return d.Memory, nil
}

func (b *bundled) job(mode string) job {
	n := serial.Add(1)
	return job{
		Spec: b.spec, Program: b.program, Platform: b.platform, Mode: mode, Serial: uint32(os.Getpid()) + n,
		Group: strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(int(n)),
	}
}

// enclosed has a launcher do a job, in namespaces of its own. Whatever it leaves, the
// kernel ends with it.
func enclosed(j job) (*done, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(program)
	c.Args = []string{launcherName}
	c.Stdin = strings.NewReader(string(text))
	var stderr strings.Builder
	c.Stderr = &stderr
	oci.Enclose(c, j.Spec.Identity)
	out, err := c.Output()
	var d done
	if jerr := json.Unmarshal(out, &d); jerr != nil {
		return nil, fmt.Errorf("%w: %w: %s", errNoExit, err, lastOf(stderr.String()))
	}
	if d.Error != "" && stderr.Len() > 0 {
		d.Error += ": " + lastOf(stderr.String())
	}
	if d.Error != "" {
		return nil, errors.New(d.Error)
	}
	return &d, nil
}

// launcher is this program as process 1 of a place where a bundle stands.
func launcher() int {
	var j job
	l := &calls{ended: map[int]unix.WaitStatus{}, phases: map[string]time.Duration{}}
	err := json.NewDecoder(os.Stdin).Decode(&j)
	var d done
	if err == nil {
		d, err = l.perform(&j)
	}
	if err != nil {
		d = done{Error: err.Error()}
	}
	if json.NewEncoder(os.Stdout).Encode(d) != nil {
		return 1
	}
	return 0
}

// calls are those of a runtime, for one sandbox.
type calls struct {
	bundle *oci.Bundle
	pid    int // of the process that stands for the sandbox
	in     *os.File
	out    *os.File
	ended  map[int]unix.WaitStatus
	phases map[string]time.Duration
}

func (l *calls) perform(j *job) (d done, err error) {
	begin := time.Now()
	if err := l.create(j); err != nil {
		return d, err
	}
	switch j.Mode {
	case walls.Warm:
		d.Out, err = l.run()
	case walls.Exec:
		err = l.beside(j, func() error { d.Out, err = l.again(j.Exec); return err })
	default:
		err = l.beside(j, func() error { d.Memory = memoryOf(os.Getpid(), false); return nil })
	}
	if err != nil {
		return d, err
	}
	err = l.timed(walls.PhaseTeardown, func() error { return l.call(l.bundle.Command("delete", "--force"), nil, nil) })
	l.phases[walls.PhaseTotal] = time.Since(begin)
	if j.Mode == walls.Exec {
		l.phases = map[string]time.Duration{walls.PhaseTotal: l.phases[walls.Exec]}
	}
	d.Phases = l.phases
	return d, err
}

// timed says how long something took.
func (l *calls) timed(phase string, do func() error) error {
	begin := time.Now()
	err := do()
	l.phases[phase] = time.Since(begin)
	return err
}

// create furnishes the bundle and has the runtime make the sandbox.
func (l *calls) create(j *job) error {
	if err := l.timed(walls.PhaseStage, func() (err error) {
		l.bundle, err = oci.NewBundle(&j.Spec, j.Program, j.Platform, j.Group, j.Serial)
		return err
	}); err != nil {
		return err
	}
	stdin, in, err := os.Pipe()
	if err != nil {
		return err
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		return err
	}
	l.in, l.out = in, out
	if err := l.timed(walls.PhaseCreate, func() error { return l.call(l.bundle.Create(), stdin, stdout) }); err != nil {
		return err
	}
	_, _ = stdin.Close(), stdout.Close()
	text, err := os.ReadFile(l.bundle.PidFile())
	if err != nil {
		return err
	}
	l.pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return err
}

// run starts the command and waits for its end.
func (l *calls) run() ([]byte, error) {
	_ = l.in.Close()
	type read struct {
		text  []byte
		first time.Time
	}
	got := make(chan read, 1)
	begin := time.Now()
	go func() {
		text, first, _ := readTimed(l.out)
		got <- read{text, first}
	}()
	if err := l.timed(walls.PhaseStart, func() error { return l.call(l.bundle.Command("start"), nil, nil) }); err != nil {
		return nil, err
	}
	r := <-got
	ws := l.wait(l.pid)
	l.phases[walls.PhaseFirstByte] = r.first.Sub(begin)
	l.phases[walls.PhaseExit] = time.Since(r.first)
	if !ws.Exited() || ws.ExitStatus() != 0 {
		return nil, fmt.Errorf("%w: the sandbox ended with %#x", errNoExit, uint32(ws))
	}
	return r.text, nil
}

// beside starts the command, which sleeps, and does something meanwhile.
func (l *calls) beside(j *job, do func() error) error {
	if err := l.call(l.bundle.Command("start"), nil, nil); err != nil {
		return err
	}
	want := j.Spec.Argv[2] + "\n"
	line := make([]byte, len(want))
	if _, err := io.ReadFull(l.out, line); err != nil || string(line) != want {
		return fmt.Errorf("the nonce came back as %s", short(line))
	}
	if err := do(); err != nil {
		return err
	}
	_ = l.in.Close() // then it ends
	l.wait(l.pid)
	return nil
}

// again runs one more command in the sandbox.
func (l *calls) again(argv []string) ([]byte, error) {
	out, stdout, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	got := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(out)
		got <- text
	}()
	err = l.timed(walls.Exec, func() error { return l.call(l.bundle.Exec(argv...), nil, stdout) })
	_ = stdout.Close()
	return <-got, err
}

// call calls the runtime and waits for it. What it leaves meanwhile is taken in: some wait
// for that.
func (l *calls) call(argv []string, stdin, stdout *os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	files := []uintptr{null.Fd(), null.Fd(), 2}
	if stdin != nil {
		files[0] = stdin.Fd()
	}
	if stdout != nil {
		files[1] = stdout.Fd()
	}
	attr := &syscall.ProcAttr{Files: files, Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	pid, err := syscall.ForkExec(argv[0], argv, attr)
	if err != nil {
		return fmt.Errorf("%s: %w", argv[0], err)
	}
	if ws := l.wait(pid); !ws.Exited() || ws.ExitStatus() != 0 {
		return fmt.Errorf("%w: %s (%#x)%s", errNoExit, argv[0], uint32(ws), l.bundle.Log())
	}
	return nil
}

// wait takes in every child that ends, until a certain one has.
func (l *calls) wait(pid int) unix.WaitStatus {
	for {
		if ws, ok := l.ended[pid]; ok {
			return ws
		}
		var ws unix.WaitStatus
		child, err := unix.Wait4(-1, &ws, 0, nil)
		if err == unix.ECHILD {
			return 0xff00 // it was nobody's child
		}
		if err == nil {
			l.ended[child] = ws
		}
	}
}
