package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/columns"
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/workspace"
	"github.com/bailey-sandbox/bailey/internal/workspace/archive"
	"github.com/bailey-sandbox/bailey/internal/workspace/blob"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// codebases carries out "bailey codebase".
type codebases struct {
	store    *workspace.Store
	in       io.Reader
	out, err io.Writer
	flags    map[string]string
	given    []string // the flags as people write them, without values
}

// codebaseFlags are those that the words after "codebase" take.
var codebaseFlags = uses{
	"import": {"--gitignore", "--git", "--revision", "--base", "--oci"},
	"list":   {"--json"},
	"export": {"--oci"},
}

// sourceFlags are those of import that each kind of source takes.
var sourceFlags = map[string][]string{
	fromGit:       {"--git", "--revision"},
	fromArchive:   {"--base", "--oci"},
	fromDirectory: {"--gitignore"},
}

const (
	fromGit       = "a git repository"
	fromArchive   = "an archive"
	fromDirectory = "a directory"
)

// runCodebases does what the words after "codebase" ask for, and returns the exit
// status.
func runCodebases(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	c := &codebases{in: stdin, out: stdout, err: stderr, flags: make(map[string]string)}
	var words []string
	for i, a := range args {
		if a == "--" {
			words = append(words, args[i+1:]...)
			break
		}
		if name, ok := strings.CutPrefix(a, "--"); ok {
			name, value, _ := strings.Cut(name, "=")
			c.flags[name] = value
			c.given = append(c.given, "--"+name)
		} else {
			words = append(words, a)
		}
	}
	if err := c.run(words); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			_, _ = fmt.Fprintln(stderr, "bailey: "+plain.Text(line))
		}
		return exitOwn
	}
	return 0
}

func (c *codebases) run(words []string) error {
	verbs := map[string]struct {
		least, most int
		do          func(words []string) error
	}{
		"import": {2, 2, c.importFrom},
		"list":   {0, 0, c.list},
		"remove": {1, -1, c.remove},
		"start":  {2, 3, c.start},
		"save":   {3, 3, c.save},
		"export": {1, 1, c.export},
		"push":   {2, 2, c.push},
		"pull":   {2, 2, c.pull},
	}
	usage := errors.New("usage: bailey codebase import NAME SOURCE | list | remove NAME… | start NAME WORKSPACE [DIR] | save WORKSPACE SNAPSHOT NAME | export NAME | push NAME STORE | pull NAME STORE")
	if len(words) == 0 {
		return usage
	}
	v, ok := verbs[words[0]]
	if n := len(words) - 1; !ok || n < v.least || v.most >= 0 && n > v.most {
		return usage
	}
	if err := codebaseFlags.fit("codebase", words[0], c.given); err != nil {
		return err
	}
	home, _ := os.UserHomeDir() // Place says if it is missed
	place, err := delta.Place(home)
	if err != nil {
		return err
	}
	if c.store, err = workspace.Open(place); err != nil {
		return err
	}
	return v.do(words[1:])
}

func (c *codebases) has(flag string) bool {
	_, ok := c.flags[flag]
	return ok
}

// importFrom makes a codebase of whatever the source is.
func (c *codebases) importFrom(words []string) error {
	name, source := words[0], words[1]
	show := c.progress()
	defer show.end()
	o := workspace.ImportOptions{
		Name: name, Progress: show.tell, GitIgnore: c.has("gitignore"),
		Left: func(path, why string) { show.note(plain.Text(path) + " was left out: it is " + why) },
	}
	made, err := c.importSource(source, o)
	if err != nil {
		return err
	}
	show.end()
	l, err := c.store.Layer(made.Layers[0])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.err, "bailey: codebase %s: %d files, %s\n", name, l.Files, columns.Size(l.Bytes))
	return err
}

func (c *codebases) importSource(source string, o workspace.ImportOptions) (workspace.Codebase, error) {
	if c.has("git") || workspace.IsAddress(source) {
		if err := c.fitSource(source, fromGit); err != nil {
			return workspace.Codebase{}, err
		}
		bailey := host.Beside("bailey")
		if bailey == "" {
			return workspace.Codebase{}, errors.New("the program bailey is missing beside baileyd; git runs in its sandboxes")
		}
		return c.store.ImportGit(bailey, source, c.flags["revision"], o)
	}
	if source == "-" {
		o.Source = "standard input"
		return c.importArchive(c.in, o.Source, o)
	}
	st, err := os.Stat(source)
	if err != nil {
		return workspace.Codebase{}, err
	}
	if st.IsDir() {
		if err := c.fitSource(source, fromDirectory); err != nil {
			return workspace.Codebase{}, err
		}
		return c.store.ImportDirectory(source, o)
	}
	f, err := os.Open(source)
	if err != nil {
		return workspace.Codebase{}, err
	}
	defer f.Close()
	if o.Source, err = filepath.Abs(source); err != nil {
		return workspace.Codebase{}, err
	}
	return c.importArchive(f, source, o)
}

// fitSource refuses flags that are for sources of another kind.
func (c *codebases) fitSource(source, kind string) error {
	for _, flag := range c.given {
		if slices.Contains(sourceFlags[kind], flag) {
			continue
		}
		for other, flags := range sourceFlags {
			if slices.Contains(flags, flag) {
				return fmt.Errorf("%s is for the import of %s, and %s is taken for %s%s", flag, other, plain.Word(source), kind, hint(kind, other))
			}
		}
	}
	return nil
}

// hint says how a directory is taken for a repository.
func hint(kind, other string) string {
	if kind == fromDirectory && other == fromGit {
		return "; with --git a commit of it is imported"
	}
	return ""
}

func (c *codebases) importArchive(r io.Reader, source string, o workspace.ImportOptions) (workspace.Codebase, error) {
	if err := c.fitSource(source, fromArchive); err != nil {
		return workspace.Codebase{}, err
	}
	if base := c.flags["base"]; base != "" {
		return c.store.ImportLayer(r, base, o)
	}
	if c.has("oci") {
		o.Form = archive.OCI
	}
	return c.store.ImportArchive(r, o)
}

func (c *codebases) list([]string) error {
	list, err := c.store.Codebases()
	if err != nil {
		return err
	}
	if c.has("json") {
		if list == nil {
			list = []workspace.Codebase{}
		}
		return json.NewEncoder(c.out).Encode(list)
	}
	rows := [][]string{{"NAME", "LAYERS", "FILES", "SIZE", "AGE", "SOURCE"}}
	for _, b := range list {
		var files, size int64
		for _, id := range b.Layers {
			if l, err := c.store.Layer(id); err == nil {
				files, size = files+l.Files, size+l.Bytes
			}
		}
		rows = append(rows, []string{
			b.Name, fmt.Sprint(len(b.Layers)), fmt.Sprint(files), columns.Size(size), columns.Brief(time.Since(b.Created)), plain.Text(b.Source),
		})
	}
	for _, line := range columns.Align(rows) {
		if _, err := fmt.Fprintln(c.out, line); err != nil {
			return err
		}
	}
	return nil
}

// remove removes codebases: all of them, or if there is not such a one, none.
func (c *codebases) remove(names []string) error {
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		if _, err := c.store.Codebase(name); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := c.store.RemoveCodebase(name); err != nil {
			return err
		}
	}
	return nil
}

// start makes a workspace on a codebase, which is seen where the directory is.
func (c *codebases) start(words []string) error {
	target := "."
	if len(words) > 2 {
		target = words[2]
	}
	target, err := filepath.Abs(target)
	if err == nil {
		target, err = filepath.EvalSymlinks(target)
	}
	if err != nil {
		return err
	}
	d, err := c.store.Start(words[0], delta.Options{Name: words[1], Target: target})
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Keep()
}

func (c *codebases) save(words []string) error {
	_, err := c.store.MakeCodebase(words[0], words[1], words[2])
	return err
}

func (c *codebases) export(words []string) error {
	if isTerminal(c.out) {
		return errors.New("an archive is nothing for a terminal; bailey codebase export " + words[0] + " > FILE.tar")
	}
	form := archive.Plain
	if c.has("oci") {
		form = archive.OCI
	}
	return c.store.ExportCodebase(c.out, words[0], form)
}

func (c *codebases) push(words []string) error {
	shared, err := blob.Open(words[1])
	if err != nil {
		return err
	}
	return c.store.Push(context.Background(), shared, words[0])
}

func (c *codebases) pull(words []string) error {
	shared, err := blob.Open(words[1])
	if err != nil {
		return err
	}
	show := c.progress()
	defer show.end()
	_, err = c.store.Pull(context.Background(), shared, words[0], workspace.ImportOptions{Progress: show.tell})
	return err
}

// progress shows on a terminal how far an import is, four times a second.
type progress struct {
	to    io.Writer // nil if nobody looks
	out   io.Writer
	shown time.Time
}

func (c *codebases) progress() *progress {
	p := &progress{out: c.err}
	if isTerminal(c.err) {
		p.to = c.err
	}
	return p
}

func (p *progress) tell(files, bytes int64) {
	if p.to == nil || time.Since(p.shown) < time.Second/4 {
		return
	}
	p.shown = time.Now()
	_, _ = fmt.Fprintf(p.to, "\r\x1b[K%d files, %s", files, columns.Size(bytes))
}

func (p *progress) note(text string) {
	p.end()
	_, _ = fmt.Fprintln(p.out, "bailey: "+text)
}

// end takes the line away again.
func (p *progress) end() {
	if p.to != nil && !p.shown.IsZero() {
		_, _ = io.WriteString(p.to, "\r\x1b[K")
		p.shown = time.Time{}
	}
}
