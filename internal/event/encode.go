package event

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// maxLine bounds a recorded event. A program's arguments can have megabytes, with
// which a sandbox would push everything else out of the audit log.
const maxLine = 32 << 10

// maxPath is the kernel's PATH_MAX.
const maxPath = 4096

// timeFormat has a fixed width, so that lines sort by time as text does.
const timeFormat = "2006-01-02T15:04:05.000000000Z07:00"

// lineStart is how every line begins. Inside a line it cannot occur: there a
// quotation mark is escaped.
const lineStart = `{"version":`

// AppendLine appends the event as one line of JSON. All of it is printable,
// whatever the event holds: what could drive a terminal is escaped, so that the
// file can be looked at with any tool. An event that is too large is cut, and
// says so in Truncated.
func (e *Event) AppendLine(b []byte) []byte {
	start := len(b)
	for longest := maxLine / 2; ; longest /= 2 {
		if b = e.cut(longest).appendObject(b[:start]); len(b)-start <= maxLine {
			return append(b, '\n')
		}
	}
}

// MarshalJSON returns the object that AppendLine writes, however large.
func (e Event) MarshalJSON() ([]byte, error) { return e.appendObject(nil), nil }

// appendObject does what package json would, which takes four times as long: a
// command that is denied something usually tries it very often.
//
// JSON has no bytes: a string that is not UTF-8 has U+FFFD for each byte that
// does not fit, and its bytes in raw, in base64, under the name of its key; of
// argv under argv.0, argv.1 and so on.
func (e *Event) appendObject(b []byte) []byte {
	o := object{strconv.AppendInt(append(b, lineStart...), Version, 10)}
	o.text("time", e.Time.UTC().Format(timeFormat))
	o.text("kind", string(e.Kind))
	o.text("sandbox", e.Sandbox)
	o.number("pid", int64(e.Pid))
	o.text("process", e.Process)
	o.text("op", string(e.Op))
	o.text("path", e.Path)
	o.list("argv", e.Argv)
	o.text("host", e.Host)
	o.text("address", e.Address)
	o.number("port", int64(e.Port))
	o.text("method", e.Method)
	o.text("urlPath", e.URLPath)
	o.number("bytesIn", e.BytesIn)
	o.number("bytesOut", e.BytesOut)
	o.number("durationNanos", int64(e.Duration))
	o.text("rule", e.Rule)
	o.text("where", e.Where)
	o.text("fix", e.Fix)
	if e.Count > 1 {
		o.number("count", int64(e.Count))
	}
	if e.Status != nil {
		o.key("status")
		o.b = strconv.AppendInt(o.b, int64(*e.Status), 10)
	}
	o.text("signal", e.Signal)
	o.text("limit", e.Limit)
	if e.Truncated {
		o.key("truncated")
		o.b = append(o.b, "true"...)
	}
	o.raw(e)
	return append(o.b, '}')
}

// object is a JSON object that begins with lineStart. What is empty is left out.
type object struct{ b []byte }

func (o *object) key(k string) {
	o.b = append(append(append(o.b, `,"`...), k...), `":`...)
}

func (o *object) number(key string, n int64) {
	if n != 0 {
		o.key(key)
		o.b = strconv.AppendInt(o.b, n, 10)
	}
}

func (o *object) text(key, s string) {
	if s != "" {
		o.key(key)
		o.b = appendQuoted(o.b, s)
	}
}

func (o *object) list(key string, words []string) {
	if len(words) == 0 {
		return
	}
	o.key(key)
	separator := byte('[')
	for _, word := range words {
		o.b = appendQuoted(append(o.b, separator), word)
		separator = ','
	}
	o.b = append(o.b, ']')
}

func (o *object) raw(e *Event) {
	separator := byte('{')
	for key, s := range e.texts {
		if utf8.ValidString(*s) {
			continue
		}
		if separator == '{' {
			o.key("raw")
		}
		o.b = append(appendQuoted(append(o.b, separator), key), `:"`...)
		o.b = append(base64.StdEncoding.AppendEncode(o.b, []byte(*s)), '"')
		separator = ','
	}
	if separator == ',' {
		o.b = append(o.b, '}')
	}
}

// appendQuoted appends a JSON string.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for len(s) > 0 {
		n := plainPrefix(s)
		b, s = append(b, s[:n]...), s[n:]
		if s == "" {
			break
		}
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', s[0])
		case r == utf8.RuneError && n == 1:
			b = append(b, `\ufffd`...)
		case strconv.IsPrint(r):
			b = append(b, s[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		s = s[n:]
	}
	return append(b, '"')
}

// plainPrefix is how many bytes of s stand for themselves.
func plainPrefix(s string) int {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return i
		}
	}
	return len(s)
}

// texts yields every string a sandbox may have a hand in, by its key.
func (e *Event) texts(yield func(key string, s *string) bool) {
	for _, t := range [...]struct {
		key string
		s   *string
	}{
		{"kind", (*string)(&e.Kind)},
		{"sandbox", &e.Sandbox},
		{"process", &e.Process},
		{"op", (*string)(&e.Op)},
		{"path", &e.Path},
		{"host", &e.Host},
		{"address", &e.Address},
		{"method", &e.Method},
		{"urlPath", &e.URLPath},
		{"rule", &e.Rule},
		{"where", &e.Where},
		{"fix", &e.Fix},
		{"signal", &e.Signal},
		{"limit", &e.Limit},
	} {
		if !yield(t.key, t.s) {
			return
		}
	}
	for i := range e.Argv {
		if !yield("argv."+strconv.Itoa(i), &e.Argv[i]) {
			return
		}
	}
}

// Bounded returns a copy that is no larger than what is recorded of an event. Who
// keeps events that a command causes keeps those: it can cause many, each with
// arguments of megabytes.
func (e *Event) Bounded() *Event { return e.cut(maxLine / 2) }

// cut returns a copy in which no string is longer than longest, and all of argv
// together not longer than twice that. The path is spared: half of one would be
// the name of something else. In its worst form it has six characters a byte,
// and leaves room for 64 bytes of all others in theirs.
func (e *Event) cut(longest int) *Event {
	const eachWord = 8 // what a word costs besides its bytes
	c := *e
	c.Argv = nil
	for key, s := range c.texts {
		limit := longest
		if key == "path" {
			limit = maxPath
		}
		if len(*s) > limit {
			*s, c.Truncated = strings.Clone(head(*s, limit)), true // what is cut off is not kept
		}
	}
	left := 2 * longest
	for _, word := range e.Argv {
		left -= eachWord
		if len(word) > left {
			c.Truncated = true
			if left > 0 {
				c.Argv = append(c.Argv, strings.Clone(head(word, left)))
			}
			break
		}
		left -= len(word)
		c.Argv = append(c.Argv, word)
	}
	return &c
}

// head returns at most the first n bytes, without breaking a character.
func head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := n; i > 0 && i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:n] // not text
}

// bare is an Event without its methods.
type bare Event

// form is what an object is read into.
type form struct {
	Version int    `json:"version"`
	Time    string `json:"time"`
	*bare
	Raw map[string][]byte `json:"raw"`
}

// Decode reads one line. Keys it does not know are ignored.
func Decode(line []byte) (*Event, error) {
	e := &Event{}
	if err := e.UnmarshalJSON(line); err != nil {
		return nil, err
	}
	return e, nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *Event) UnmarshalJSON(data []byte) error {
	var read Event
	f := form{bare: (*bare)(&read)}
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	switch {
	case f.Version == 0:
		return errors.New("not an event: it has no version")
	case f.Version != Version:
		return fmt.Errorf("the event has version %d, and only %d is known here; use a newer bailey to read it", f.Version, Version)
	case read.Kind == "":
		return errors.New("the event has no kind")
	}
	t, err := time.Parse("2006-01-02T15:04:05Z", f.Time) // takes fractions as well
	if err != nil {
		return fmt.Errorf("the event has no time that can be read: %w", err)
	}
	read.Version, read.Time = f.Version, t.UTC()
	if err := read.restore(f.Raw); err != nil {
		return err
	}
	*e = read
	return nil
}

// restore puts bytes back in the place of their readable form. The two must
// agree: else two readers of a line would see two different events.
func (e *Event) restore(raw map[string][]byte) error {
	if len(raw) == 0 {
		return nil
	}
	for key, s := range e.texts {
		data, ok := raw[key]
		if !ok {
			continue
		}
		if string([]rune(string(data))) != *s {
			return fmt.Errorf("raw bytes and text of %s differ", key)
		}
		*s = string(data)
	}
	return nil
}
