package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/columns"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/terminal"
	"github.com/bailey-sandbox/bailey/internal/workspace"
	"github.com/bailey-sandbox/bailey/internal/workspace/change"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// conclude asks, after a command has ended, what is to become of its changes. The
// exit status is the command's.
func (w *workspaces) conclude(args []string) error {
	status, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	w.status = status
	if err := w.settle(args[1]); err != nil {
		w.say(err.Error())
		w.say("the changes are kept as " + args[1])
	}
	return nil
}

func (w *workspaces) settle(name string) error {
	d, err := w.open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	c, err := change.Remember(d)
	if err != nil {
		return err
	}
	defer c.Close()
	if len(c.Changes) == 0 && !w.has("--named") {
		if !w.has("--quiet") {
			w.say("nothing was changed in " + d.Record.Target)
		}
		return d.Remove()
	}
	if err := errors.Join(change.SetPassing(d, !w.has("--named")), d.Sync()); err != nil {
		return err
	}
	if w.has("--named") || !isTerminal(os.Stdin) || !isTerminal(os.Stderr) || !terminal.HasCaller() {
		if !w.has("--quiet") {
			w.say(count(change.Summarize(c.Changes)) + " in " + d.Record.Target)
		}
		return w.tellKept(d)
	}
	return w.ask(d, c)
}

// tellKept says how to go on.
func (w *workspaces) tellKept(d *delta.Delta) error {
	name := d.Record.Name
	text := "kept as " + name
	if !w.has("--quiet") {
		text += "; bailey ws diff " + name + ", bailey ws apply " + name + " or bailey ws discard " + name
	}
	w.say(text)
	return nil
}

// count says how much was changed.
func count(s change.Summary) string {
	size := fmt.Sprintf("%d bytes", s.Bytes)
	if s.Bytes >= 1<<10 {
		size = columns.Size(s.Bytes)
	}
	return fmt.Sprintf("%d added, %d changed, %d deleted (%s)", s.Added, s.Changed, s.Deleted, size)
}

// ask has the person at the terminal decide. Whoever says nothing keeps.
func (w *workspaces) ask(d *delta.Delta, c *change.Comparison) error {
	w.say(count(change.Summarize(c.Changes)) + " in " + d.Record.Target)
	for {
		answer, err := terminal.Ask(context.Background(), nil, "bailey: [a]pply, [d]iscard, [k]eep or [l]ook? ")
		if err != nil {
			return w.tellKept(d)
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "a", "apply":
			if err := w.applyTo(d, change.Options{}); err != nil {
				return err
			}
			return w.forgetOthers(d)
		case "d", "discard":
			return d.Remove()
		case "k", "keep":
			return w.tellKept(d)
		case "l", "look":
			if err := w.look(c); err != nil {
				w.say(err.Error())
			}
		}
	}
}

// look shows the changes in the person's pager.
func (w *workspaces) look(c *change.Comparison) error {
	argv := pager()
	if argv == nil {
		return c.WriteUnified(os.Stderr, c.Changes, true)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if !isTerminal(os.Stdout) {
		cmd.Stdout = os.Stderr
	}
	cmd.Env = append(os.Environ(), "LESSSECURE=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = c.WriteUnified(in, c.Changes, true)
	_ = in.Close()
	if errors.Is(err, io.ErrClosedPipe) || errors.Is(err, os.ErrClosed) || strings.Contains(fmt.Sprint(err), "broken pipe") {
		err = nil // who has seen enough leaves
	}
	return errors.Join(err, ignoreExit(cmd.Wait()))
}

// ignoreExit leaves out that a program said it failed: of a pager that means
// nothing.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// pager is the program that shows texts page by page, or nil if there is none.
func pager() []string {
	argv := strings.Fields(os.Getenv("PAGER"))
	if len(argv) == 0 {
		argv = []string{"less"}
	}
	if _, err := exec.LookPath(argv[0]); err != nil {
		return nil
	}
	return argv
}

// forgetOthers removes workspaces that nobody named and that were applied to the
// same directory before: only the last apply can be undone.
func (w *workspaces) forgetOthers(now *delta.Delta) error {
	list, err := w.store.List()
	if err != nil {
		return err
	}
	for _, l := range list {
		if l.Err != nil || l.InUse || l.Name == now.Record.Name || l.Target != now.Record.Target {
			continue
		}
		d, err := w.store.Open(l.Name, delta.Write)
		if err != nil {
			continue // somebody was faster
		}
		if change.IsSpent(d) {
			err = d.Remove()
		}
		d.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// show shows what a dry run would have changed: the upper directory and those
// below are given, since there is no workspace.
func (w *workspaces) show(args []string) error {
	c, err := change.Compare(change.Stack{Tops: args[:1], Bottoms: args[1:]})
	if err != nil {
		return err
	}
	defer c.Close()
	w.say("a dry run: " + count(change.Summarize(c.Changes)) + "; nothing was changed in " + args[len(args)-1])
	return w.write(w.err, c, c.Changes)
}

// list shows all workspaces.
func (w *workspaces) list([]string) error {
	list, err := w.store.List()
	if err != nil {
		return err
	}
	if w.has("--json") {
		return w.listJSON(list)
	}
	rows := [][]string{{"NAME", "STATE", "CHANGES", "SIZE", "AGE", "DIRECTORY"}}
	for i := range list {
		l := &list[i]
		if l.Err != nil {
			rows = append(rows, []string{l.Name, "unreadable", "", "", "", plain.Text(l.Err.Error())})
			continue
		}
		size := "?"
		if n := w.sizeOf(l); n != nil {
			size = columns.Size(*n)
		}
		rows = append(rows, []string{l.Name, stateOf(l), w.changesOf(l), size, columns.Brief(time.Since(l.Created)), plain.Text(l.Target)})
	}
	for _, line := range columns.Align(rows) {
		if _, err := fmt.Fprintln(w.out, line); err != nil {
			return err
		}
	}
	return nil
}

// stateOf is what a workspace is doing, for people.
func stateOf(l *delta.Listed) string {
	switch {
	case l.Interrupted():
		return "interrupted"
	case l.InUse:
		return "in use"
	}
	return string(l.State)
}

// sizeOf is what the delta of a workspace takes on the disk, or nil. Nobody need
// hold the workspace for that.
func (w *workspaces) sizeOf(l *delta.Listed) *int64 {
	u, err := workspace.Usage(w.store.Dir() + "/workspaces/" + l.Name + "/upper")
	if err != nil {
		return nil
	}
	return &u.Bytes
}

func (w *workspaces) changesOf(l *delta.Listed) string {
	d, err := w.store.Open(l.Name, delta.Read)
	if err != nil {
		return "?"
	}
	defer d.Close()
	c, err := change.Of(d)
	if err != nil {
		return "?"
	}
	defer c.Close()
	s := change.Summarize(c.Changes)
	if s == (change.Summary{}) && change.CanUndo(d) {
		return "applied"
	}
	return fmt.Sprintf("+%d ~%d -%d", s.Added, s.Changed, s.Deleted)
}
