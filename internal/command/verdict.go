package command

import (
	"strconv"
	"strings"
)

// Verdict is an answer. Unless Allowed is set it is a refusal, and says why.
type Verdict struct {
	Allowed bool
	// Command is what was refused, shortened.
	Command string
	// Key is where in a policy the refusal comes from, for example
	// "command.deny". Rule is the entry there, and Where the place it was
	// written at; both may be empty.
	Key   string
	Rule  string
	Where string
	// Reason says why the rule exists, where it is not a person's own.
	Reason string
	// Fix is what to do about it.
	Fix string
}

var allowed = Verdict{Allowed: true}

// String says a refusal in one line.
func (v Verdict) String() string {
	if v.Allowed {
		return "allowed"
	}
	s := quote(v.Command) + " is refused by " + v.Key
	if v.Rule != "" {
		s += " " + quote(v.Rule)
	}
	s += at(v.Where)
	if v.Reason != "" {
		s += ": " + v.Reason
	}
	if v.Fix != "" {
		s += "; if it is wanted, " + v.Fix
	}
	return s
}

func at(where string) string {
	if where == "" {
		return ""
	}
	return " (" + where + ")"
}

func (ru *rule) refuse(argv []string) Verdict {
	v := Verdict{Command: summary(argv), Key: ru.key, Rule: ru.entry(), Where: ru.where, Reason: ru.reason}
	switch {
	case ru.reason != "":
		v.Key = "command.useDefaults"
		v.Fix = "add " + quote(v.Rule) + " to command.allow"
	case ru.key == "command.deny":
		v.Fix = "remove the entry, or add a longer one to command.allow"
	default:
		v.Fix = "remove the entry"
	}
	return v
}

// summary joins the first words of a command, so that a message stays a line.
func summary(argv []string) string {
	const longest = 120
	var b strings.Builder
	for i, w := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		if isUnknown(w) {
			w = "..."
		}
		if b.Len()+len(w) > longest {
			b.WriteString(w[:max(0, longest-b.Len())] + "...")
			break
		}
		b.WriteString(w)
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

func quote(s string) string { return strconv.Quote(s) }
