package delta

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
)

// State says what a workspace is for, as it was written down last.
type State string

const (
	// Running: a sandbox uses it. If nobody holds its lock, that sandbox was
	// killed.
	Running State = "running"
	// Kept: it waits for its owner.
	Kept State = "kept"
	// DryRun: it is thrown away when its sandbox ends.
	DryRun State = "dry-run"
)

// Lower is one of the directories that a workspace lies on: a layer, or a
// directory of the host.
type Lower struct {
	Layer string // id of a layer
	Dir   string // absolute; only the lowest can be one
}

// Record is what is written down about a workspace.
type Record struct {
	Name    string
	Owner   int // user id
	Created time.Time
	Started time.Time // of the last run
	Target  string    // where it is seen inside
	State   State
	Stack   []Lower // top first
	Sealing string  // layer that the delta is just becoming
	// Base are the layers, top first, of what its changes are changes of; none where
	// that is what it lies on.
	Base []string
	// Source is the directory of the host, absolute and without links in it, that Base
	// was imported from; empty if it was imported from something else.
	Source string
	// InMemory says that what the sandbox that runs has written is not on the disk
	// before it ends.
	InMemory bool
	// Resetting says that the delta is just thrown away.
	Resetting bool
}

// unfinished says whether something was cut short.
func (r *Record) unfinished() bool { return r.Sealing != "" || r.Resetting }

// header names the form and its version. A record of a later version is refused:
// what it says could mean something else.
const header = "bailey workspace 1\n"

// append writes one line for each thing. Texts are quoted, since a path is any
// bytes.
func (r *Record) append(b []byte) []byte {
	b = append(b, header...)
	line := func(key, value string) { b = append(append(append(append(b, key...), ' '), value...), '\n') }
	line("name", r.Name)
	line("owner", strconv.Itoa(r.Owner))
	line("created", r.Created.UTC().Format(time.RFC3339Nano))
	if !r.Started.IsZero() {
		line("started", r.Started.UTC().Format(time.RFC3339Nano))
	}
	line("target", strconv.Quote(r.Target))
	line("state", string(r.State))
	if r.Sealing != "" {
		line("sealing", r.Sealing)
	}
	if r.Resetting {
		line("resetting", "")
	}
	if r.InMemory {
		line("in-memory", "")
	}
	for _, l := range r.Stack {
		if l.Layer != "" {
			line("layer", l.Layer)
		} else {
			line("dir", strconv.Quote(l.Dir))
		}
	}
	for _, id := range r.Base {
		line("base", id)
	}
	if r.Source != "" {
		line("source", strconv.Quote(r.Source))
	}
	return append(b, "end\n"...)
}

// parseRecord reads what append wrote. Every line must be known, and the last
// must be there: half a record is none.
func parseRecord(data []byte) (Record, error) {
	var r Record
	text, ok := strings.CutPrefix(string(data), header)
	if !ok {
		return r, errors.New("not a record of this version of Bailey")
	}
	if text, ok = strings.CutSuffix(text, "end\n"); !ok {
		return r, errors.New("the record ends too early")
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if err := r.set(key, value); err != nil {
			return r, fmt.Errorf("%s: %w", strconv.Quote(key), err)
		}
	}
	return r, r.check()
}

func (r *Record) set(key, value string) (err error) {
	switch key {
	case "name":
		r.Name = value
	case "owner":
		r.Owner, err = strconv.Atoi(value)
	case "created":
		r.Created, err = time.Parse(time.RFC3339Nano, value)
	case "started":
		r.Started, err = time.Parse(time.RFC3339Nano, value)
	case "target":
		r.Target, err = strconv.Unquote(value)
	case "state":
		r.State = State(value)
	case "sealing":
		r.Sealing = value
	case "resetting":
		r.Resetting = true
	case "in-memory":
		r.InMemory = true
	case "layer":
		r.Stack = append(r.Stack, Lower{Layer: value})
	case "base":
		r.Base = append(r.Base, value)
	case "source":
		r.Source, err = strconv.Unquote(value)
	case "dir":
		var dir string
		dir, err = strconv.Unquote(value)
		r.Stack = append(r.Stack, Lower{Dir: dir})
	default:
		err = errors.New("unknown line")
	}
	return err
}

// check refuses what could lead out of the place where workspaces are, or is
// nothing that could be mounted.
func (r *Record) check() error {
	if err := ValidName(r.Name); err != nil {
		return err
	}
	if r.State != Running && r.State != Kept && r.State != DryRun {
		return fmt.Errorf("unknown state %q", string(r.State))
	}
	if r.Sealing != "" && !ValidLayer(r.Sealing) {
		return fmt.Errorf("%q is no layer", r.Sealing)
	}
	if err := checkBase(r.Base); err != nil {
		return err
	}
	if r.Source != "" && !path.IsAbs(r.Source) {
		return fmt.Errorf("%q is not absolute", r.Source)
	}
	if r.Source != "" && len(r.Base) == 0 {
		return errors.New("a source without what was imported from it")
	}
	return checkStack(r.Stack)
}

func checkBase(base []string) error {
	for _, id := range base {
		if !ValidLayer(id) {
			return fmt.Errorf("%q is no layer", id)
		}
	}
	return nil
}

func checkStack(stack []Lower) error {
	if len(stack) == 0 {
		return errors.New("a workspace lies on something: a directory or layers")
	}
	for i, l := range stack {
		switch {
		case l.Layer != "" && l.Dir != "":
			return errors.New("a layer or a directory, not both")
		case l.Layer != "" && !ValidLayer(l.Layer):
			return fmt.Errorf("%q is no layer", l.Layer)
		case l.Layer == "" && !path.IsAbs(l.Dir):
			return fmt.Errorf("%q is not absolute", l.Dir)
		case l.Layer == "" && i != len(stack)-1:
			return errors.New("only the lowest can be a directory")
		}
	}
	return nil
}

// ValidName refuses names of workspaces and codebases that are not easily typed,
// or mean something to a file system.
func ValidName(name string) error {
	if name == "" || len(name) > 64 {
		return fmt.Errorf("%q: a name has 1 to 64 letters", name)
	}
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			continue
		}
		if i > 0 && (c == '-' || c == '_' || c == '.') {
			continue
		}
		return fmt.Errorf("%q: a name begins with a letter or digit, and goes on with those, dots, hyphens and underscores", name)
	}
	return nil
}

// ValidLayer says whether a text is the id of a layer: lower case letters, digits
// and, between them, hyphens.
func ValidLayer(id string) bool {
	if id == "" || len(id) > 80 || id[0] == '-' {
		return false
	}
	for i := range len(id) {
		if c := id[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
