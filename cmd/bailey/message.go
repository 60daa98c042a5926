package main

import (
	"io"
	"os"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/version"
)

// tag is the start of a line on stderr; the colour says how bad it is.
type tag string

const (
	tagError   tag = "\x1b[1;31m"
	tagWarning tag = "\x1b[1;33m"
	tagNote    tag = "\x1b[1m"
)

// say writes text to stderr, each line marked as Bailey's own: stderr is shared
// with the command. What drives a terminal has no place in it, even where whoever
// made the text did not think of that. Nobody is left to tell if that fails.
func say(t tag, text string) {
	const name = "bailey:"
	prefix := name
	if coloured() {
		prefix = string(t) + name + "\x1b[0m"
	}
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		b.WriteString(prefix + " " + plain.Text(line) + "\n")
	}
	_, _ = io.WriteString(os.Stderr, b.String())
}

func coloured() bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(os.Stderr)
}

func fail(err error) int {
	say(tagError, err.Error())
	return exitOwn
}

// answer writes what a verb was asked for.
func answer(text string) int {
	if _, err := io.WriteString(os.Stdout, text); err != nil {
		return fail(err)
	}
	return 0
}

func versionLine() string { return version.Line("bailey") }

// printable is for text among words of our own.
func printable(s string) string { return plain.Text(s) }
