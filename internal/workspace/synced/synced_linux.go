package synced

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// calls are those that change files or names, or have the disk keep them.
const calls = "openat,write,pwrite64,writev,copy_file_range,sendfile,ftruncate,fallocate,ioctl," +
	"mkdirat,symlinkat,linkat,unlinkat,renameat,renameat2,fsync,fdatasync,syncfs"

// Run runs a program under strace and returns the trace. What the program writes to
// standard output is part of it.
func Run(command *exec.Cmd) (*Trace, error) {
	file, err := os.CreateTemp("", "trace")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	path, err := exec.LookPath("strace")
	if err != nil {
		return nil, err
	}
	command.Args = slices.Concat([]string{path, "-f", "-y", "-qq", "-s", "64", "-e", "signal=none", "-e", "trace=" + calls, "-o", file.Name(), command.Path}, command.Args[1:])
	command.Path = path
	if out, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return Parse(file)
}

// Trace is what a process did, in order.
type Trace struct{ calls []call }

// call is one that has succeeded.
type call struct {
	name string
	args string
	line string
}

var (
	lineForm    = regexp.MustCompile(`^(\d+) +(.*)$`)
	resumedForm = regexp.MustCompile(`^<\.\.\. \w+ resumed>(.*)$`)
	callForm    = regexp.MustCompile(`^(\w+)\((.*)\) += (\d+)`)
	fileForm    = regexp.MustCompile(`(?:AT_FDCWD|\d+)<([^>]*)>(?:, "((?:[^"\\]|\\.)*)")?`)
	textForm    = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)
)

// Parse reads what strace wrote.
func Parse(r io.Reader) (*Trace, error) {
	t := &Trace{}
	begun := map[string]string{} // by thread, what has not returned yet
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := lineForm.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		thread, text := m[1], m[2]
		if rest := resumedForm.FindStringSubmatch(text); rest != nil {
			text = begun[thread] + rest[1]
		} else if start, ok := strings.CutSuffix(text, "<unfinished ...>"); ok {
			begun[thread] = strings.TrimRight(start, " ")
			continue
		}
		if c := callForm.FindStringSubmatch(text); c != nil {
			t.calls = append(t.calls, call{c[1], c[2], text})
		}
	}
	return t, lines.Err()
}

// files are those that a call names: by descriptor, or by directory and name.
func (c *call) files() (all []string) {
	for _, m := range fileForm.FindAllStringSubmatch(c.args, -1) {
		switch {
		case m[2] == "":
			all = append(all, m[1])
		case filepath.IsAbs(m[2]):
			all = append(all, filepath.Clean(m[2]))
		default:
			all = append(all, filepath.Join(m[1], m[2]))
		}
	}
	return all
}

// opened is by descriptor what a call is about. Behind it may stand a text that is no
// name, as what is written is.
func (c *call) opened() string {
	if m := fileForm.FindStringSubmatch(c.args); m != nil {
		return m[1]
	}
	return ""
}

// Early lists what was given its name below a directory before it was on the disk: files
// that were renamed, what is in directories that were, and files beside the new name,
// which often say what it is. What is spared need not be.
func (t *Trace) Early(dir string, spared func(name string) bool) []string {
	d := newDisk(dir)
	d.spared = spared
	for i := range t.calls {
		d.follow(&t.calls[i])
	}
	return d.early
}

// Pending lists what was not on the disk when the process wrote a text to standard
// output: contents, and directories in which there are other names.
func (t *Trace) Pending(dir, text string) ([]string, error) {
	return t.pendingAt(dir, func(c *call) bool {
		return c.name == "write" && strings.HasPrefix(c.args, "1<") && textOf(c.args) == text
	})
}

// PendingAtName lists what was not on the disk when something was renamed to a path.
func (t *Trace) PendingAtName(dir, name string) ([]string, error) {
	return t.pendingAt(dir, func(c *call) bool {
		return strings.HasPrefix(c.name, "renameat") && c.files()[1] == name
	})
}

// PendingAtRemoval lists what was not on the disk when a path was removed.
func (t *Trace) PendingAtRemoval(dir, name string) ([]string, error) {
	return t.pendingAt(dir, func(c *call) bool { return c.name == "unlinkat" && c.files()[0] == name })
}

func (t *Trace) pendingAt(dir string, is func(*call) bool) ([]string, error) {
	d := newDisk(dir)
	for i := range t.calls {
		if is(&t.calls[i]) {
			return d.pending(), nil
		}
		d.follow(&t.calls[i])
	}
	return nil, errors.New("that did not happen")
}

func textOf(args string) string {
	m := textForm.FindStringSubmatch(args)
	if m == nil {
		return ""
	}
	return strings.ReplaceAll(m[1], `\n`, "\n")
}

// disk knows what is not on it.
type disk struct {
	dir      string
	contents map[string]bool // files that were written
	names    map[string]bool // directories in which names were made, changed or removed
	spared   func(name string) bool
	early    []string
}

func newDisk(dir string) *disk {
	return &disk{dir: dir, contents: map[string]bool{}, names: map[string]bool{}}
}

func (d *disk) isOurs(name string) bool { return strings.HasPrefix(name, d.dir+"/") }

func (d *disk) follow(c *call) {
	files := c.files()
	switch c.name {
	case "syncfs":
		clear(d.contents)
		clear(d.names)
	case "fsync", "fdatasync":
		delete(d.contents, c.opened())
		delete(d.names, c.opened())
	case "write", "pwrite64", "writev", "ftruncate", "fallocate":
		d.written(c.opened())
	case "copy_file_range":
		d.written(files[len(files)-1])
	case "sendfile":
		d.written(c.opened())
	case "ioctl":
		if strings.Contains(c.args, "FICLONE") {
			d.written(c.opened())
		}
	case "openat":
		if strings.Contains(c.args, "O_CREAT") {
			d.named(files[0])
		}
	case "mkdirat", "unlinkat":
		d.named(files[0])
	case "symlinkat", "linkat":
		d.named(files[len(files)-1])
	case "renameat", "renameat2":
		d.renamed(files[0], files[1], strings.Contains(c.args, "RENAME_EXCHANGE"), c.line)
	}
}

func (d *disk) written(name string) {
	if d.isOurs(name) {
		d.contents[name] = true
	}
}

func (d *disk) named(name string) {
	if d.isOurs(name) {
		d.names[filepath.Dir(name)] = true
	}
}

// renamed is about one name, or two that change places.
func (d *disk) renamed(from, to string, exchanged bool, line string) {
	if !d.isOurs(from) && !d.isOurs(to) {
		return
	}
	if d.spared != nil && !d.spared(to) {
		d.judge(from, line)
		if exchanged {
			d.judge(to, line)
		}
		d.judgeBeside(from, to, line)
	}
	for _, set := range []map[string]bool{d.contents, d.names} {
		moveBelow(set, from, to, exchanged)
	}
	d.named(from)
	d.named(to)
}

func (d *disk) judge(name, line string) {
	for _, set := range []map[string]bool{d.contents, d.names} {
		for pending := range set {
			if pending == name || strings.HasPrefix(pending, name+"/") {
				d.early = append(d.early, pending+" was not on the disk before "+line)
			}
		}
	}
}

func (d *disk) judgeBeside(from, to, line string) {
	for pending := range d.contents {
		if filepath.Dir(pending) == filepath.Dir(to) && pending != from && pending != to && !d.spared(pending) {
			d.early = append(d.early, pending+" was not on the disk before "+line)
		}
	}
}

// moveBelow gives what is noted of a path its new name.
func moveBelow(set map[string]bool, from, to string, exchanged bool) {
	moved := map[string]bool{}
	for name := range set {
		switch {
		case name == from || strings.HasPrefix(name, from+"/"):
			moved[to+name[len(from):]] = true
		case name == to || strings.HasPrefix(name, to+"/"):
			if exchanged {
				moved[from+name[len(to):]] = true
			}
		default:
			continue
		}
		delete(set, name)
	}
	for name := range moved {
		set[name] = true
	}
}

func (d *disk) pending() (all []string) {
	for _, set := range []map[string]bool{d.contents, d.names} {
		for name := range set {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}
