package command

import (
	"slices"
	"strings"
)

// inside returns the program that e becomes without another exec: an applet,
// what the dynamic loader loads, or an interpreter's script. Its Argv is empty if
// there is none.
func inside(e *Exec) Exec {
	if len(e.Argv) < 2 {
		return Exec{}
	}
	called := argv0(e.Argv)
	switch {
	case isLoader(called), isLoader(e.Path), isLoader(e.Real), slices.ContainsFunc(e.Same, isLoader):
		path, argv := Loaded(e.Argv)
		return Exec{Path: path, Argv: argv}
	case takesApplet(called):
		return named(applet(e.Argv))
	}
	for _, name := range [...]string{called, baseName(e.Path), baseName(e.Real)} {
		if in := findInterpreter(name); in != nil {
			return named(in.script(e.Argv))
		}
	}
	return Exec{}
}

// named is a program known by the first of its words only.
func named(argv []string) Exec {
	if len(argv) == 0 {
		return Exec{}
	}
	return Exec{Path: argv[0], Argv: argv}
}

// applet reads "busybox rm x" and "coreutils --coreutils-prog=rm x".
func applet(argv []string) []string {
	first := argv[1]
	if !isOption(first) {
		return argv[1:]
	}
	for _, option := range [...]string{"--coreutils-prog=", "--coreutils-prog-shebang="} {
		if name, ok := strings.CutPrefix(first, option); ok {
			return append([]string{name}, argv[2:]...)
		}
	}
	return nil
}

// Loaded returns the file that the dynamic loader is asked to run by argv, and
// the words it gives it; both are empty if it is asked for something else. The
// kernel sees only the loader being executed: whoever watches execs can look at
// the file that is loaded, and judge it too.
func Loaded(argv []string) (path string, inner []string) {
	called := ""
	for i := 1; i < len(argv); i++ {
		a := argv[i]
		switch {
		case a == "--argv0" && i+1 < len(argv):
			i++
			called = argv[i]
			continue
		case slices.Contains(loaderValued, a):
			i++
			continue
		case a == "--":
			i++
		case isOption(a):
			continue
		}
		if i >= len(argv) {
			break
		}
		if called == "" {
			return argv[i], argv[i:]
		}
		return argv[i], append([]string{called}, argv[i+1:]...)
	}
	return "", nil
}

// loaderValued are the loader's options that take the next word.
var loaderValued = []string{
	"--library-path", "--inhibit-rpath", "--audit", "--preload", "--glibc-hwcaps-prepend", "--glibc-hwcaps-mask",
}

// interpreter is a program that runs the script its first argument names.
type interpreter struct {
	names  []string
	valued []string // options that take the next word
	// code are the letters of options after which a program text follows, so
	// that there is no script; words are the same, written out.
	code  string
	words []string
}

var interpreters = [...]interpreter{
	{names: shells, valued: []string{"-o", "+o", "-O", "+O", "--rcfile", "--init-file"}, code: "cs"},
	{names: []string{"python", "pypy"}, valued: []string{"-W", "-X", "--check-hash-based-pycs"}, code: "c"},
	{
		names:  []string{"node", "nodejs"},
		valued: []string{"-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions"},
		code:   "ep", words: []string{"--eval", "--print"},
	},
	{names: []string{"perl"}, valued: []string{"-I"}, code: "eE"},
	{names: []string{"ruby"}, valued: []string{"-I", "-r", "-C", "-E"}, code: "e"},
	{names: []string{"php"}, valued: []string{"-d", "-c"}, code: "rRBE"},
}

// shells are what "#!/bin/sh" leads to on one system or another.
var shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "rbash", "fish"}

func findInterpreter(name string) *interpreter {
	for n := name; n != ""; n = shorterName(n) {
		for i := range interpreters {
			if slices.Contains(interpreters[i].names, n) {
				return &interpreters[i]
			}
		}
		if len(n) > maxName {
			break
		}
	}
	return nil
}

// script finds the script among an interpreter's arguments. The module that
// follows python's -m is as good as one.
func (in *interpreter) script(argv []string) []string {
	for i := 1; i < len(argv); i++ {
		a := argv[i]
		switch {
		case a == "--":
			return argv[i+1:]
		case slices.Contains(in.valued, a):
			i++
			continue
		case a == "" || isUnknown(a):
			return nil
		case a[0] == '+':
			continue
		case a == "-":
			return nil
		case a[0] != '-':
			return argv[i:]
		case slices.Contains(in.words, a):
			return nil
		case a[1] == '-':
			continue
		case strings.ContainsAny(a, in.code):
			return nil
		}
	}
	return nil
}

// Shebang reads a "#!" line as the kernel does: the interpreter, and all
// the rest of the line as a single argument.
func Shebang(line string) (interpreter, argument string) {
	line, _, _ = strings.Cut(strings.TrimPrefix(line, "#!"), "\n")
	const blank = " \t"
	line = strings.Trim(line, blank)
	i := strings.IndexAny(line, blank)
	if i < 0 {
		return line, ""
	}
	return line[:i], strings.Trim(line[i:], blank)
}
