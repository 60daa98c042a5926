package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

func runCompletion(r *request) int {
	if len(r.args) != 1 {
		return fail(r.usage())
	}
	switch r.args[0] {
	case "bash":
		return answer(bashCompletion())
	case "zsh":
		return answer(zshCompletion())
	case "fish":
		return answer(fishCompletion())
	}
	return fail(errors.New("completion: no completions for " + printable(r.args[0]) + "; there are bash, zsh and fish"))
}

// listBoxes prints the names of resident sandboxes, for any shell.
const listBoxes = `bailey box ps 2>/dev/null | sed -n '2,$s/[ *].*//p'`

// listWorkspaces does the same for workspaces.
const listWorkspaces = `bailey ws list 2>/dev/null | sed -n '2,$s/ .*//p'`

// runtimes is what --runtime can be completed to.
func runtimes() []string { return append([]string{"auto"}, spec.Runtimes()...) }

func verbNames() []string {
	var out []string
	for _, v := range verbs() {
		out = append(out, v.name)
	}
	return out
}

// argument says what may follow the words that a verb was given.
type argument struct {
	after string   // the verb and the words; may end in a star
	words []string // nil: files
	boxes bool     // names of resident sandboxes instead
	works bool     // names of workspaces instead
}

func arguments() []argument {
	var out []argument
	for _, v := range verbs() {
		if len(v.words) > 0 {
			out = append(out, argument{after: v.name, words: v.words})
		}
	}
	return append(out,
		argument{after: "config validate*"},
		argument{after: "presets show", words: policy.PresetNames()},
		argument{after: "trust"},
		argument{after: "box exec", boxes: true},
		argument{after: "box logs", boxes: true},
		argument{after: "box stop*", boxes: true},
		argument{after: "ws diff", works: true}, argument{after: "ws diff *"},
		argument{after: "ws apply", works: true}, argument{after: "ws apply *"},
		argument{after: "ws undo", works: true},
		argument{after: "ws discard*", works: true},
		argument{after: "ws snapshot", works: true}, argument{after: "ws snapshots", works: true},
		argument{after: "ws fork", works: true}, argument{after: "ws rollback", works: true},
		argument{after: "ws squash", works: true}, argument{after: "ws export", works: true},
		argument{after: "help", words: verbNames()})
}

// spellings are the ways to write a flag.
func (f *flag) spellings() []string {
	var out []string
	if f.short != "" {
		out = append(out, "-"+f.short)
	}
	if f.long != "" {
		out = append(out, "--"+f.long)
	}
	return out
}

// words lists every spelling of the flags that a condition holds for.
func words(list []flag, want func(*flag) bool) []string {
	var out []string
	for i := range list {
		if want(&list[i]) {
			out = append(out, list[i].spellings()...)
		}
	}
	return out
}

// everyFlag lists the flags of the command and of all verbs.
func everyFlag() []flag {
	all := slices.Concat(flags, runFlags)
	for _, v := range verbs() {
		all = append(all, v.flags...)
	}
	return all
}

// dialect is how a shell says what completes a word. The scripts differ in
// little else: each walks over the words as parse does, and then looks up where
// it has arrived.
type dialect struct {
	// script has names in @ for what depends on the tables.
	script string
	// either joins patterns, and arm is a branch for when one of them matches.
	either func(patterns ...string) string
	arm    func(patterns, action string) string
	// offer offers words, each with what it means if that is known.
	offer func(words [][2]string) string
	// What the shell itself can complete.
	files, directories, variables, programs, boxes, works, nothing string
}

func (d *dialect) completion() string {
	var names, commands []string
	var described [][2]string
	begins := []string{"/*"}
	for _, v := range verbs() {
		names = append(names, "/"+v.name)
		described = append(described, [2]string{v.name, v.text})
		if v.command {
			commands = append(commands, v.name)
			begins = append(begins, v.name+"/*")
		}
	}
	var switches, letters string
	for _, f := range everyFlag() {
		if !f.takesWord() {
			switches += f.short
		} else {
			letters += f.short
		}
	}
	return strings.NewReplacer(
		"@VALUED@", d.either(words(everyFlag(), (*flag).takesWord)...),
		"@SWITCHES@", switches,
		"@LETTERS@", letters,
		"@ISVERB@", d.either(names...),
		"@BEGINSCOMMAND@", d.either(begins...),
		"@TAKESCOMMAND@", d.either(commands...),
		"@VALUES@", d.values(),
		"@FLAGS@", d.offer(describe(flags)),
		"@OWNFLAGS@", d.ownFlags(),
		"@VERBS@", d.offer(described),
		"@ARGUMENTS@", d.arguments(),
	).Replace(d.script)
}

// describe lists every spelling of flags with what they do.
func describe(list []flag) [][2]string {
	var out [][2]string
	for i := range list {
		for _, s := range list[i].spellings() {
			out = append(out, [2]string{s, list[i].text})
		}
	}
	return out
}

func undescribed(words []string) [][2]string {
	var out [][2]string
	for _, w := range words {
		out = append(out, [2]string{w})
	}
	return out
}

// ownFlags has a branch for each verb that has flags of its own, and one for
// when there is no verb.
func (d *dialect) ownFlags() string {
	var b strings.Builder
	b.WriteString(d.arm(d.either(""), d.offer(describe(runFlags))))
	for _, v := range verbs() {
		if len(v.flags) > 0 {
			b.WriteString(d.arm(d.either(v.name), d.offer(describe(v.flags))))
		}
	}
	return b.String()
}

// values has a branch for each flag that takes a value.
func (d *dialect) values() string {
	var b strings.Builder
	for _, f := range everyFlag() {
		if f.takesWord() {
			b.WriteString(d.arm(d.either(f.spellings()...), d.value(&f)))
		}
	}
	return b.String()
}

func (d *dialect) value(f *flag) string {
	switch f.hint {
	case hintFile:
		return d.files
	case hintPath:
		if f.value == "DIR" {
			return d.directories
		}
		return d.files
	case hintPreset:
		return d.offer(undescribed(policy.PresetNames()))
	case hintRuntime:
		return d.offer(undescribed(runtimes()))
	case hintVariable:
		return d.variables
	case hintProgram:
		return d.programs
	case hintBox:
		return d.boxes
	}
	return d.nothing
}

// arguments has a branch for each place among a verb's arguments where
// something is known to fit.
func (d *dialect) arguments() string {
	var b strings.Builder
	for _, a := range arguments() {
		action := d.files
		if a.words != nil {
			action = d.offer(undescribed(a.words))
		}
		switch {
		case a.boxes:
			action = d.boxes
		case a.works:
			action = d.works
		}
		b.WriteString(d.arm(d.either(a.after), action))
	}
	return b.String()
}

func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// eitherSh and armSh are for the shells whose case is that of sh.
func eitherSh(patterns ...string) string {
	if slices.Equal(patterns, []string{""}) {
		return "''"
	}
	return strings.ReplaceAll(strings.Join(patterns, "|"), " ", `\ `)
}

func armSh(patterns, action string) string { return "    " + patterns + ") " + action + " ;;\n" }

func bashCompletion() string {
	d := dialect{
		script: bashScript, either: eitherSh, arm: armSh,
		offer: func(words [][2]string) string {
			var b strings.Builder
			for _, w := range words {
				b.WriteString(" " + w[0])
			}
			return "_bailey_add -W '" + b.String()[1:] + "'"
		},
		files:       "compopt -o default",
		directories: "compopt -o dirnames",
		variables:   "_bailey_add -e",
		programs:    "_bailey_programs",
		boxes:       `_bailey_add -W "$(` + listBoxes + `)"`,
		works:       `_bailey_add -W "$(` + listWorkspaces + `)"`,
		nothing:     ":",
	}
	return d.completion()
}

// bashScript leaves file names to readline, which knows how to quote them. It
// does not need the bash-completion package, but uses it, where it is loaded,
// for the command's own arguments.
const bashScript = `# bash completion for bailey: eval "$(bailey completion bash)"
_bailey_add() {
  local word
  while IFS= read -r word; do
    COMPREPLY+=("$word")
  done < <(compgen "$@" -- "$cur")
}

_bailey_programs() {
  if [[ $cur == */* ]]; then
    compopt -o default
  else
    _bailey_add -c
  fi
}

_bailey() {
  local cur=${COMP_WORDS[COMP_CWORD]} i=1 start=0 word flag='' verb='' given=''
  COMPREPLY=()
  while ((i < COMP_CWORD)); do
    word=${COMP_WORDS[i]}
    ((i++))
    case $word in
    --)
      start=$i
      break
      ;;
    -*)
      # Of joined letters the last may take a value.
      [[ $word =~ ^-[@SWITCHES@]+[@LETTERS@]$ ]] && word=-${word: -1}
      case $word in
      @VALUED@)
        # --flag=value are three words here.
        [[ ${COMP_WORDS[i]} == = ]] && ((i++))
        ((i < COMP_CWORD)) || flag=$word
        ((i++))
        ;;
      esac
      ;;
    *)
      case $given/$word in
      @ISVERB@) verb=$word given=$word ;;
      @BEGINSCOMMAND@)
        start=$((i - 1))
        break
        ;;
      *) given+=" $word" ;;
      esac
      ;;
    esac
  done
  [[ -n $flag && $cur == = ]] && cur=''
  if ((start > 0 && start < COMP_CWORD)); then
    if declare -F _comp_command_offset >/dev/null; then
      _comp_command_offset "$start"
    elif declare -F _command_offset >/dev/null; then
      _command_offset "$start"
    else
      compopt -o default
    fi
    return
  fi
  if ((start > 0)); then
    _bailey_programs
    return
  fi
  case $flag in
    '') ;;
@VALUES@  esac
  [[ -z $flag ]] || return
  if [[ $cur == -* ]]; then
    @FLAGS@
    _bailey_add -W --
    case $verb in
@OWNFLAGS@    esac
    return
  fi
  case $given in
    '')
      @VERBS@
      _bailey_programs
      ;;
    @TAKESCOMMAND@) _bailey_programs ;;
@ARGUMENTS@  esac
}
complete -F _bailey bailey
`

func zshCompletion() string {
	d := dialect{
		script: zshScript, either: eitherSh, arm: armSh,
		offer: func(words [][2]string) string {
			var b strings.Builder
			for _, w := range words {
				text := w[0]
				if w[1] != "" {
					text += ":" + w[1]
				}
				b.WriteString(" " + quoteShell(text))
			}
			how := "_describe value list"
			if strings.HasPrefix(words[0][0], "-") {
				how = "_describe -o flag list"
			}
			return "list=(" + b.String()[1:] + "); " + how
		},
		files:       "_files",
		directories: "_files -/",
		variables:   "_parameters -g '*export*'",
		programs:    "_alternative 'commands:command:_command_names -e' 'files:file:_files'",
		boxes:       `compadd -- ${(f)"$(` + listBoxes + `)"}`,
		works:       `compadd -- ${(f)"$(` + listWorkspaces + `)"}`,
		nothing:     "_message value",
	}
	return d.completion()
}

const zshScript = `#compdef bailey
# zsh completion for bailey: put it in a directory of $fpath as _bailey,
# or: source <(bailey completion zsh)

# Completes the words from the one after $1 on as a command line of their own.
_bailey_programs() {
  words=("${(@)words[$1 + 1,-1]}")
  (( CURRENT -= $1 ))
  _normal
}

_bailey() {
  local word flag verb given
  local -a list
  integer i=2
  while (( i < CURRENT )); do
    word=$words[i]
    (( i++ ))
    case $word in
    --)
      _bailey_programs $(( i - 1 ))
      return
      ;;
    -*)
      # Of joined letters the last may take a value.
      [[ $word =~ '^-[@SWITCHES@]+[@LETTERS@]$' ]] && word=-$word[-1]
      case $word in
      @VALUED@)
        (( i < CURRENT )) || flag=$word
        (( i++ ))
        ;;
      esac
      ;;
    *)
      case $given/$word in
      @ISVERB@) verb=$word given=$word ;;
      @BEGINSCOMMAND@)
        _bailey_programs $(( i - 2 ))
        return
        ;;
      *) given+=" $word" ;;
      esac
      ;;
    esac
  done
  if [[ -z $flag && $words[CURRENT] == --*=* ]]; then
    flag=${words[CURRENT]%%=*}
    compset -P '*='
  fi
  case $flag in
    '') ;;
@VALUES@  esac
  [[ -z $flag ]] || return
  if [[ $words[CURRENT] == -* ]]; then
    @FLAGS@
    case $verb in
@OWNFLAGS@    esac
    return
  fi
  case $given in
    '')
      @VERBS@
      _bailey_programs $(( CURRENT - 1 ))
      ;;
    @TAKESCOMMAND@) _bailey_programs $(( CURRENT - 1 )) ;;
@ARGUMENTS@  esac
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _bailey "$@"
else
  compdef _bailey bailey
fi
`

func fishCompletion() string {
	d := dialect{
		script: fishScript,
		either: func(patterns ...string) string {
			var b strings.Builder
			for _, p := range patterns {
				b.WriteString(" " + quoteShell(p))
			}
			return b.String()[1:]
		},
		arm: func(patterns, action string) string { return "    case " + patterns + "\n      " + action + "\n" },
		offer: func(words [][2]string) string {
			var b strings.Builder
			for _, w := range words {
				b.WriteString(" " + quoteShell(w[0]) + " " + quoteShell(w[1]))
			}
			return `printf '%s\t%s\n'` + b.String()
		},
		files:       "__fish_complete_path $cur",
		directories: "__fish_complete_directories $cur ''",
		variables:   "set -xn",
		programs:    "complete -C $cur",
		boxes:       listBoxes,
		works:       listWorkspaces,
		nothing:     "true",
	}
	return d.completion()
}

const fishScript = `# fish completion for bailey: bailey completion fish | source

# Completes the last of the words as part of a command line of their own.
function __bailey_programs
  complete -C (string join ' ' -- (string escape -- $argv) (commandline -ct))
end

function __bailey_value -a flag cur
  switch $flag
@VALUES@  end
end

function __bailey
  set -l words (commandline -opc)
  set -l cur (commandline -ct)
  set -l flag
  set -l verb
  set -l given
  set -e words[1]
  while set -q words[1]
    set -l word $words[1]
    set -e words[1]
    switch $word
      case --
        __bailey_programs $words
        return
      case '-*'
        # Of joined letters the last may take a value.
        string match -qr '^-[@SWITCHES@]+[@LETTERS@]$' -- $word
        and set word -(string sub -s -1 -- $word)
        switch $word
          case @VALUED@
            set -q words[1]
            or set flag $word
            set -e words[1]
        end
      case '*'
        switch "$given/$word"
          case @ISVERB@
            set verb $word
            set given $word
          case @BEGINSCOMMAND@
            __bailey_programs $word $words
            return
          case '*'
            set given "$given $word"
        end
    end
  end
  if test -n "$flag"
    __bailey_value $flag $cur
    return
  end
  if set -l parts (string match -r '^(--[^=]*)=(.*)$' -- $cur)
    string replace -r '^' -- "$parts[2]=" (__bailey_value $parts[2] $parts[3])
    return
  end
  if string match -q -- '-*' $cur
    @FLAGS@
    switch "$verb"
@OWNFLAGS@    end
    return
  end
  switch "$given"
    case ''
      @VERBS@
      __bailey_programs
    case @TAKESCOMMAND@
      __bailey_programs
@ARGUMENTS@  end
end

complete -c bailey -e
complete -c bailey -f -a '(__bailey)'
`
