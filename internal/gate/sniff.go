package gate

import (
	"bytes"
	"errors"
	"io"

	"github.com/bailey-sandbox/bailey/internal/gate/hello"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
)

// speech is what a client speaks on a connection, told by its first bytes.
type speech int

const (
	speechNone speech = iota // it ended without a word
	speechTLS
	speechSSH
	speechHTTP1
	speechHTTP2
	speechOther
)

// scheme is what rules call it. Of a client that says nothing everything can be
// said.
func (s speech) scheme() rules.Scheme {
	switch s {
	case speechTLS:
		return rules.HTTPS
	case speechSSH:
		return rules.SSH
	case speechHTTP1, speechHTTP2:
		return rules.HTTP
	}
	return rules.TCP
}

// tlsHandshake is how a client of TLS begins.
const tlsHandshake = 22

// maxFirstLine bounds the line by which HTTP is told.
const maxFirstLine = 8 << 10

// sniff waits for a client to speak, and tells what. What was said stays to be
// read. Whoever wants to be taken for something else than what the server will
// take it for has to be caught here: in doubt it is HTTP, which is then read
// strictly.
func sniff(w *wire) (speech, hello.Hello, error) {
	b, err := w.peek(1)
	switch {
	case errors.Is(err, io.EOF):
		return speechNone, hello.Hello{}, nil
	case err != nil:
		return speechNone, hello.Hello{}, err
	}
	if b[0] == tlsHandshake {
		return sniffTLS(w)
	}
	said, err := sniffLine(w)
	return said, hello.Hello{}, err
}

func sniffTLS(w *wire) (speech, hello.Hello, error) {
	b, err := w.peek(3)
	switch {
	case errors.Is(err, io.EOF), err == nil && !hello.Begins(b):
		return speechOther, hello.Hello{}, nil
	case err != nil:
		return speechNone, hello.Hello{}, err
	}
	for {
		h, err := hello.Parse(b)
		var more *hello.Incomplete
		if !errors.As(err, &more) {
			return speechTLS, h, err
		}
		if b, err = w.peek(more.Need); err != nil {
			return speechTLS, hello.Hello{}, err
		}
	}
}

// sniffLine tells HTTP by the first line, which names it. The line has to be
// whole to be told from those of other protocols.
func sniffLine(w *wire) (speech, error) {
	for n := 1; ; {
		b, err := w.peek(n)
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return speechNone, err
		}
		line, _, whole := bytes.Cut(b, []byte("\n"))
		switch {
		case bytes.HasPrefix(b, []byte("SSH-")):
			return speechSSH, nil
		case !mayBeRequest(line):
			return speechOther, nil
		case len(line) > maxFirstLine:
			return speechHTTP1, nil
		case whole || ended:
			return nameOfLine(line), nil
		}
		n = len(b) + 1
	}
}

// isHalfALine says whether this may become the first line of a request: a word and
// a blank have come.
func isHalfALine(b []byte) bool {
	return bytes.IndexByte(b, ' ') > 0 && mayBeRequest(b)
}

func nameOfLine(line []byte) speech {
	switch {
	case bytes.HasPrefix(line, []byte("PRI * HTTP/2")):
		return speechHTTP2
	case bytes.Contains(bytes.ToUpper(line), []byte("HTTP/")), len(bytes.TrimSpace(line)) == 0:
		return speechHTTP1
	}
	return speechOther
}

// mayBeRequest says whether a line may be the first of a request: it begins with
// a word and a blank, or is empty. A blank is whatever some server splits lines
// at; Python's does at 0x1c and 0x85.
func mayBeRequest(line []byte) bool {
	const longestWord = 32
	for i, c := range line {
		switch {
		case c == ' ', c >= '\t' && c <= '\r', c >= 0x1c && c <= 0x1f, c == 0x85, c == 0xa0, c == 0xc2:
			return true
		case c <= ' ' || c >= 0x7f || i > longestWord:
			return false
		}
	}
	return true
}
