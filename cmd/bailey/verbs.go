package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// verb is a word that is not taken for a program. There are few, and a program
// of the same name is reached with --.
type verb struct {
	name string
	args string // how the rest looks
	text string
	// command says that what follows is a command, with flags of its own, and
	// isWhole, if not nil, that what follows these words is one.
	command bool
	agents  bool // that command may be an agent
	isWhole func(words []string) bool
	words   []string // what completes the first argument
	flags   []flag
	run     func(*request) int
}

// findVerb and the table of verbs depend on each other through the functions
// in the table, so that the table is a function.
func verbs() []verb {
	return []verb{
		runVerb(),
		{name: "shell", text: "a shell in the sandbox", run: runShell, flags: overlayFlags()},
		{name: "explain", args: "[--json] [path P | host H[:PORT] | env NAME | command CMD… | -- CMD…]", text: "what a command would get, and why; or one path, host, variable, command", command: true, agents: true, run: runExplain, flags: append(append(overlayFlags(), imageFlags()...), flag{
			"json", "", "", "print the compiled form, for programs", hintNone, func(r *request, _ string) error { r.json = true; return nil },
		})},
		{name: "learn", args: "[--write] [--prove] [--save FILE | --merge FILE] -- CMD…", text: "run a command observed, and propose a policy for it", command: true, run: runLearn, flags: []flag{
			{"write", "", "", "let it write what the policy lets it write; otherwise writes stay in memory", hintNone, func(r *request, _ string) error { r.learn.write = true; return nil }},
			{"prove", "", "", "run it again under the proposal", hintNone, func(r *request, _ string) error { r.learn.prove = true; return nil }},
			{"save", "", "FILE", "write the proposal to a new file", hintFile, func(r *request, v string) error { return setOnce(&r.learn.save, v) }},
			{"merge", "", "FILE", "add the proposal to this policy file", hintFile, func(r *request, v string) error { return setOnce(&r.learn.merge, v) }},
		}},
		{name: "audit", args: "[--json]", text: "attack the sandbox from inside; which wall stops what", run: runAudit, flags: []flag{
			{"json", "", "", "print one object for each attack, for programs", hintNone, func(r *request, _ string) error { r.json = true; return nil }},
		}},
		{name: "config", args: "show|init|validate [FILE…]|schema|path", text: "the effective policy; a first file; checks; the JSON Schema", words: []string{"show", "init", "validate", "schema", "path"}, run: runConfig},
		{name: "trust", args: "[FILE] [--yes] | --list | --revoke FILE", text: "let a project's policy grant something", run: runTrust, flags: []flag{
			{"yes", "y", "", "do not ask", hintNone, func(r *request, _ string) error { r.yes = true; return nil }},
			{"list", "", "", "list the files that are trusted", hintNone, func(r *request, _ string) error { r.list = true; return nil }},
			{"revoke", "", "FILE", "trust this file no longer", hintFile, func(r *request, v string) error { return setOnce(&r.revoke, v) }},
		}},
		doctorVerb(),
		importVerb(),
		hooksVerb(),
		logVerb(),
		{name: "presets", args: "[show NAME]", text: "policies that come with Bailey", words: []string{"show"}, run: runPresets},
		{name: "bench", args: "compare|show|page …", text: "what the harness measured, and whether a build is slower", command: true, words: []string{"compare", "show", "page"}, run: runBench},
		{name: "completion", args: "bash|zsh|fish", text: "completions for a shell", words: []string{"bash", "zsh", "fish"}, run: runCompletion},
		{name: "man", text: "the manual page, as roff", run: runMan},
		{name: "help", args: "[VERB]", text: "this text", run: runHelp},
		{name: "version", text: "the version", run: func(r *request) int { return r.plain(versionLine()) }},
		boxVerb(),
		imageVerb(),
		workspaceVerb(),
		codebaseVerb(),
	}
}

// isVerb decides without the table, which the way to a command never needs.
func isVerb(name string) bool {
	switch name {
	case "shell", "explain", "audit", "bench", "doctor", "learn", "config", "trust", "hooks", "import", "log", "presets", "completion", "man", "help", "version", "box", "ws", "codebase", "run", "image":
		return true
	}
	return false
}

func findVerb(name string) *verb {
	if !isVerb(name) {
		return nil
	}
	for _, v := range verbs() {
		if v.name == name {
			return &v
		}
	}
	return nil
}

// takesLine says whether a verb runs what stands behind -c, or is about it.
func (v *verb) takesLine() bool { return v.command && v.name != "bench" || v.name == "shell" }

// hintProgram says how to get a program that a verb hides.
func (r *request) hintProgram() {
	// The manual page, for which there are no arguments, is meant to be piped into the
	// program of that name.
	isPage := r.verb.name == "man" && len(r.args) == 0
	if path := lookPath(r.verb.name); path != "" && !isPage && !r.settledQuiet() {
		say(tagNote, "running the verb '"+r.verb.name+"'; for the program use: bailey -- "+r.verb.name)
	}
}

// plain answers for a verb that takes no arguments.
func (r *request) plain(text string) int {
	if err := r.noArguments(); err != nil {
		return fail(err)
	}
	return answer(text)
}

func (r *request) noArguments() error {
	if len(r.args) > 0 {
		return fmt.Errorf("%s takes no argument %s", r.verb.name, printable(r.args[0]))
	}
	return nil
}

// usage is the error for arguments a verb does not know.
func (r *request) usage() error {
	return errors.New("usage: bailey " + r.verb.name + " " + r.verb.args)
}

func runHelp(r *request) int {
	switch {
	case len(r.args) == 0:
		return answer(helpText())
	case len(r.args) == 1 && isVerb(r.args[0]):
		return answer(verbHelp(findVerb(r.args[0])))
	}
	if len(r.args) > 1 {
		return fail(errors.New("help takes one verb"))
	}
	return fail(fmt.Errorf("help: there is no verb %s; see: bailey help", printable(r.args[0])))
}

func runPresets(r *request) int {
	switch {
	case len(r.args) == 0:
		text := ""
		for _, name := range policy.PresetNames() {
			text += fmt.Sprintf("%-17s %s\n", name, policy.PresetSummary(name))
		}
		return answer(text)
	case len(r.args) == 2 && r.args[0] == "show":
		data, ok := policy.Preset(r.args[1])
		if !ok {
			return fail(unknownPreset(r.args[1]))
		}
		return answer(string(data))
	}
	return fail(r.usage())
}

func unknownPreset(name string) error {
	text := "there is no preset " + printable(name)
	if near := policy.Nearest(name, policy.PresetNames()); near != "" {
		return errors.New(text + "; did you mean " + near + "?")
	}
	return errors.New(text + "; see: bailey presets")
}

func runShell(r *request) int {
	if err := r.noArguments(); err != nil && !r.hasLine {
		return fail(err)
	}
	shell := r.shell
	if shell == "" {
		shell = os.Getenv("SHELL")
		if _, err := os.Stat(shell); err != nil {
			shell = defaultShell()
		}
	}
	r.markPrompt(shell)
	argv := []string{shell}
	if r.login {
		argv = append(argv, "-l")
	}
	if r.hasLine {
		argv = append(append(argv, "-c", r.line), r.args...)
	}
	return launch(r, argv, nil)
}

// markPrompt makes the prompt say where it is, by variables alone, since the
// user's start-up files are hidden. Debian's bash and fish show debian_chroot by
// themselves.
func (r *request) markPrompt(shell string) {
	prompt := "(bailey) $ "
	switch filepath.Base(shell) {
	case "bash":
		prompt = `(bailey) \u@\h:\w\$ `
	case "zsh":
		prompt = "(bailey) %n@%m:%~%# "
	}
	for _, v := range [][2]string{{"PS1", prompt}, {"debian_chroot", "bailey"}} {
		if _, given := r.grants.Env.Set[v[0]]; !given {
			_ = addVariable(r, v[0]+"="+v[1]) // the name is not empty
		}
	}
}
