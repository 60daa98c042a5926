package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/policy"
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

// runtimes is what --runtime can be completed to.
func runtimes() []string { return []string{"auto", "native"} }

// words lists every spelling of the flags that a condition holds for.
func words(list []flag, want func(*flag) bool) []string {
	var out []string
	for i := range list {
		f := &list[i]
		if !want(f) {
			continue
		}
		if f.short != "" {
			out = append(out, "-"+f.short)
		}
		if f.long != "" {
			out = append(out, "--"+f.long)
		}
	}
	return out
}

func verbNames() []string {
	var out []string
	for _, v := range verbs() {
		out = append(out, v.name)
	}
	return out
}

// bashCompletion does not need the bash-completion package, but uses it, where
// it is loaded, to complete the command's own arguments.
func bashCompletion() string {
	pattern := func(want func(*flag) bool) string { return strings.Join(words(flags, want), "|") }
	byHint := func(h hint) string { return pattern(func(f *flag) bool { return f.hint == h }) }
	var verbCases strings.Builder
	for _, v := range verbs() {
		list := append(v.words[:len(v.words):len(v.words)], words(v.flags, func(*flag) bool { return true })...)
		if v.name == "presets" {
			list = append(list, policy.PresetNames()...)
		}
		if len(list) > 0 {
			fmt.Fprintf(&verbCases, "    %s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")) ;;\n", v.name, strings.Join(list, " "))
		}
	}
	return strings.NewReplacer(
		"@FLAGS@", strings.Join(words(flags, func(*flag) bool { return true }), " "),
		"@VERBS@", strings.Join(verbNames(), " "),
		"@VERBPATTERN@", strings.Join(verbNames(), "|"),
		"@VALUED@", pattern(func(f *flag) bool { return f.value != "" }),
		"@FILES@", byHint(hintFile)+"|"+byHint(hintPath),
		"@PRESETFLAGS@", byHint(hintPreset), "@PRESETS@", strings.Join(policy.PresetNames(), " "),
		"@RUNTIMEFLAGS@", byHint(hintRuntime), "@RUNTIMES@", strings.Join(runtimes(), " "),
		"@VARIABLEFLAGS@", byHint(hintVariable),
		"@PROGRAMFLAGS@", byHint(hintProgram),
		"@VERBCASES@", verbCases.String(),
	).Replace(bashScript)
}

const bashScript = `# bash completion for bailey: eval "$(bailey completion bash)"
_bailey() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev='' i=1 word verb=''
  ((COMP_CWORD > 0)) && prev=${COMP_WORDS[COMP_CWORD-1]}
  COMPREPLY=()
  # Where the command or the verb begins.
  while ((i < COMP_CWORD)); do
    word=${COMP_WORDS[i]}
    case $word in
      --) ((i++)); break ;;
      @VALUED@) ((i += 2)) ;;
      -*) ((i++)) ;;
      @VERBPATTERN@) verb=$word; break ;;
      *) break ;;
    esac
  done
  if [[ -n $verb && $verb != explain ]]; then
    case $verb in
@VERBCASES@    esac
    [[ ${#COMPREPLY[@]} -gt 0 ]] || COMPREPLY=($(compgen -f -- "$cur"))
    return
  fi
  if ((i < COMP_CWORD)) && [[ -z $verb ]]; then
    # The command's own arguments.
    if declare -F _command_offset >/dev/null; then
      _command_offset "$i"
    elif declare -F _comp_command_offset >/dev/null; then
      _comp_command_offset "$i"
    else
      COMPREPLY=($(compgen -f -- "$cur"))
    fi
    return
  fi
  if [[ $prev == -- ]]; then
    COMPREPLY=($(compgen -c -- "$cur"))
    return
  fi
  case $prev in
    @FILES@) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    @PRESETFLAGS@) COMPREPLY=($(compgen -W '@PRESETS@' -- "$cur")); return ;;
    @RUNTIMEFLAGS@) COMPREPLY=($(compgen -W '@RUNTIMES@' -- "$cur")); return ;;
    @VARIABLEFLAGS@) COMPREPLY=($(compgen -v -- "$cur")); return ;;
    @PROGRAMFLAGS@) COMPREPLY=($(compgen -c -- "$cur")); return ;;
  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W '@FLAGS@ --' -- "$cur"))
  else
    COMPREPLY=($(compgen -W '@VERBS@' -- "$cur") $(compgen -c -- "$cur"))
  fi
}
complete -o filenames -F _bailey bailey
`

func zshCompletion() string {
	var b strings.Builder
	b.WriteString("#compdef bailey\n# zsh completion for bailey: put it in a directory of $fpath as _bailey,\n# or: source <(bailey completion zsh)\n\n")
	b.WriteString("_bailey_verbs() {\n  local -a verbs=(\n")
	for _, v := range verbs() {
		fmt.Fprintf(&b, "    %s\n", quoteShell(v.name+":"+v.text))
	}
	b.WriteString("  )\n  _describe -t verbs verb verbs\n}\n\n_bailey() {\n  local curcontext=$curcontext state line\n  typeset -A opt_args\n  _arguments -S -A '-*' \\\n")
	for i := range flags {
		for _, spec := range zshFlag(&flags[i]) {
			fmt.Fprintf(&b, "    %s \\\n", quoteShell(spec))
		}
	}
	b.WriteString("    '1: :->command' '*:: :->rest' && return\n  case $state in\n" +
		"    command) _alternative 'verbs:verb:_bailey_verbs' 'commands:command:_command_names -e' ;;\n" +
		"    rest)\n      case $words[1] in\n")
	for _, v := range verbs() {
		list := append(v.words[:len(v.words):len(v.words)], words(v.flags, func(*flag) bool { return true })...)
		if v.name == "presets" {
			list = append(list, policy.PresetNames()...)
		}
		if len(list) > 0 && !v.command {
			fmt.Fprintf(&b, "        %s) compadd -- %s; _files ;;\n", v.name, strings.Join(list, " "))
		}
	}
	b.WriteString("        *) _normal ;;\n      esac ;;\n  esac\n}\n\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  _bailey \"$@\"\nelse\n  compdef _bailey bailey\nfi\n")
	return b.String()
}

// zshFlag describes a flag, once for each spelling, to _arguments.
func zshFlag(f *flag) []string {
	text := strings.NewReplacer("[", "(", "]", ")", ":", ",").Replace(f.text)
	var out []string
	for _, name := range words([]flag{*f}, func(*flag) bool { return true }) {
		s := "*" + name
		if f.value != "" && strings.HasPrefix(name, "--") {
			s += "="
		}
		s += "[" + text + "]"
		if f.value != "" {
			s += ":" + strings.NewReplacer("[", "", "]", "").Replace(f.value) + ":" + zshAction(f.hint)
		}
		out = append(out, s)
	}
	return out
}

func zshAction(h hint) string {
	switch h {
	case hintFile, hintPath:
		return "_files"
	case hintPreset:
		return "(" + strings.Join(policy.PresetNames(), " ") + ")"
	case hintRuntime:
		return "(" + strings.Join(runtimes(), " ") + ")"
	case hintVariable:
		return "_parameters -g '*export*'"
	case hintProgram:
		return "_command_names -e"
	}
	return " "
}

func fishCompletion() string {
	var b strings.Builder
	b.WriteString("# fish completion for bailey: bailey completion fish | source\n" +
		"function __bailey_before_command\n  for word in (commandline -opc)[2..]\n    switch $word\n      case '-*'\n      case '*'\n        return 1\n    end\n  end\nend\n")
	for i := range flags {
		f := &flags[i]
		line := "complete -c bailey -n __bailey_before_command"
		if f.short != "" {
			line += " -s " + f.short
		}
		if f.long != "" {
			line += " -l " + f.long
		}
		if f.value != "" {
			line += " -r" + fishAction(f.hint)
		}
		b.WriteString(line + " -d " + quoteShell(f.text) + "\n")
	}
	for _, v := range verbs() {
		fmt.Fprintf(&b, "complete -c bailey -n __bailey_before_command -a %s -d %s\n", v.name, quoteShell(v.text))
		list := append(v.words[:len(v.words):len(v.words)], words(v.flags, func(*flag) bool { return true })...)
		if v.name == "presets" {
			list = append(list, policy.PresetNames()...)
		}
		if len(list) > 0 {
			fmt.Fprintf(&b, "complete -c bailey -n '__fish_seen_subcommand_from %s' -a %s\n", v.name, quoteShell(strings.Join(list, " ")))
		}
	}
	b.WriteString("complete -c bailey -n __bailey_before_command -xa '(__fish_complete_subcommand)'\n")
	b.WriteString("complete -c bailey -n 'not __bailey_before_command' -xa '(__fish_complete_subcommand --fcs-skip=1)'\n")
	return b.String()
}

func fishAction(h hint) string {
	switch h {
	case hintFile, hintPath:
		return " -F"
	case hintPreset:
		return " -fa " + quoteShell(strings.Join(policy.PresetNames(), " "))
	case hintRuntime:
		return " -fa " + quoteShell(strings.Join(runtimes(), " "))
	case hintVariable:
		return " -fa '(set -xn)'"
	case hintProgram:
		return " -fa '(__fish_complete_command)'"
	}
	return " -f"
}

func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
