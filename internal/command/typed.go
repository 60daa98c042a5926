package command

import "strings"

// Words of a typed command that only the shell will know. No argument of a
// program can hold a NUL byte, so neither can be meant literally.
const (
	// Unknown stands in a word for text that is not known: "--file=" + Unknown.
	// It does not stand twice in a row.
	Unknown = "\x00"
	// Rest stands for any number of words, and is the last one.
	Rest = "\x00\x00"
)

func isUnknown(word string) bool { return strings.IndexByte(word, 0) >= 0 }

// Splitter finds the commands in a text that a shell will run, each with its
// words as far as they are known. A text it cannot read has none.
type Splitter func(text string) [][]string

// Bounds on what Typed looks at. What lies beyond is left to Judge.
const (
	maxTextBytes = 64 << 10
	maxNesting   = 8
	maxCommands  = 2000
)

// Typed judges a command before anything runs, by every rule whatever the
// reach. It also looks at what the command would run: the inner command of env,
// sudo, xargs and their like, and the text given to a shell, which split takes
// apart (Split, or a full parser). It refuses only what is certain.
func (r *Rules) Typed(argv []string, split Splitter) Verdict {
	return r.walk(split).command(argv, 0)
}

// TypedText is Typed for a text that a shell will read.
func (r *Rules) TypedText(text string, split Splitter) Verdict {
	return r.walk(split).text(text, 0)
}

func (r *Rules) walk(split Splitter) *walk {
	return &walk{split: split, left: maxCommands, beyond: allowed, visit: func(argv []string) Verdict {
		return r.judge(&Exec{Path: argv[0], Argv: argv}, ReachArgv)
	}}
}

// walk visits a command and everything it is seen to run.
type walk struct {
	split Splitter
	visit func(argv []string) Verdict
	left  int // commands to visit
	// beyond is the answer where the walk has to stop.
	beyond Verdict
}

func (w *walk) command(argv []string, nesting int) Verdict {
	if len(argv) == 0 {
		return allowed
	}
	if w.left--; w.left < 0 || nesting > maxNesting {
		return w.beyond
	}
	if v := w.visit(argv); !v.Allowed {
		return v
	}
	if v := w.command(inside(&Exec{Argv: argv}).Argv, nesting+1); !v.Allowed {
		return v
	}
	for _, in := range unwrap(argv) {
		if v := w.inner(in, nesting+1); !v.Allowed {
			return v
		}
	}
	return allowed
}

func (w *walk) inner(in inner, nesting int) Verdict {
	if in.argv != nil {
		return w.command(in.argv, nesting)
	}
	return w.text(in.text, nesting)
}

func (w *walk) text(text string, nesting int) Verdict {
	if w.split == nil || len(text) > maxTextBytes || nesting > maxNesting {
		return w.beyond
	}
	// To the shell that will read the text, what is not known now is what a
	// variable would be: any number of words unless quoted.
	for _, argv := range w.split(strings.ReplaceAll(text, Unknown, "${_}")) {
		if v := w.command(argv, nesting); !v.Allowed {
			return v
		}
	}
	return allowed
}
