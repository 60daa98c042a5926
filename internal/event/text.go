package event

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// summaryLines is how many denials a summary names: more would push what the
// command itself has said off the screen.
const summaryLines = 10

// Summary tells a person what was denied, one short line each:
//
//	denied: create .envrc (protected name); to allow: --allow-write .envrc
//
// and in the last line how many there are besides.
func Summary(denials []Event) []string { return summary(denials, 0) }

func summary(denials []Event, rest int) []string {
	var lines []string
	for i := range denials {
		if i == summaryLines {
			break
		}
		lines = append(lines, denials[i].summary())
	}
	if rest += len(denials) - len(lines); rest > 0 {
		lines = append(lines, fmt.Sprintf("and %d more; see bailey log", rest))
	}
	return lines
}

func (e *Event) summary() string {
	if e.Kind == Limit {
		return e.what() + e.repetitions()
	}
	const longest, longestFix = 160, 400
	text := "denied: " + join(plain.Text(string(e.Op)), plain.Word(shorten(e.subject(), longest)), plain.Word(shorten(e.Method, longest)))
	if e.Rule != "" {
		text += " (" + plain.Text(shorten(e.Rule, longest)) + ")"
	}
	text += e.repetitions()
	// A fix that is cut short would grant something else.
	if e.Fix != "" && len(e.Fix) <= longestFix {
		text += "; to allow: " + plain.Text(e.Fix)
	}
	return text
}

// Text is the event for a person, in one line, without its time and kind.
func (e *Event) Text() string {
	who := plain.Word(e.Process)
	if e.Pid != 0 {
		who += "[" + strconv.Itoa(e.Pid) + "]"
	}
	text := join(plain.Text(e.Sandbox), who, e.what())
	if e.Rule != "" {
		text += " (" + plain.Text(e.Rule)
		if e.Where != "" {
			text += " at " + plain.Text(e.Where)
		}
		text += ")"
	}
	text += e.repetitions()
	if e.Kind == Deny && e.Fix != "" {
		text += "; to allow: " + plain.Text(e.Fix)
	}
	if e.Truncated {
		text += "; too long to record whole"
	}
	return text
}

func (e *Event) what() string {
	switch e.Kind {
	case Exec:
		return join("exec", plain.Word(e.Path), e.arguments())
	case Exit:
		if e.Signal != "" {
			return "ended by " + plain.Text(e.Signal)
		}
		if e.Status != nil {
			return "ended with status " + strconv.Itoa(*e.Status)
		}
		return "ended"
	case Limit:
		return join("met the limit", plain.Text(e.Limit))
	case Connection:
		return join(plain.Word(e.Method), plain.Word(e.subject()), plain.Word(e.URLPath),
			fmt.Sprintf("%d bytes in, %d out, %s", e.BytesIn, e.BytesOut, e.Duration.Round(time.Microsecond)))
	}
	return join(plain.Text(string(e.Op)), plain.Word(e.subject()), plain.Word(e.Method), plain.Word(e.URLPath), e.arguments())
}

// subject is what the event is about: a path, or a host and port.
func (e *Event) subject() string {
	s := e.Path
	if s == "" {
		s = e.Host
	}
	if s == "" {
		s = e.Address
	}
	if e.Port == 0 || e.Path != "" {
		return s
	}
	if strings.Contains(s, ":") {
		s = "[" + s + "]"
	}
	return s + ":" + strconv.Itoa(e.Port)
}

// Subject is what the event is about, a path or a host and port, fit for a
// terminal.
func (e *Event) Subject() string { return plain.Word(e.subject()) }

// arguments are those of a program, without its name.
func (e *Event) arguments() string {
	const longest = 300
	if len(e.Argv) < 2 {
		return ""
	}
	var b strings.Builder
	for i, word := range e.Argv[1:] {
		if i > 0 {
			b.WriteByte(' ')
		}
		if b.Len() > longest {
			b.WriteString("…")
			break
		}
		if word == "" {
			word = "''"
		} else {
			word = plain.Word(shorten(word, longest))
		}
		b.WriteString(word)
	}
	return b.String()
}

func (e *Event) repetitions() string {
	if n := e.times(); n > 1 {
		return ", " + strconv.Itoa(n) + " times"
	}
	return ""
}

// join puts a blank between the parts that are not empty.
func join(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		if p == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(p)
	}
	return b.String()
}

// shorten leaves out the middle of what is too long to read anyway.
func shorten(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	tail := len(s) - longest/2
	for range utf8.UTFMax - 1 {
		if !utf8.RuneStart(s[tail]) {
			tail++
		}
	}
	return head(s, longest/2) + "…" + s[tail:]
}
