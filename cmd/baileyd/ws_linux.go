package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/workspace"
	"github.com/bailey-sandbox/bailey/internal/workspace/archive"
	"github.com/bailey-sandbox/bailey/internal/workspace/change"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// workspaces carries out "bailey ws".
type workspaces struct {
	store  delta.Store
	out    io.Writer
	err    io.Writer
	flags  []string
	status int
}

// runWorkspaces does what the words after "ws" ask for, and returns the exit
// status.
func runWorkspaces(args []string, stdout, stderr io.Writer) int {
	home, _ := os.UserHomeDir() // Place says if it is missed
	store, err := delta.Place(home)
	w := &workspaces{store: store, out: stdout, err: stderr}
	var words []string
	for i, a := range args {
		if a == "--" {
			words = append(words, args[i+1:]...)
			break
		}
		if strings.HasPrefix(a, "--") {
			w.flags = append(w.flags, a)
		} else {
			words = append(words, a)
		}
	}
	if err == nil {
		err = w.run(words)
	}
	if err != nil {
		w.say(err.Error())
		return exitOwn
	}
	return w.status
}

func (w *workspaces) has(flag string) bool { return slices.Contains(w.flags, flag) }

// say tells the person something, line by line, marked as Bailey's.
func (w *workspaces) say(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		_, _ = fmt.Fprintln(w.err, "bailey: "+plain.Text(line))
	}
}

// wsVerb is a word after "ws", with how many words it takes after that; -1 is any
// number.
type wsVerb struct {
	least, most int
	do          func(words []string) error
}

func (w *workspaces) verbs() map[string]wsVerb {
	return map[string]wsVerb{
		"list":      {0, 0, w.list},
		"diff":      {1, -1, w.diff},
		"apply":     {1, -1, w.apply},
		"undo":      {1, 1, w.undo},
		"discard":   {1, -1, w.discard},
		"snapshot":  {1, 1, w.snapshot},
		"snapshots": {1, 1, w.snapshots},
		"fork":      {2, 3, w.fork},
		"rollback":  {2, 2, w.rollback},
		"squash":    {1, 1, w.squash},
		"export":    {1, 2, w.export},
		"conclude":  {2, 2, w.conclude},
		"show":      {2, -1, w.show},
	}
}

// workspaceFlags are those that the words after "ws" take. The last two words are for
// Bailey itself.
var workspaceFlags = uses{
	"list":     {"--json"},
	"diff":     {"--stat", "--patch", "--json"},
	"apply":    {"--merge"},
	"export":   {"--oci"},
	"conclude": {"--quiet", "--named"},
	"show":     {},
}

func (w *workspaces) run(words []string) error {
	const usage = "usage: bailey ws list | diff NAME [PATHS] | apply NAME [PATHS] | undo NAME | discard NAME… | snapshot NAME | snapshots NAME | fork NAME NEW [SNAPSHOT] | rollback NAME SNAPSHOT | squash NAME | export NAME [SNAPSHOT]"
	if len(words) == 0 {
		return errors.New(usage)
	}
	v, ok := w.verbs()[words[0]]
	if n := len(words) - 1; !ok || n < v.least || v.most >= 0 && n > v.most {
		return errors.New(usage)
	}
	if err := workspaceFlags.fit("ws", words[0], w.flags); err != nil {
		return err
	}
	return v.do(words[1:])
}

// open opens a workspace to be changed, and finishes what was cut short in it.
func (w *workspaces) open(name string) (*delta.Delta, error) {
	d, err := w.store.Open(name, delta.Write)
	if err != nil {
		return nil, explain(err)
	}
	left, err := change.Recover(d)
	if err != nil {
		d.Close()
		return nil, err
	}
	if len(left) > 0 {
		w.say("an apply that was cut short was finished, but for files that were changed since: " + strings.Join(words(left), ", "))
	}
	return d, nil
}

func words(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = plain.Word(name)
	}
	return out
}

// explain says what to do about an error of Open.
func explain(err error) error {
	switch {
	case errors.Is(err, delta.ErrBusy):
		return fmt.Errorf("%w: a command runs in it, or somebody else changes it; wait for that", err)
	case errors.Is(err, delta.ErrNotFound):
		return fmt.Errorf("%w; see: bailey ws list", err)
	}
	return err
}

func (w *workspaces) diff(args []string) error {
	d, err := w.store.Open(args[0], delta.Read)
	if err != nil {
		return explain(err)
	}
	defer d.Close()
	c, err := change.Of(d)
	if err != nil {
		return err
	}
	defer c.Close()
	paths, err := w.paths(d, args[1:])
	if err == nil {
		err = w.known(d, c, paths)
	}
	if err != nil {
		return err
	}
	return w.write(w.out, c, change.Select(c.Changes, paths))
}

// known refuses paths at which there is nothing, and was nothing: they are mistakes.
func (w *workspaces) known(d *delta.Delta, c *change.Comparison, paths []string) error {
	for _, path := range paths {
		if !c.Knows(path) {
			return fmt.Errorf("%s: there is no such path in workspace %s; see: bailey ws diff --stat %[2]s", plain.Word(path), d.Record.Name)
		}
	}
	return nil
}

// write shows changes in the form that the flags ask for.
func (w *workspaces) write(to io.Writer, c *change.Comparison, list []change.Change) error {
	terminal := isTerminal(to)
	switch {
	case w.has("--json"):
		return change.WriteJSON(to, list)
	case w.has("--stat"):
		return change.WriteList(to, list)
	case w.has("--patch") && !terminal:
		return c.WritePatch(to, list)
	case w.has("--patch"):
		return c.WriteSafePatch(to, list)
	}
	return c.WriteUnified(to, list, terminal)
}

func isTerminal(to any) bool {
	f, ok := to.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// paths makes paths of the command line relative to the workspace: they are names
// in the working directory if that is in there, or in the workspace.
func (w *workspaces) paths(d *delta.Delta, args []string) ([]string, error) {
	var out []string
	for _, arg := range args {
		abs, err := filepath.Abs(arg)
		if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(d.Record.Target, abs)
		outside := err != nil || rel == ".." || strings.HasPrefix(rel, "../")
		if outside {
			rel = filepath.Clean(arg)
		}
		if !filepath.IsLocal(rel) {
			return nil, fmt.Errorf("%s is not in %s", plain.Word(arg), plain.Word(d.Record.Target))
		}
		out = append(out, rel)
	}
	return out, nil
}

func (w *workspaces) apply(args []string) error {
	d, err := w.open(args[0])
	if err != nil {
		return err
	}
	defer d.Close()
	paths, err := w.paths(d, args[1:])
	if err != nil {
		return err
	}
	o := change.Options{Paths: paths}
	if o.Merge, err = w.mergeMode(); err != nil {
		return err
	}
	if len(paths) > 0 {
		c, err := change.Of(d)
		if err != nil {
			return err
		}
		err = w.known(d, c, paths)
		c.Close()
		if err != nil {
			return err
		}
	}
	return w.applyTo(d, o)
}

func (w *workspaces) mergeMode() (mode change.MergeMode, err error) {
	for _, flag := range w.flags {
		switch value, _ := strings.CutPrefix(flag, "--merge"); value {
		case "":
			mode = max(mode, change.Clean)
		case "=markers":
			mode = change.Markers
		default:
			return mode, fmt.Errorf("%s: there are only --merge and --merge=markers", plain.Word(flag))
		}
	}
	return mode, nil
}

// applyTo applies, and says what was done.
func (w *workspaces) applyTo(d *delta.Delta, o change.Options) error {
	guard, err := sandbox.Guard(d)
	if err != nil {
		return err
	}
	o.Guard = guard
	r, err := change.Apply(d, o)
	var conflict *change.Conflict
	if errors.As(err, &conflict) && o.Merge == change.Refuse {
		return fmt.Errorf("%w\n%s; to apply other files: bailey ws apply %s PATHS", err, adviseMerge(d.Record.Name, conflict.Clashes), d.Record.Name)
	}
	if err != nil {
		return err
	}
	if len(r.Applied) == 0 {
		w.say("there is nothing to apply")
		return nil
	}
	w.say("applied to " + d.Source() + ": " + count(change.Summarize(r.Applied)) + "; to undo it: bailey ws undo " + d.Record.Name)
	if len(r.Merged) > 0 {
		w.say("merged with changes of others: " + strings.Join(words(r.Merged), ", "))
	}
	if len(r.Marked) > 0 {
		w.say("with marks where both changed the same lines: " + strings.Join(words(r.Marked), ", "))
	}
	if len(r.Parted) > 0 {
		w.say("files of their own now, which were hard links to others before: " + strings.Join(words(r.Parted), ", "))
	}
	if len(r.Left) > 0 {
		w.say("left out, being sockets or devices: " + strings.Join(words(r.Left), ", "))
	}
	return nil
}

// adviseMerge says how to go on with files that others changed as well.
func adviseMerge(name string, clashes []change.Clash) string {
	var merge, other []string
	for _, c := range clashes {
		if c.Mergeable {
			merge = append(merge, plain.Word(c.Path))
		} else {
			other = append(other, plain.Word(c.Path))
		}
	}
	switch {
	case len(other) == 0:
		return "to merge texts: bailey ws apply --merge " + name
	case len(merge) > 0:
		return "to merge texts: bailey ws apply --merge " + name + " " + strings.Join(merge, " ")
	}
	return "nothing of it can be merged; to compare: bailey ws diff " + name + " " + strings.Join(other, " ")
}

func (w *workspaces) undo(args []string) error {
	d, err := w.open(args[0])
	if err != nil {
		return err
	}
	defer d.Close()
	u, err := change.Undo(d)
	if err != nil {
		return err
	}
	w.say(fmt.Sprintf("undone in %s: %d paths are as they were before", d.Source(), len(u.Paths)))
	if len(u.Alone) > 0 {
		w.say("but files of their own, which were hard links to others before: " + strings.Join(words(u.Alone), ", "))
	}
	return nil
}

// discard removes workspaces: all of them, or if one cannot be, none.
func (w *workspaces) discard(args []string) error {
	var list []*delta.Delta
	defer func() {
		for _, d := range list {
			d.Close()
		}
	}()
	slices.Sort(args)
	for _, name := range slices.Compact(args) {
		d, err := w.open(name)
		if err != nil {
			return err
		}
		list = append(list, d)
	}
	for _, d := range list {
		if err := d.Remove(); err != nil {
			return err
		}
	}
	s, err := workspace.Open(w.store)
	if err != nil {
		return err
	}
	_, err = s.Collect()
	return err
}

// engine opens the store with all that it can do, and makes sure that what is in
// a workspace is taken down and not half applied.
func (w *workspaces) engine(name string) (*workspace.Store, error) {
	d, err := w.open(name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	c, err := change.Remember(d)
	if err != nil {
		return nil, err
	}
	c.Close()
	return workspace.Open(w.store)
}

func (w *workspaces) snapshot(args []string) error {
	s, err := w.engine(args[0])
	if errors.Is(err, delta.ErrBusy) { // of a running one the delta is copied
		s, err = workspace.Open(w.store)
	}
	if err != nil {
		return err
	}
	n, err := s.Snapshot(args[0])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w.out, n.ID)
	return err
}

func (w *workspaces) snapshots(args []string) error {
	s, err := workspace.Open(w.store)
	if err != nil {
		return err
	}
	list, err := s.Snapshots(args[0])
	if err != nil {
		return err
	}
	for _, n := range list {
		if _, err := fmt.Fprintln(w.out, n.ID, n.Created.Local().Format("2006-01-02 15:04:05")); err != nil {
			return err
		}
	}
	return nil
}

func (w *workspaces) fork(args []string) error {
	s, err := w.engine(args[0])
	running := errors.Is(err, delta.ErrBusy) // of such the delta is copied
	if running {
		s, err = workspace.Open(w.store)
	}
	if err != nil {
		return err
	}
	snapshot := ""
	if len(args) > 2 {
		snapshot = args[2]
	}
	d, err := s.Fork(args[0], snapshot, delta.Options{Name: args[1]})
	if err != nil {
		return err
	}
	defer d.Close()
	from, err := w.store.Peek(args[0])
	if err != nil {
		return explain(err)
	}
	if err := change.Inherit(d, from); err != nil {
		return err
	}
	if running && snapshot == "" {
		if err := takeDown(d, from.Record.Started); err != nil {
			return err
		}
	}
	return d.Keep()
}

// takeDown notes the state of what a run that has not ended changed, in the
// directory that it lies on, as is otherwise done at its end: what is later than
// its beginning is somebody else's change.
func takeDown(d *delta.Delta, started time.Time) error {
	d.Record.Started = started
	c, err := change.Remember(d)
	if err != nil {
		return err
	}
	c.Close()
	return nil
}

func (w *workspaces) rollback(args []string) error {
	s, err := w.engine(args[0])
	if err != nil {
		return err
	}
	return s.Rollback(args[0], args[1])
}

func (w *workspaces) squash(args []string) error {
	s, err := w.engine(args[0])
	if err != nil {
		return err
	}
	return s.Squash(args[0])
}

func (w *workspaces) export(args []string) error {
	if isTerminal(w.out) {
		return errors.New("an archive is nothing for a terminal; bailey ws export " + args[0] + " > FILE.tar")
	}
	s, err := workspace.Open(w.store)
	if err != nil {
		return err
	}
	form, snapshot := archive.Plain, ""
	if w.has("--oci") {
		form = archive.OCI
	}
	if len(args) > 1 {
		snapshot = args[1]
	}
	return s.Export(w.out, args[0], snapshot, form)
}
