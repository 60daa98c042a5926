package command

import (
	"slices"
	"strings"
)

// inside returns the program that e becomes without another exec, with its
// arguments: an applet, what the dynamic loader loads, or an interpreter's
// script. It is nil if there is none.
func inside(e *Exec) []string {
	if len(e.Argv) < 2 {
		return nil
	}
	called := argv0(e.Argv)
	switch {
	case isLoader(called), isLoader(e.Path), isLoader(e.Real), slices.ContainsFunc(e.Same, isLoader):
		return Loaded(e.Argv)
	case takesApplet(called):
		return applet(e.Argv)
	}
	for _, name := range [...]string{called, baseName(e.Path), baseName(e.Real)} {
		if in := findInterpreter(name); in != nil {
			return in.script(e.Argv)
		}
	}
	return nil
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

// Loaded returns the program, and its arguments, that the dynamic loader is
// asked to run by argv, and nil if it is asked for something else. The kernel
// sees only the loader being executed: whoever watches execs can look at the
// file that is loaded, and judge it too.
func Loaded(argv []string) []string {
	for i := 1; i < len(argv); i++ {
		switch a := argv[i]; {
		case a == "--":
			return argv[i+1:]
		case !isOption(a):
			return argv[i:]
		case a == "--library-path", a == "--inhibit-rpath", a == "--audit", a == "--preload", a == "--argv0",
			a == "--glibc-hwcaps-prepend", a == "--glibc-hwcaps-mask":
			i++
		}
	}
	return nil
}

// interpreter is a program that runs the script its first argument names.
type interpreter struct {
	names  []string
	valued []string // options that take the next word
	// code are the letters of options after which a program text follows, so
	// that there is no script; words are the same, written out.
	code  string
	words []string
	// module is the letter of the option that names a script by a word.
	module byte
}

var interpreters = [...]interpreter{
	{names: shells, valued: []string{"-o", "+o", "-O", "+O", "--rcfile", "--init-file"}, code: "cs"},
	{names: []string{"python", "pypy"}, valued: []string{"-W", "-X", "--check-hash-based-pycs"}, code: "c", module: 'm'},
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

// script finds the script among an interpreter's arguments.
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
		case in.module != 0 && a[len(a)-1] == in.module:
			return argv[i+1:]
		}
	}
	return nil
}

// parseShebang reads a "#!" line as the kernel does: the interpreter, and all
// the rest of the line as a single argument.
func parseShebang(line string) (interpreter, argument string) {
	line, _, _ = strings.Cut(strings.TrimPrefix(line, "#!"), "\n")
	const blank = " \t"
	line = strings.Trim(line, blank)
	i := strings.IndexAny(line, blank)
	if i < 0 {
		return line, ""
	}
	return line[:i], strings.Trim(line[i:], blank)
}
