package change

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"znkr.io/diff/textdiff"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

const (
	// maxText is the size up to which the lines of a file are compared.
	maxText = 4 << 20
	// sniffed is how much of a file says whether it is text.
	sniffed = 8000
)

// side is one version of a file as git sees it: a link's text is its content.
type side struct {
	mode string // as git writes it; empty if there is nothing
	data []byte
}

func (s *side) isText() bool { return isText(s.data) }

// isText takes a file for text as git does: no NUL byte at its beginning, and not
// too large.
func isText(data []byte) bool {
	return len(data) <= maxText && bytes.IndexByte(data[:min(len(data), sniffed)], 0) < 0
}

// opener reads the content of one side of a change, which fails with errLarge
// where that is larger than most.
type opener interface {
	read(c *Change, e *Entry, most int64) ([]byte, error)
}

// errLarge is the error of reading a file that is larger than the reader takes.
var errLarge = errors.New("too large")

// sidesOf reads both sides.
func sidesOf(from opener, c *Change, most int64) (old, now side, err error) {
	if old, err = sideOf(from, c, c.Old, most); err == nil {
		now, err = sideOf(from, c, c.New, most)
	}
	return old, now, err
}

// sideOf reads one side. Of directories, pipes and sockets git knows nothing, and
// where only the mode differs the content does not matter.
func sideOf(from opener, c *Change, e *Entry, most int64) (s side, err error) {
	if e == nil {
		return s, nil
	}
	switch e.Type {
	case File:
		s.mode = "100644"
		if e.Mode&0o100 != 0 {
			s.mode = "100755"
		}
		if c.Kind != Mode {
			s.data, err = from.read(c, e, most)
		}
	case Link:
		s.mode, s.data = "120000", []byte(e.Target)
	}
	return s, err
}

// inGit says whether a path lies in a repository, whose files are not shown line
// by line and are no part of a patch.
func inGit(p string) bool {
	return slices.Contains(strings.Split(path.Dir(p), "/"), ".git") || path.Base(p) == ".git"
}

// letters are how a listing marks each kind.
var letters = map[Kind]string{Added: "A", Changed: "M", Deleted: "D", Mode: "m", Symlink: "L", Type: "T"}

// WriteList writes one line for each change. Names are safe to be shown, and
// quoted where they could be taken for something else.
func WriteList(w io.Writer, list []Change) error {
	var b strings.Builder
	for i := range list {
		c := &list[i]
		b.WriteString(letters[c.Kind] + " " + plain.Word(c.Path))
		switch {
		case c.entry().Type == Dir:
			b.WriteString("/")
		case c.New != nil && c.New.Type == Link:
			b.WriteString(" -> " + plain.Word(c.New.Target))
		}
		if c.Kind == Mode {
			fmt.Fprintf(&b, " %04o -> %04o", c.Old.Mode, c.New.Mode)
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func unified(from opener, c *Change) ([]byte, error) {
	var head bytes.Buffer
	head.WriteString(describe(c) + "\n")
	if inGit(c.Path) || c.Kind == Mode || isHollow(c.Old) && isHollow(c.New) {
		return head.Bytes(), nil
	}
	old, now, err := sidesOf(from, c, maxText)
	if errors.Is(err, errLarge) {
		head.WriteString("  too large to be shown line by line\n")
		return head.Bytes(), nil
	}
	if err != nil {
		return nil, err
	}
	if !old.isText() || !now.isText() {
		head.WriteString("  binary\n")
		return head.Bytes(), nil
	}
	writeHunks(&head, c.Path, &old, &now)
	return head.Bytes(), nil
}

// isHollow says whether a side has no content of its own.
func isHollow(e *Entry) bool { return e == nil || e.Type != File && e.Type != Link }

func describe(c *Change) string {
	text := string(c.Kind) + " " + plain.Word(c.Path)
	switch {
	case c.Kind == Mode:
		text += fmt.Sprintf(" (%04o to %04o)", c.Old.Mode, c.New.Mode)
	case c.Kind == Type:
		text += " (" + string(c.Old.Type) + " to " + string(c.New.Type) + ")"
	case c.entry().Type != File:
		text += " (" + string(c.entry().Type) + ")"
	}
	return text
}

// writeHunks writes the lines that differ, as diff -u and git do.
func writeHunks(b *bytes.Buffer, p string, old, now *side) {
	hunks := textdiff.Unified(old.data, now.data)
	if len(hunks) == 0 {
		return
	}
	name := func(prefix, mode string) string {
		if mode == "" {
			return "/dev/null"
		}
		text := gitName(prefix + p)
		if strings.ContainsAny(text, " \t") && text[0] != '"' {
			text += "\t" // so ends a name with blanks in it
		}
		return text
	}
	b.WriteString("--- " + name("a/", old.mode) + "\n+++ " + name("b/", now.mode) + "\n")
	// Lines of a file without any are counted from 0.
	if len(old.data) == 0 {
		hunks = bytes.Replace(hunks, []byte("@@ -1,0 "), []byte("@@ -0,0 "), 1)
	}
	if len(now.data) == 0 {
		hunks = bytes.Replace(hunks, []byte(" +1,0 @@"), []byte(" +0,0 @@"), 1)
	}
	b.Write(hunks)
}

// harmless escapes what could drive a terminal, line by line.
func harmless(text []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(text) {
		cut, ended := bytes.CutSuffix(line, []byte("\n"))
		b.WriteString(plain.Text(string(cut)))
		if ended {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}
