package command

import (
	"slices"
	"strings"
)

// inner is a command that another one runs: its words, or a text for a shell.
type inner struct {
	argv []string
	text string
}

// wrapper is a program whose last arguments are a command.
type wrapper struct {
	names  []string
	valued []string // options that take the next word
	// ends are options after which no command is run.
	ends []string
	// operands is how many words stand before the command.
	operands int
	// settings may stand before the command: X=1.
	settings bool
	// more means that words are added at the end.
	more bool
	// text are options that take a text for a shell instead.
	text []string
}

var wrappers = [...]wrapper{
	// A shell's own words.
	{names: []string{"if", "then", "else", "elif", "do", "while", "until", "!", "{", "builtin", "nocorrect", "noglob"}},
	{names: []string{"exec"}, valued: []string{"-a"}},
	{names: []string{"command"}, ends: []string{"-v", "-V"}},

	{names: []string{"env"}, valued: []string{"-u", "--unset", "-C", "--chdir"}, settings: true},
	{names: []string{"nohup", "setsid", "unbuffer", "caffeinate", "torsocks", "dbus-run-session"}},
	{names: []string{"nice"}, valued: []string{"-n", "--adjustment"}},
	{names: []string{"ionice"}, valued: []string{"-c", "--class", "-n", "--classdata"}, ends: []string{"-p", "-P", "-u"}},
	{names: []string{"timeout"}, valued: []string{"-k", "--kill-after", "-s", "--signal"}, operands: 1},
	{names: []string{"stdbuf"}, valued: []string{"-i", "--input", "-o", "--output", "-e", "--error"}},
	{names: []string{"time"}, valued: []string{"-f", "--format", "-o", "--output"}},
	{names: []string{"chrt", "taskset"}, operands: 1, ends: []string{"-p", "--pid"}},
	{names: []string{"faketime", "gosu", "su-exec"}, operands: 1},
	{names: []string{"proxychains", "proxychains4"}, valued: []string{"-f"}},
	{names: []string{"fakeroot"}, valued: []string{"-l", "--lib", "-s", "-i", "-b", "--faked"}},
	{names: []string{"strace", "ltrace"}, valued: []string{"-e", "-o", "-s", "-u", "-E", "-P", "-a", "-b", "-I", "-O", "-S", "-X"}, ends: []string{"-p"}},
	{
		names: []string{"sudo"}, settings: true,
		valued: []string{
			"-u", "--user", "-g", "--group", "-h", "--host", "-p", "--prompt", "-C", "--close-from", "-r", "--role", "-t", "--type",
			"-T", "--command-timeout", "-U", "--other-user", "-D", "--chdir", "-R", "--chroot",
		},
		ends: []string{"-e", "--edit", "-l", "--list", "-K", "-V", "-v"},
	},
	{names: []string{"doas"}, valued: []string{"-u", "-C"}, ends: []string{"-L"}},
	{names: []string{"pkexec"}, valued: []string{"--user"}},
	{names: []string{"run0", "systemd-run", "systemd-inhibit"}, valued: []string{"-u", "--unit", "--user", "-p", "--property", "--slice", "-E", "--setenv", "-D", "--chdir", "--description", "--what", "--who", "--why"}},
	{names: []string{"runuser"}, valued: []string{"-u", "--user", "-g", "--group", "-s", "--shell"}, text: []string{"-c", "--command"}},
	{names: []string{"setpriv"}, valued: []string{"--reuid", "--regid", "--ruid", "--euid", "--rgid", "--egid", "--groups", "--inh-caps", "--ambient-caps", "--bounding-set", "--pdeathsig", "--securebits"}},
	{names: []string{"unshare"}, valued: []string{"-R", "--root", "-w", "--wd", "-S", "--setuid", "-G", "--setgid", "--propagation", "--map-user", "--map-group"}},
	{names: []string{"nsenter"}, valued: []string{"-t", "--target", "-S", "--setuid", "-G", "--setgid"}},
	{names: []string{"chroot"}, operands: 1},
	{
		names: []string{"xargs"}, more: true,
		valued: []string{"-I", "-n", "--max-args", "-P", "--max-procs", "-L", "--max-lines", "-s", "--max-chars", "-d", "--delimiter", "-E", "-a", "--arg-file"},
	},
	{names: []string{"flock"}, operands: 1, valued: []string{"-w", "--wait", "--timeout", "-E", "--conflict-exit-code"}, text: []string{"-c", "--command"}},
	{names: []string{"script"}, valued: []string{"-I", "-O", "-B", "-T", "-m", "-E", "-o"}, text: []string{"-c", "--command"}, operands: 1},
}

// unwrap returns the commands that argv says it would run.
func unwrap(argv []string) []inner {
	if isSetting(argv[0]) {
		return inners(argv[1:])
	}
	name := argv0(argv)
	switch name {
	case "find":
		return found(argv[1:])
	case "su":
		return textOf(argv[1:], []string{"-c", "--command"})
	case "eval":
		return []inner{{text: strings.Join(argv[1:], " ")}}
	case "trap":
		return trapped(argv[1:])
	case "watch":
		return watched(argv[1:])
	}
	if slices.Contains(shells, name) {
		return shellText(argv[1:])
	}
	for i := range wrappers {
		if slices.Contains(wrappers[i].names, name) {
			return wrappers[i].unwrap(argv[1:])
		}
	}
	return nil
}

func inners(argv []string) []inner {
	if len(argv) == 0 {
		return nil
	}
	return []inner{{argv: argv}}
}

// unwrap passes over options and operands. An option it does not know takes no
// value.
func (w *wrapper) unwrap(args []string) []inner {
	if in := textOf(args, w.text); in != nil {
		return in
	}
	operands := w.operands
	for len(args) > 0 {
		a := args[0]
		switch {
		case a == "--":
			return w.command(args[min(1+operands, len(args)):])
		case slices.Contains(w.ends, a):
			return nil
		case slices.Contains(w.valued, a):
			args = args[min(2, len(args)):]
			continue
		case w.settings && isSplitOption(a):
			return splitString(args)
		case isOption(a), w.settings && isSetting(a):
		case operands > 0:
			operands--
		default:
			return w.command(args)
		}
		args = args[1:]
	}
	return nil
}

func (w *wrapper) command(argv []string) []inner {
	if len(argv) > 0 && w.more && argv[len(argv)-1] != Rest {
		argv = append(slices.Clip(argv), Rest)
	}
	return inners(argv)
}

// isSplitOption is true of env's option that holds a whole command.
func isSplitOption(a string) bool {
	return strings.HasPrefix(a, "-S") || strings.HasPrefix(a, "--split-string")
}

func splitString(args []string) []inner {
	a := args[0]
	text := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(a, "--split-string"), "-S"), "=")
	args = args[1:]
	if text == "" && len(args) > 0 {
		text, args = args[0], args[1:]
	}
	argv := append([]string{"env"}, strings.Fields(text)...)
	return inners(append(argv, args...))
}

// textOf looks for an option whose value is a text for a shell.
func textOf(args, options []string) []inner {
	for i, a := range args {
		for _, o := range options {
			if a == o && i+1 < len(args) {
				return []inner{{text: args[i+1]}}
			}
			if text, ok := strings.CutPrefix(a, o+"="); ok {
				return []inner{{text: text}}
			}
		}
	}
	return nil
}

// shellText finds the text of "sh -c": the first word that is no option, if any
// of the options before it has a c.
func shellText(args []string) []inner {
	isText := false
	for len(args) > 0 {
		a := args[0]
		switch {
		case a == "-o", a == "+o", a == "-O", a == "+O", a == "--rcfile", a == "--init-file":
			args = args[min(2, len(args)):]
			continue
		case a == "--":
			args = args[1:]
			if isText && len(args) > 0 {
				return []inner{{text: args[0]}}
			}
			return nil
		case isOption(a), strings.HasPrefix(a, "+"):
			isText = isText || a[0] == '-' && a[1] != '-' && strings.Contains(a, "c")
		case isText:
			return []inner{{text: a}}
		default:
			return nil
		}
		args = args[1:]
	}
	return nil
}

// ReadsText reports whether argv is a shell that takes its commands from
// standard input.
func ReadsText(argv []string) bool {
	for range maxNesting {
		if len(argv) == 0 {
			return false
		}
		if slices.Contains(shells, argv0(argv)) {
			return readsText(argv[1:])
		}
		next := inside(&Exec{Argv: argv}).Argv
		if next == nil {
			in := unwrap(argv)
			if len(in) != 1 {
				return false
			}
			next = in[0].argv
		}
		argv = next
	}
	return false
}

func readsText(args []string) bool {
	for len(args) > 0 {
		a := args[0]
		switch {
		case a == "-o", a == "+o", a == "-O", a == "+O", a == "--rcfile", a == "--init-file":
			args = args[min(2, len(args)):]
			continue
		case a == "-":
			return true
		case isOption(a) && a[1] != '-' && strings.Contains(a, "s"):
			return true
		case isOption(a) && a[1] != '-' && strings.Contains(a, "c"):
			return false
		case !isOption(a) && !strings.HasPrefix(a, "+"):
			return false
		}
		args = args[1:]
	}
	return true
}

// found returns what find runs for each file.
func found(args []string) []inner {
	var out []inner
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		switch a {
		case "-exec", "-execdir", "-ok", "-okdir":
		default:
			continue
		}
		end := slices.IndexFunc(args, func(s string) bool { return s == ";" || s == "+" })
		if end < 0 {
			end = len(args)
		}
		argv := slices.Clone(args[:end])
		for i, w := range argv {
			argv[i] = strings.ReplaceAll(strings.ReplaceAll(w, "{}", Unknown), Rest, Unknown)
		}
		out = append(out, inners(argv)...)
		args = args[end:]
	}
	return out
}

// trapped returns the text that trap is given.
func trapped(args []string) []inner {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) < 2 || isOption(args[0]) {
		return nil
	}
	return []inner{{text: args[0]}}
}

// watched returns what watch repeats: words joined for a shell, or a command.
func watched(args []string) []inner {
	direct := false
	for len(args) > 0 && isOption(args[0]) {
		switch args[0] {
		case "-n", "--interval", "-q", "--equexit":
			args = args[min(2, len(args)):]
			continue
		case "-x", "--exec":
			direct = true
		}
		args = args[1:]
	}
	if direct {
		return inners(args)
	}
	return []inner{{text: strings.Join(args, " ")}}
}
