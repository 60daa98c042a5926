package main

import (
	"fmt"
	"slices"
	"strings"
)

// example is a command line worth showing, in the help and in the manual.
type example struct{ line, text string }

func examples() []example {
	return []example{
		{"bailey -- npm test", "a command, with this project writable and the network closed"},
		{`bailey -c "make && ./a.out"`, "a line of shell"},
		{"bailey claude", "a whole agent: everything it starts is confined too"},
		{"bailey --allow-read ~/data -- ./report", "grant something more, once"},
		{"bailey shell", "look around inside"},
		{"bailey explain -- npm test", "see what it would get, and why"},
		{"bailey -m -- npm test", "see what it asks for and does not get"},
		{"bailey learn -- npm test", "have a policy proposed for it"},
	}
}

func helpText() string {
	var b strings.Builder
	b.WriteString("Run a command with exactly the files, network, secrets and resources it was granted.\n\n")
	for _, e := range examples() {
		fmt.Fprintf(&b, "  %-40s %s\n", e.line, e.text)
	}
	b.WriteString("\nUsage\n  bailey [FLAGS] [--] CMD [ARGS…]\n  bailey [FLAGS] -c LINE [ARGS…]\n  bailey [FLAGS] VERB …\n")
	b.WriteString("\nFlags (before the command; what follows it is passed on untouched)\n")
	b.WriteString(flagList(slices.Concat(flags, runFlags)))
	b.WriteString("\nVerbs (a program of the same name: bailey -- NAME)\n")
	for _, v := range verbs() {
		fmt.Fprintf(&b, "  %-30s %s\n", v.name, v.text)
	}
	b.WriteString("\nEnvironment\n")
	for _, v := range variables() {
		fmt.Fprintf(&b, "  %-30s %s\n", v[0], v[1])
	}
	b.WriteString("\nExit status\n")
	for _, s := range statuses() {
		fmt.Fprintf(&b, "  %-30s %s\n", s[0], s[1])
	}
	b.WriteString("\nManual: bailey man | man -l -\n")
	return b.String()
}

func verbHelp(v *verb) string {
	text := "bailey " + v.name
	if v.args != "" {
		text += " " + v.args
	}
	text += "\n  " + v.text + "\n"
	if len(v.flags) > 0 {
		text += "\nFlags\n" + flagList(v.flags)
	}
	return text
}

func flagList(list []flag) string {
	var b strings.Builder
	for _, f := range list {
		fmt.Fprintf(&b, "  %-30s %s\n", f.spelling(), f.text)
	}
	return b.String()
}

// spelling shows every way to write a flag.
func (f *flag) spelling() string {
	s := "    --" + f.long
	switch {
	case f.long == "":
		s = "-" + f.short
	case f.short != "":
		s = "-" + f.short + ", --" + f.long
	}
	if f.takesWord() {
		s += " "
	}
	return s + f.value
}

func variables() [][2]string {
	return [][2]string{
		{"BAILEY_SETTINGS, BAILEY_PRESET", "as --settings and --preset, if neither is given"},
		{"BAILEY_DEBUG, BAILEY_QUIET", "as --debug and --quiet, if set and not 0"},
		{"BAILEY_TRACE", "file that gets the time of each step of the launch"},
		{"NO_COLOR", "no colours in messages"},
	}
}

func statuses() [][2]string {
	return [][2]string{
		{"the command's own", "if it ended by itself; 128+N if signal N ended it"},
		{"124", "the policy's timeout ended it"},
		{"125", "an error of Bailey's own: the command did not run"},
		{"126, 127", "the program could not be executed; was not found"},
	}
}
