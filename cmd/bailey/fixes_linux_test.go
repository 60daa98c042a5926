package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// fix is a line that is refused, the message, and the line that the message leads
// to. A word with blanks is one argument in quotes.
type fix struct {
	setUp string // a line of shell, before
	line  string
	want  string
	mend  string // a line of shell, after
	then  string // empty: the same line again
}

// fixes are those of the command itself: flags, words and what it finds around it.
var fixes = []fix{
	// Flags.
	{line: `--settings locked -- true`, want: "for the preset of that name: -t locked", then: `-t locked -- true`},
	{line: `--dir nosuch -- true`, want: "nosuch: no such file or directory; make it, or name another: mkdir -p ", mend: `mkdir nosuch`},
	{line: `--settings '' -- true`, want: "--settings : must not be empty", then: `-- true`},
	{line: `--timeout soon -- true`, want: "--timeout soon: is no time; for example: 90s, 15m, 8h", then: `--timeout 90s -- true`},
	{line: `--keep x --idle-timeout soon -- true`, want: "--idle-timeout soon: is no time; for example: 90s, 15m, 8h", then: `--keep x --idle-timeout 90 -- true`},
	{line: `--settings nowhere.jsonc -- true`, want: "nowhere.jsonc: no such file or directory; name a file that exists, or make one here: bailey config init", mend: `echo {} >nowhere.jsonc`},
	{line: `--allow-read nowhere -- true`, want: "--allow-read nowhere: does not exist", mend: `mkdir nowhere`},
	{line: `--env =x -- true`, want: "--env =x: has no name before the =", then: `--env A=x -- true`},
	{line: `version -- true`, want: "version takes no command", then: `version`},
	{line: `--quiet=yes -- true`, want: "--quiet takes no value", then: `--quiet -- true`},
	{line: `--settings`, want: "--settings wants a value: --settings FILE", mend: `echo {} >p`, then: `--settings p -- true`},
	{line: `-s`, want: "-s wants a value: -s FILE", mend: `echo {} >p`, then: `-s p -- true`},
	{line: `--allow-red x -- true`, want: "unknown flag --allow-red; did you mean --allow-read?", then: `--allow-read /usr -- true`},
	{line: `--memory little -- true`, want: "--memory little: is no size; for example: 512M, 2G", then: `--memory 512M config show`},
	{line: `--cpu none -- true`, want: "--cpu none: is no number of processors; for example: 0.5, 50%, 2", then: `--cpu 0.5 config show`},
	{line: `--pids 0 -- true`, want: "--pids 0: is no number above 0", then: `explain --pids 100 -- true`},
	{line: `--stats --keep x -- true`, want: "--stats is about a sandbox of its own; for one that stays: bailey box ps", then: `box ps`},
	{line: `--stats --monitor --json -- true`, want: "--json is for one of --monitor and --stats at a time", then: `--stats --json -- true`},
	{line: `--json -- true`, want: "--json goes with --monitor or --stats, or after a verb that has it", then: `--monitor --json -- true`},
	{line: `--detach -- true`, want: "--detach goes with --keep", then: `--keep x --detach -- true`},
	{line: `--idle-timeout 5s -- true`, want: "--idle-timeout goes with --keep or --pool", then: `--keep x --idle-timeout 5s -- true`},
	{line: `--keep x --pool -- true`, want: "--pool does not go with --keep: a sandbox that stays is started once", then: `--keep x -- true`},
	{line: `--pool -- true`, want: "--pool is for runtimes that take long to start; this one does not: leave it out, or use --runtime gvisor, runc or crun", then: `-- true`},
	{line: `--allow-degraded -- true`, want: "--allow-degraded goes with --runtime and one of", then: `-- true`},
	{line: `--keep x --monitor -- true`, want: "--monitor does not go with --keep; without it: bailey --monitor -- CMD", then: `--monitor -- true`},
	{line: `--settings p --preset offline -- true`, want: "--settings and --preset exclude each other; a file can extend a preset", mend: `echo '{"extends": "offline"}' >p`, then: `--settings p -- true`},
	{line: `--policy {} --preset offline -- true`, want: "--policy excludes --settings and --preset; it can extend them", then: `--policy '{"extends": "offline"}' -- true`},
	{line: `--preset ofline -- true`, want: "did you mean", then: `--preset offline -- true`},
	{line: `--keep -x -- true`, want: "the name of a sandbox has letters and digits", then: `--keep x -- true`},
	// Verbs.
	{line: `version more`, want: "version takes no argument more", then: `version`},
	{line: `box`, want: "usage: bailey box ps", then: `box ps`},
	{line: `box stop nobody`, want: "there is no such sandbox: nobody", then: `box ps`},
	{line: `box exec nobody true`, want: "there is no such sandbox: nobody; see: bailey box ps", then: `box ps`},
	{line: `box reload nobody`, want: "there is no such sandbox: nobody; see: bailey box ps", then: `box ps`},
	{line: `box logs nobody`, want: "there is no such sandbox: nobody", then: `box ps`},
	{line: `help box log`, want: "help takes one verb", then: `help box`},
	{line: `help boxes`, want: "help: there is no verb boxes; see: bailey help", then: `help`},
	{line: `presets show ofline`, want: "there is no preset ofline; did you mean offline?", then: `presets show offline`},
	{line: `presets show qwertyuiop`, want: "there is no preset qwertyuiop; see: bailey presets", then: `presets`},
	{line: `completion ksh`, want: "completion: no completions for ksh; there are bash, zsh and fish", then: `completion bash`},
	{line: `log --kind denie`, want: "is no kind of event; did you mean deny?", then: `log --kind deny`},
	{line: `log --kind qwertyuiop`, want: "is no kind of event; there are allow, deny", then: `log --kind allow`},
	{line: `log -n many`, want: "is not a number of events", then: `log -n 5`},
	{line: `log --since yore`, want: "is neither an age, such as 10m, 3h or 2d, nor a time, such as 2026-01-02T15:04", then: `log --since 3h`},
	{line: `explain path a b`, want: "explain path is about one of them; for a command of that name: bailey explain -- path", mend: `printf '#!/bin/sh\n' >path; chmod +x path`, then: `explain -- ./path`},
	{line: `explain host '*.example.com'`, want: "it is no single host; write NAME or NAME:PORT, such as example.com:443", then: `explain host example.com:443`},
	{line: `explain host example.com:https`, want: "a port is a number from 1 to 65535", then: `explain host example.com:443`},
	{line: `explain path`, want: "explain path wants to know about what: bailey explain path WORD", then: `explain path /usr`},
	{line: `explain pth /usr`, want: "there is no such question, and no such program; did you mean path?", then: `explain path /usr`},
	{line: `explain env ''`, want: "explain env: an empty word is none", then: `explain env HOME`},
	// Files.
	{line: `config validate`, want: "there is no policy file here or above, nor one of your own; make one with: bailey config init", mend: `"$BAILEY" config init`},
	{line: `config init`, setUp: `touch bailey.json`, want: "bailey.json is there already", mend: `rm bailey.json`},
	{line: `config init`, setUp: `touch bailey.jsonc`, want: "bailey.jsonc is there already", mend: `rm bailey.jsonc`},
	{line: `trust --yes`, want: "there is no bailey.jsonc or bailey.json here or above", mend: `"$BAILEY" config init`},
	{line: `trust`, setUp: `echo {} >bailey.jsonc`, want: "nobody to ask: trust needs a terminal, or --yes if you have read the above", then: `trust --yes`},
	{line: `trust --revoke .`, setUp: `echo {} >bailey.jsonc`, want: "is not trusted; see: bailey trust --list", then: `trust --list`},
	{line: `import --fence --srt f`, want: "--srt: one file is of one tool; leave out the others", mend: `echo {} >f`, then: `import --fence f`},
	{line: `import --claude`, want: "has no settings where it looks for them, in ", mend: `echo {} >f`, then: `import --claude f`},
	{line: `import --fence f`, want: "no such file or directory; name a file with settings of Fence", mend: `echo {} >f`},
	{line: `import f`, setUp: `echo {} >f`, want: "it does not tell which tool it is of; say --claude, --fence, --srt or --greywall", then: `import --srt f`},
	{line: `import --srt f --save --project`, setUp: `echo {} >f; touch bailey.json`, want: "bailey.json is there already", mend: `rm bailey.json`},
	{line: `import --srt f --save --project`, setUp: `echo {} >f; touch bailey.jsonc`, want: "is there already; without --save the policy is printed", then: `import --srt f`},
	{line: `hooks install --claude --codex f`, want: "a file goes with install or uninstall of one agent", then: `hooks install --claude f`},
	{line: `hooks install --claude f`, setUp: `echo x >f`, want: "it was left as it is", mend: `echo {} >f`},
	{line: `learn --save a --merge b -- true`, want: "--save and --merge exclude each other", then: `learn --save a -- true`},
	{line: `learn --policy {} -- true`, want: "learn cannot build on --policy, which no file can extend; put it into a file and use --settings", mend: `echo {} >p`, then: `learn --settings p -- true`},
	{line: `-s p learn --write -- true`, setUp: `echo '{"workspace": {"mode": "overlay"}}' >p`, want: "learn --write changes files, and the policy keeps changes in an overlay; leave --write away", then: `-s p learn -- true`},
	{line: `--monitor learn -- true`, want: "learn observes the command already; leave --monitor away", then: `learn -- true`},
	{line: `learn --save a -- true`, setUp: `echo {} >a`, want: "a is there already; to add to it: --merge a", then: `learn --merge a -- true`},
	{line: `config path`, want: "no policy file is used", mend: `"$BAILEY" config init`},
	// The program.
	{line: `-- ./tool`, setUp: `echo '#!/bin/sh' >tool`, want: "./tool: permission denied", mend: `chmod +x tool`},
	{line: `-- "$OUTSIDE/tool"`, setUp: `mkdir -p "$OUTSIDE"; printf '#!/bin/sh\n' >"$OUTSIDE/tool"; chmod +x "$OUTSIDE/tool"`, want: "is not visible in the sandbox; --allow-read", then: `--allow-read "$OUTSIDE" -- "$OUTSIDE/tool"`},
}

// shell runs a line of shell in the project, with the command as $BAILEY.
func (b *bench) shell(line string) result {
	b.t.Helper()
	if line == "" {
		return result{}
	}
	cmd := b.command()
	program := cmd.Path
	cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "-c", line}
	cmd.Env = append(slices.Clone(b.env), "BAILEY="+program, "OUTSIDE="+filepath.Join(filepath.Dir(b.dir), "outside"))
	return b.collect(cmd)
}

func TestWhatAMessageSaysHelps(t *testing.T) {
	for i, c := range fixes {
		t.Run(strconv.Itoa(i), func(t *testing.T) { // a directory is named so
			b := newBench(t)
			if strings.Contains(c.line+c.then, "--keep") {
				b = keepBench(t)
			}
			b.try(c)
		})
	}
}

func (b *bench) try(c fix) {
	b.t.Helper()
	if got := b.shell(c.setUp); got.status != 0 {
		b.t.Fatalf("%s: %+v", c.setUp, got)
	}
	got := b.shell(`"$BAILEY" ` + c.line)
	if got.status < exitOwn || got.status > exitNotFound || !strings.Contains(got.stderr, c.want) {
		b.t.Errorf("%s: got %+v, want %q", c.line, got, c.want)
	}
	if got := b.shell(c.mend); got.status != 0 {
		b.t.Fatalf("%s: %+v", c.mend, got)
	}
	then := c.then
	if then == "" {
		then = c.line
	}
	if got := b.shell(`"$BAILEY" ` + then); got.status != 0 {
		b.t.Errorf("%s\ndoes not help: %+v", then, got)
	}
}

func TestVariablesThatContradictEachOther(t *testing.T) {
	b := newBench(t)
	b.write("p", "{}", 0o644)
	plain := b.env
	b.env = append(slices.Clone(plain), "BAILEY_SETTINGS=p", "BAILEY_PRESET=offline")
	b.run("--", "true").wantError(t, "BAILEY_SETTINGS and BAILEY_PRESET are both set; unset one")
	for _, one := range []string{"BAILEY_SETTINGS=p", "BAILEY_PRESET=offline"} {
		b.env = append(slices.Clone(plain), one)
		if got := b.run("-q", "--", "true"); got.status != 0 {
			t.Errorf("%s: %+v", one, got)
		}
	}
}

// untried are parts of messages that no line of a shell brings about here, with
// the reason.
var untried = map[string]string{
	"nobody to ask":                "the terminal goes away while the question stands",
	"not trusted":                  "see TestTrustTakesNoForAnAnswer",
	"could be changed while learn": "no policy is known that does",
	"in the future":                "another layout is tried then, and the message is about all of them",
	"please report this":           "a mistake in Bailey",
	"are not part of this version": "there is no such verb now",
	"the proposal":                 "a mistake in Bailey",
	"the policy to learn with":     "it says no more than the error that follows",
	"it was left as it is":         "it is the end of another message",
	"there is no home directory":   "every user has one here, also without HOME",
	"usage: bailey hooks run":      "agents call it, and people do not",
	"inside a sandbox":             "see TestWhatIsOutOfReachInsideIsSaid",
	"inside a Bailey sandbox":      "see TestVerbsThatNeedTheHostAreRefusedInside",
}

// Every message in the files about flags and verbs is tried above, or there is a
// reason why not.
func TestEveryMessageOfTheCommandIsTried(t *testing.T) {
	var said strings.Builder
	for _, c := range fixes {
		said.WriteString(c.want + "\n")
	}
	said.WriteString("BAILEY_SETTINGS and BAILEY_PRESET are both set; unset one\n")
	count := 0
	for _, name := range []string{"flags.go", "load.go", "limits.go", "box.go", "verbs.go", "trust.go", "import.go", "hooks.go", "question.go", "log.go", "config.go", "completion.go", "learn_linux.go"} {
		for at, text := range messagesIn(t, name) {
			count++
			if !strings.Contains(said.String(), text) && !isExcused(text) {
				t.Errorf("%s: nothing brings about %q", at, text)
			}
		}
	}
	if count < 50 {
		t.Errorf("only %d messages were found", count)
	}
}

func isExcused(text string) bool {
	for part := range untried {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// messagesIn returns the longest written part of every error that a file makes, by
// its place.
func messagesIn(t *testing.T, name string) map[string]string {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, filepath.Join(testenv.ModuleRoot(t), "cmd/bailey", name), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		function, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || function.Sel.Name != "Errorf" && (fmt.Sprint(function.X) != "errors" || function.Sel.Name != "New") {
			return true
		}
		longest := ""
		ast.Inspect(call.Args[0], func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, _ := strconv.Unquote(literal.Value)
			for _, part := range strings.Split(text, "%") {
				part = strings.TrimLeft(part, "swvdq")
				if len(part) > len(longest) {
					longest = part
				}
			}
			return true
		})
		if longest = strings.Trim(longest, " :;"); len(longest) > 3 {
			found[set.Position(n.Pos()).String()] = longest
		}
		return true
	})
	return found
}

func TestTrustTakesNoForAnAnswer(t *testing.T) {
	b := newBench(t)
	b.write("bailey.jsonc", "{}", 0o644)
	for _, c := range []struct {
		answer, want string
		status       int
	}{{"n\r", "not trusted", exitOwn}, {"\r", "not trusted", exitOwn}, {"y\r", "trusted", 0}} {
		s := openScreen(t)
		s.start(b.command("trust"))
		s.expect("Trust it? [y/N] ")
		s.write(c.answer)
		s.expect(c.want)
		if got := s.wait(); got != c.status {
			t.Errorf("%q: status %d, want %d", c.answer, got, c.status)
		}
	}
}

func TestWhatIsOutOfReachInsideIsSaid(t *testing.T) {
	b, run := nestedBench(t)
	for line, want := range map[string]string{
		"bailey trust":  "inside a sandbox nothing can be trusted",
		"bailey log":    "inside a sandbox there is no audit log; run this outside",
		"bailey box ps": "box: resident sandboxes are out of reach from inside one",
	} {
		run(line).want(t, exitOwn, "", "bailey: "+want+"\n")
	}
	// What two of them say.
	for _, words := range [][]string{{"log"}, {"box", "ps"}} {
		if got := b.run(words...); got.status != 0 {
			t.Errorf("%q outside: %+v", words, got)
		}
	}
}
