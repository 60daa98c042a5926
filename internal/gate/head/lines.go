package head

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
)

// lines reads a head line by line.
type lines struct {
	r      *bufio.Reader
	left   int  // bytes that may still come
	strict bool // of a request
}

var errTooLarge = &Error{http.StatusRequestHeaderFieldsTooLarge, "the head of the message is too large"}

// next returns a line without its end.
func (l *lines) next() (string, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if l.left -= len(part); l.left < 0 {
			return "", errTooLarge
		}
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) && len(line) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
	}
	text, crlf := strings.CutSuffix(string(line), "\r\n")
	if !crlf {
		if l.strict {
			return "", bad("a line does not end in CR LF")
		}
		text = strings.TrimSuffix(text, "\n")
	}
	// A lone CR ends a line for some readers.
	if strings.ContainsAny(text, "\r\x00") {
		return "", bad("control character in a line")
	}
	return text, nil
}

// fields reads up to the empty line.
func (l *lines) fields() (Fields, error) {
	var f Fields
	for {
		line, err := l.next()
		if err != nil || line == "" {
			return f, err
		}
		if line[0] == ' ' || line[0] == '\t' {
			if l.strict || len(f) == 0 {
				return nil, bad("folded line")
			}
			f[len(f)-1].Value += " " + strings.Trim(line, " \t")
			continue
		}
		if len(f) == maxFields {
			return nil, errTooLarge
		}
		field, err := l.field(line)
		if err != nil {
			return nil, err
		}
		f = append(f, field)
	}
}

func (l *lines) field(line string) (Field, error) {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !isToken(name) {
		return Field{}, bad("malformed field")
	}
	value = strings.Trim(value, " \t")
	if l.strict {
		for i := range len(value) {
			if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
				return Field{}, bad("control character in a field")
			}
		}
	}
	return Field{name, value}, nil
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// unexpected is for the end of the connection in the middle of a message.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
