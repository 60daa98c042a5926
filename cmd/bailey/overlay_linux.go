package main

import (
	"cmp"
	"errors"
	"os"
	"strconv"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// workspace is where a command's changes to the project go. A nil one is none:
// they reach the project.
type workspace struct {
	*sandbox.Workspace
	named bool
	dry   bool
}

// openWorkspace makes a workspace, or opens the one that is named, if the policy
// or the flags want one.
func (r *request) openWorkspace(m *sandbox.Manager) (*workspace, error) {
	if err := r.overlay.check(); err != nil || !m.WantsOverlay() {
		return nil, err
	}
	w, err := m.OpenWorkspace(r.overlay.name, r.overlay.dry)
	if err != nil {
		return nil, err
	}
	return &workspace{w, r.overlay.name != "", r.overlay.dry}, nil
}

// dryWorkspace is one that goes with this process, if the policy wants any: for who
// tries a command, and keeps nothing.
func dryWorkspace(m *sandbox.Manager) (*workspace, error) {
	if !m.WantsOverlay() {
		return nil, nil
	}
	w, err := m.OpenWorkspace("", true)
	if err != nil {
		return nil, err
	}
	return &workspace{w, false, true}, nil
}

// keptOverlay is where the changes of a sandbox that stays go, if the policy or the
// flags want them kept apart: to a workspace of its own name unless one is named.
func (r *request) keptOverlay(m *sandbox.Manager, box string) (*spec.Overlay, error) {
	if err := r.overlay.check(); err != nil || !m.WantsOverlay() {
		return nil, err
	}
	if r.overlay.dry {
		return nil, errors.New("--dry-run does not go with --keep: what a sandbox that stays changes is not known before it ends")
	}
	name := cmp.Or(r.overlay.name, box)
	over, fresh, err := m.KeptOverlay(name)
	if fresh && !r.settledQuiet() {
		say(tagNote, "changes are kept as "+name+"; when the sandbox has ended: bailey ws diff "+name)
	}
	return over, err
}

// overlay is what Compile is told of it.
func (w *workspace) overlay() *spec.Overlay {
	if w == nil {
		return nil
	}
	return &w.Over
}

// abandon removes a workspace in which nothing has run.
func (w *workspace) abandon() {
	if w != nil {
		w.tell(w.Abandon())
	}
}

func (w *workspace) remove() { w.tell(w.Remove()) }

func (w *workspace) keep() { w.tell(w.Keep()) }

// tell says what went wrong.
func (w *workspace) tell(err error) {
	if err != nil {
		say(tagError, "workspace "+w.Delta.Record.Name+": "+err.Error())
	}
}

// announce tells others what a Spec means for the workspace while it runs.
func (w *workspace) announce(s *spec.Spec) error {
	if w == nil {
		return nil
	}
	return w.Announce(s)
}

// collect takes over what the command has written to memory, if anything.
func (w *workspace) collect(p *prepared) {
	changes := p.changes
	if changes == nil {
		return
	}
	defer changes.Close()
	left := func(path, why string) { say(tagWarning, printable(path)+" is "+why+", and not kept") }
	if err := w.Delta.Absorb(changes, left); err != nil {
		say(tagError, "the changes of this run cannot be kept, and are lost: "+err.Error())
	}
}

// settle decides what becomes of the changes once the command has ended, and
// returns its status. What takes more than a glance is done by another program.
func (w *workspace) settle(r *request, status int) int {
	if w == nil {
		return status
	}
	if w.Fresh && isEmptyDir(w.Over.Upper) {
		if !w.named {
			w.remove()
		} else {
			w.keep()
		}
		if !r.settledQuiet() {
			say(tagNote, "nothing was changed in "+w.Over.Source)
		}
		return status
	}
	program := host.Beside("baileyd")
	if program == "" {
		say(tagError, "the program baileyd is missing beside this one, so changes cannot be shown or applied; install all programs of Bailey's into one directory: make install")
		w.keep()
		return status
	}
	if w.dry {
		return w.show(program, status)
	}
	args := []string{"baileyd", "ws", "conclude"}
	if r.settledQuiet() {
		args = append(args, "--quiet")
	}
	if w.named {
		args = append(args, "--named")
	}
	args = append(args, strconv.Itoa(status), w.Delta.Record.Name)
	w.keep()
	err := syscall.Exec(program, args, os.Environ())
	say(tagError, program+": "+err.Error()+"; the changes are kept as "+w.Delta.Record.Name)
	return status
}

// show has the changes of a dry run shown, and throws them away.
func (w *workspace) show(program string, status int) int {
	defer w.remove()
	args := []string{"baileyd", "ws", "show", w.Over.Upper}
	args = append(args, w.Over.Lowers...)
	pid, err := syscall.ForkExec(program, args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		say(tagError, program+": "+err.Error())
		return status
	}
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
			return status
		}
	}
}

func isEmptyDir(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	names, _ := f.Readdirnames(1)
	return len(names) == 0
}
