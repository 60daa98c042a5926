package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// workspace is where a command's changes to the project go. A nil one is none:
// they reach the project.
type workspace struct {
	delta *delta.Delta
	over  spec.Overlay
	fresh bool // it was made for this command
	named bool
	dry   bool
}

// openWorkspace makes a workspace, or opens the one that is named, if the policy
// or the flags want one.
func (r *request) openWorkspace(m *sandbox.Manager) (*workspace, error) {
	if err := r.overlay.check(); err != nil || !m.WantsOverlay() {
		return nil, err
	}
	project, err := overlaidProject(m)
	if err != nil {
		return nil, err
	}
	store, err := delta.Place(m.Home())
	if err != nil {
		return nil, err
	}
	w := &workspace{named: r.overlay.name != "", dry: r.overlay.dry}
	if err := w.open(store, r.overlay.name, project); err != nil {
		return nil, err
	}
	dir, err := filepath.EvalSymlinks(w.delta.Dir())
	if err != nil {
		w.abandon()
		return nil, err
	}
	used, err := w.used(m)
	if err != nil {
		w.abandon()
		return nil, err
	}
	w.over = spec.Overlay{Used: used, Name: w.delta.Record.Name, Source: w.delta.Record.Target, Lowers: w.delta.Lowers(), Upper: dir + "/upper", Work: dir + "/work"}
	return w, nil
}

// used is what a limit on files counts of what was written before.
func (w *workspace) used(m *sandbox.Manager) (int64, error) {
	if w.fresh || m.Loaded().Policy.Resources.Disk == nil {
		return 0, nil
	}
	return w.delta.Used()
}

func (w *workspace) open(store delta.Store, name, project string) (err error) {
	if w.named {
		w.delta, err = store.Open(name, delta.Write)
		if err == nil {
			return w.reopen()
		}
		if !errors.Is(err, delta.ErrNotFound) {
			return err
		}
	}
	if err := store.Sweep(); err != nil {
		return err
	}
	o := delta.Options{Name: name, Stack: []delta.Lower{{Dir: project}}, Target: project}
	if w.dry {
		o.State = delta.DryRun
	}
	w.fresh = true
	w.delta, err = store.Create(o)
	return err
}

// reopen goes on in a workspace. One that is just being applied is not what it
// will be.
func (w *workspace) reopen() error {
	name := w.delta.Record.Name
	if _, err := os.Lstat(w.delta.Dir() + "/journal/plan"); err == nil {
		w.delta.Close()
		return errors.New("workspace " + name + ": applying it was cut short; finish that first: bailey ws apply " + name)
	}
	return w.delta.Begin()
}

// overlay is what Compile is told of it.
func (w *workspace) overlay() *spec.Overlay {
	if w == nil {
		return nil
	}
	return &w.over
}

// abandon removes a workspace in which nothing has run.
func (w *workspace) abandon() {
	switch {
	case w == nil:
	case w.fresh:
		w.remove()
	default:
		w.keep()
	}
}

func (w *workspace) remove() {
	if err := w.delta.Remove(); err != nil {
		say(tagError, "workspace "+w.delta.Record.Name+": "+err.Error())
	}
	w.delta.Close()
}

func (w *workspace) keep() {
	w.delta.Record.State, w.delta.Record.InMemory = delta.Kept, false
	if err := w.delta.Save(); err != nil {
		say(tagError, "workspace "+w.delta.Record.Name+": "+err.Error())
	}
	w.delta.Close()
}

// announce tells others what a Spec means for the workspace while it runs.
func (w *workspace) announce(s *spec.Spec) error {
	if !s.Overlay.HeldInMemory() {
		return nil
	}
	return w.delta.HoldInMemory()
}

// collect takes over what the command has written to memory, if anything.
func (w *workspace) collect(p *prepared) {
	changes := p.changes
	if changes == nil {
		return
	}
	defer changes.Close()
	left := func(path, why string) { say(tagWarning, printable(path)+" is "+why+", and not kept") }
	if err := w.delta.Absorb(changes, left); err != nil {
		say(tagError, "the changes of this run cannot be kept, and are lost: "+err.Error())
	}
}

// settle decides what becomes of the changes once the command has ended, and
// returns its status. What takes more than a glance is done by another program.
func (w *workspace) settle(r *request, status int) int {
	if w == nil {
		return status
	}
	if w.fresh && isEmptyDir(w.over.Upper) {
		if !w.named {
			w.remove()
		} else {
			w.keep()
		}
		if !r.settledQuiet() {
			say(tagNote, "nothing was changed in "+w.over.Source)
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
	args = append(args, strconv.Itoa(status), w.delta.Record.Name)
	w.keep()
	err := syscall.Exec(program, args, os.Environ())
	say(tagError, program+": "+err.Error()+"; the changes are kept as "+w.delta.Record.Name)
	return status
}

// show has the changes of a dry run shown, and throws them away.
func (w *workspace) show(program string, status int) int {
	defer w.remove()
	args := []string{"baileyd", "ws", "show", w.over.Upper}
	args = append(args, w.over.Lowers...)
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
