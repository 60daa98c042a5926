package event

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
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
	const longest = 160
	text := "denied: " + join(sentence(string(e.Op)), Printable(shorten(e.subject(), longest)), Printable(shorten(e.Method, longest)))
	if e.Rule != "" {
		text += " (" + sentence(shorten(e.Rule, longest)) + ")"
	}
	text += e.repetitions()
	// A fix that is cut short would grant something else.
	if e.Fix != "" && len(e.Fix) <= longest {
		text += "; to allow: " + sentence(e.Fix)
	}
	return text
}

// Text is the event for a person, in one line, without its time and kind.
func (e *Event) Text() string {
	who := Printable(e.Process)
	if e.Pid != 0 {
		who += "[" + strconv.Itoa(e.Pid) + "]"
	}
	text := join(sentence(e.Sandbox), who, e.what())
	if e.Rule != "" {
		text += " (" + sentence(e.Rule)
		if e.Where != "" {
			text += " at " + sentence(e.Where)
		}
		text += ")"
	}
	text += e.repetitions()
	if e.Kind == Deny && e.Fix != "" {
		text += "; to allow: " + sentence(e.Fix)
	}
	if e.Truncated {
		text += "; too long to record whole"
	}
	return text
}

func (e *Event) what() string {
	switch e.Kind {
	case Exec:
		return join("exec", Printable(e.Path), e.arguments())
	case Exit:
		if e.Signal != "" {
			return "ended by " + sentence(e.Signal)
		}
		if e.Status != nil {
			return "ended with status " + strconv.Itoa(*e.Status)
		}
		return "ended"
	case Limit:
		return join("met the limit", sentence(e.Limit))
	case Connection:
		return join(Printable(e.Method), Printable(e.subject()), Printable(e.URLPath),
			fmt.Sprintf("%d bytes in, %d out, %s", e.BytesIn, e.BytesOut, e.Duration.Round(time.Microsecond)))
	}
	return join(sentence(string(e.Op)), Printable(e.subject()), Printable(e.Method), Printable(e.URLPath), e.arguments())
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
			word = Printable(shorten(word, longest))
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

// Printable returns s as one word that is safe on a terminal and that a shell
// (bash, zsh, ksh) reads back as s. A name of harmless characters stays as it is; anything else
// is in quotes, so that no name can pass for the text around it, end a line or
// drive a terminal.
func Printable(s string) string {
	if isPrintable(s) {
		if strings.IndexFunc(s, needsQuotes) < 0 && !strings.HasPrefix(s, "~") {
			return s
		}
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return "$'" + escape(s, `'`) + "'"
}

// needsQuotes is about printable characters only.
func needsQuotes(r rune) bool {
	return r < utf8.RuneSelf && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
		!strings.ContainsRune("/._-+,:@%=~", r)
}

// sentence makes text safe on a terminal that is made of several words, and not
// by the sandbox.
func sentence(s string) string {
	if isPrintable(s) {
		return s
	}
	return escape(s, "")
}

func isPrintable(s string) bool {
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return false
		}
	}
	return utf8.ValidString(s)
}

// escape writes what is not printable, backslashes and the given quotation mark
// the way strings of shells and of C have it.
func escape(s, quote string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1, r < utf8.RuneSelf && !strconv.IsPrint(r):
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\\' || quote != "" && s[:n] == quote:
			b.WriteString(`\` + s[:n])
		case strconv.IsPrint(r):
			b.WriteString(s[:n])
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[n:]
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
