// Package head reads the heads of HTTP/1 messages. Package net/http takes what
// many clients get wrong (bare line feeds, folded lines, a length given twice),
// and hands on something tidy; a gate that stands between a client it does not
// trust and a server that may read the same bytes otherwise must not guess. So a
// request is refused unless it can be read in one way only. Answers come from
// servers that were allowed, and are taken a little more kindly.
//
// Fields keep their order and spelling, so that what passes the gate is what was
// sent.
package head

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Field is one line of a head.
type Field struct {
	Name, Value string
}

// Fields are the lines of a head, in order.
type Fields []Field

// Get returns the value of the first field of this name.
func (f Fields) Get(name string) (string, bool) {
	for i := range f {
		if strings.EqualFold(f[i].Name, name) {
			return f[i].Value, true
		}
	}
	return "", false
}

// All returns the values of every field of this name.
func (f Fields) All(name string) []string {
	var out []string
	for i := range f {
		if strings.EqualFold(f[i].Name, name) {
			out = append(out, f[i].Value)
		}
	}
	return out
}

// Without returns the fields whose names drop does not choose.
func (f Fields) Without(drop func(name string) bool) Fields {
	out := make(Fields, 0, len(f))
	for _, field := range f {
		if !drop(field.Name) {
			out = append(out, field)
		}
	}
	return out
}

// Append appends the lines as they are sent, without the empty line.
func (f Fields) Append(b []byte) []byte {
	for i := range f {
		b = append(b, f[i].Name...)
		b = append(b, ": "...)
		b = append(b, f[i].Value...)
		b = append(b, "\r\n"...)
	}
	return b
}

// Has says whether a field that lists words, such as Connection, has this one.
func (f Fields) Has(name, word string) bool {
	for _, value := range f.All(name) {
		for entry := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.Trim(entry, " \t"), word) {
				return true
			}
		}
	}
	return false
}

// Length of a body that is not a number of bytes.
const (
	Chunked  = -1 // in chunks
	ToTheEnd = -2 // as long as the connection, of an answer only
)

// Request is the head of a request.
type Request struct {
	Method string
	Target string // as sent
	Minor  int    // of HTTP/1.x
	Fields Fields
	Length int64 // of the body, or Chunked
}

// Response is the head of an answer.
type Response struct {
	Status int
	Reason string
	Minor  int
	Fields Fields
	Length int64 // of the body, Chunked or ToTheEnd
}

// Error is a message that cannot be taken, with the status to answer.
type Error struct {
	Status int
	Text   string
}

func (e *Error) Error() string { return e.Text }

func bad(text string) error { return &Error{http.StatusBadRequest, text} }

const maxFields = 1000

// ReadRequest reads the head of a request of at most this many bytes. An empty
// line in front of it is passed over, since some clients end a body with one. At
// the end of the connection the error is io.EOF.
func ReadRequest(r *bufio.Reader, most int) (*Request, error) {
	l := lines{r: r, left: most, strict: true}
	first, err := l.next()
	if err == nil && first == "" {
		first, err = l.next()
	}
	if err != nil {
		return nil, err
	}
	q, err := parseRequestLine(first)
	if err != nil {
		return nil, err
	}
	if q.Fields, err = l.fields(); err != nil {
		return nil, unexpected(err)
	}
	return q, q.check()
}

func parseRequestLine(line string) (*Request, error) {
	method, rest, ok1 := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	if !ok1 || !ok2 || !isToken(method) || target == "" {
		return nil, bad("malformed request line")
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == 0x7f || c == '#' {
			return nil, bad("malformed request target")
		}
	}
	q := &Request{Method: method, Target: target}
	switch version {
	case "HTTP/1.1":
		q.Minor = 1
	case "HTTP/1.0":
	default:
		if !strings.HasPrefix(version, "HTTP/") {
			return nil, bad("malformed request line")
		}
		return nil, &Error{http.StatusHTTPVersionNotSupported, "only HTTP/1.0 and HTTP/1.1 are spoken here"}
	}
	return q, nil
}

// check holds what must be so for the request to have one meaning.
func (q *Request) check() error {
	hosts := q.Fields.All("Host")
	if len(hosts) > 1 || len(hosts) == 0 && q.Minor == 1 {
		return bad("want exactly one Host")
	}
	length, err := bodyLength(q.Fields)
	if err != nil {
		return err
	}
	if length == Chunked && q.Minor == 0 {
		return bad("HTTP/1.0 has no Transfer-Encoding")
	}
	if length != ToTheEnd { // a request that gives no length has no body
		q.Length = length
	}
	return nil
}

// bodyLength is what the fields say about a body, ToTheEnd if they say nothing.
func bodyLength(f Fields) (int64, error) {
	lengths, codings := f.All("Content-Length"), f.All("Transfer-Encoding")
	switch {
	case len(codings) > 0 && len(lengths) > 0:
		return 0, bad("both Content-Length and Transfer-Encoding")
	case len(codings) == 1 && strings.EqualFold(codings[0], "chunked"):
		return Chunked, nil
	case len(codings) > 0:
		return 0, &Error{http.StatusNotImplemented, "the only Transfer-Encoding known here is chunked"}
	case len(lengths) == 0:
		return ToTheEnd, nil
	case len(lengths) > 1:
		return 0, bad("more than one Content-Length")
	}
	n, err := strconv.ParseInt(lengths[0], 10, 64)
	if err != nil || strings.Trim(lengths[0], "0123456789") != "" {
		return 0, bad("malformed Content-Length")
	}
	return n, nil
}

// ReadResponse reads the head of the answer to a request with this method.
func ReadResponse(r *bufio.Reader, most int, method string) (*Response, error) {
	l := lines{r: r, left: most}
	first, err := l.next()
	if err != nil {
		return nil, unexpected(err)
	}
	p, err := parseStatusLine(first)
	if err != nil {
		return nil, err
	}
	if p.Fields, err = l.fields(); err != nil {
		return nil, unexpected(err)
	}
	return p, p.frame(method)
}

func parseStatusLine(line string) (*Response, error) {
	version, rest, _ := strings.Cut(line, " ")
	code, reason, _ := strings.Cut(rest, " ")
	p := &Response{Reason: reason}
	switch version {
	case "HTTP/1.1":
		p.Minor = 1
	case "HTTP/1.0":
	default:
		return nil, errors.New("the server does not answer in HTTP/1")
	}
	n, err := strconv.Atoi(code)
	if err != nil || len(code) != 3 || n < 100 {
		return nil, errors.New("the server answers with a malformed status")
	}
	p.Status = n
	return p, nil
}

// frame finds out where the body ends.
func (p *Response) frame(method string) error {
	if method == http.MethodHead || p.Status < 200 || p.Status == http.StatusNoContent || p.Status == http.StatusNotModified {
		return nil
	}
	if len(p.Fields.All("Transfer-Encoding")) > 0 {
		// The chunks count, as everywhere.
		p.Fields = p.Fields.Without(func(name string) bool { return strings.EqualFold(name, "Content-Length") })
	}
	p.dropRepeatedLength()
	length, err := bodyLength(p.Fields)
	if err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	p.Length = length
	return nil
}

// dropRepeatedLength lets a server give the same length twice.
func (p *Response) dropRepeatedLength() {
	lengths := p.Fields.All("Content-Length")
	for _, other := range lengths {
		if other != lengths[0] {
			return
		}
	}
	seen := false
	p.Fields = p.Fields.Without(func(name string) bool {
		isLength := strings.EqualFold(name, "Content-Length")
		again := isLength && seen
		seen = seen || isLength
		return again
	})
}

// ReadTrailer reads the lines behind the last chunk of a body, up to the empty
// line.
func ReadTrailer(r *bufio.Reader, most int) (Fields, error) {
	l := lines{r: r, left: most, strict: true}
	f, err := l.fields()
	return f, unexpected(err)
}
