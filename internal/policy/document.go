package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"

	"github.com/tailscale/hujson"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// Document is a file in JSON with comments and trailing commas that was read
// and not yet understood. A policy is one, and so is what other tools are
// configured with: both are read by the same decoder, with the same errors.
type Document struct {
	decoder
	value hujson.Value
}

// ReadDocument reads the syntax of a file. An error is a *Error that names the
// place; name stands for the file in it.
func ReadDocument(name string, data []byte) (*Document, error) {
	doc := &Document{decoder: decoder{name: name, data: data, origins: make(Origins, bytes.Count(data, []byte(`"`))/2)}}
	if err := doc.checkBytes(); err != nil {
		return nil, err
	}
	if !bytes.HasSuffix(data, []byte("\n")) {
		// The parser wants one after a comment.
		data = append(data[:len(data):len(data)], '\n')
	}
	var err error
	if doc.value, err = hujson.Parse(data); err != nil {
		return nil, doc.syntaxError(err)
	}
	return doc, nil
}

// Name is the file's.
func (doc *Document) Name() string { return doc.name }

// Root is the document as a tree, to be looked at before it is decoded. Its
// values may be taken out or replaced.
func (doc *Document) Root() *hujson.Value { return &doc.value }

// Decode fills the struct that into points to, whose tags are those of Policy,
// and says where each entry stands. A field of the type hujson.Value takes any
// value as it is.
func (doc *Document) Decode(into any) (Origins, error) {
	to := reflect.ValueOf(into).Elem()
	doc.schema = to.Type()
	if err := doc.decode(to, doc.value, field{}); err != nil {
		return nil, err
	}
	return doc.origins, nil
}

// Text returns the string that a literal of the document stands for, and false
// if it is none.
func (doc *Document) Text(v hujson.Value) (string, bool) {
	if v.Value.Kind() != '"' {
		return "", false
	}
	s, err := doc.text(v)
	return s, err == nil
}

// Pos is the place of a value of the document.
func (doc *Document) Pos(v hujson.Value) Pos { return doc.pos(v.StartOffset) }

// Errorf is an error about a place in a file.
func (p Pos) Errorf(format string, args ...any) *Error {
	return &Error{File: p.File, Line: p.Line, Column: p.Column, Msg: fmt.Sprintf(format, args...)}
}

// Valid says what is wrong with a string, for the kind of syntax that a check
// tag names.
func Valid(kind, s string) error { return check(kind, s) }

// OpenDocument reads a file by its real path. Anything but a regular file is
// refused.
func OpenDocument(path string) (*Document, error) {
	real, err := realPath(path)
	if err != nil {
		return nil, err
	}
	data, _, err := readFile(real)
	if err != nil {
		return nil, err
	}
	return ReadDocument(real, data)
}

// realPath is path without symbolic links. Its errors name the file, which those of
// the standard library do not for links that lead to each other.
func realPath(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	var named *fs.PathError
	if err != nil && !errors.As(err, &named) {
		return "", fmt.Errorf("%s: its symbolic links lead nowhere: too many of them; name the file itself", plain.Text(path))
	}
	return real, err
}
