// Package line judges a line of shell before a shell runs it, with a full
// parser. It stands apart from package command so that a program which cannot
// afford the parser need not link it.
package line

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/bailey-sandbox/bailey/internal/command"
)

// Judge refuses a line in which a command stands that is certain to be denied:
// in a list, a pipeline, a subshell or a substitution, behind env or sudo, in
// the text of "sh -c", or in a here-document that a shell reads. It says nothing
// about what only the shell will know, and nothing about a line that does not
// parse: the shell says that better.
func Judge(r *command.Rules, text string) command.Verdict {
	return r.TypedText(text, Split)
}

// maxOpen bounds how deeply a text can nest, because the parser calls itself for
// each level.
const maxOpen = 500

// Split is a command.Splitter. It reads bash, of which other shells' lines are
// nearly always a part.
func Split(text string) [][]string {
	if strings.Count(text, "(")+strings.Count(text, "{")+strings.Count(text, "`") > maxOpen {
		return command.Split(text)
	}
	// Shells drop NUL bytes.
	text = strings.ReplaceAll(text, "\x00", "")
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		return nil
	}
	s := splitter{own: map[string]bool{}}
	syntax.Walk(file, s.names)
	syntax.Walk(file, s.visit)
	return s.commands
}

type splitter struct {
	// own are the functions the text declares, which hide programs.
	own      map[string]bool
	commands [][]string
}

func (s *splitter) names(node syntax.Node) bool {
	if f, ok := node.(*syntax.FuncDecl); ok && f.Name != nil {
		s.own[f.Name.Value] = true
	}
	return true
}

func (s *splitter) visit(node syntax.Node) bool {
	stmt, ok := node.(*syntax.Stmt)
	if !ok {
		return true
	}
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		return true
	}
	argv := words(call.Args)
	if s.own[argv[0]] {
		return true
	}
	s.commands = append(s.commands, argv)
	if command.ReadsText(argv) {
		s.input(stmt.Redirs)
	}
	return true
}

// input adds what a shell is given to read as a text of its own.
func (s *splitter) input(redirects []*syntax.Redirect) {
	for _, r := range redirects {
		var w word
		switch {
		case r.Op == syntax.WordHdoc:
			w.parts(r.Word.Parts, false)
		case r.Hdoc == nil:
			continue
		case isVerbatim(r.Word):
			w.text = append(w.text, r.Hdoc.Lit()...)
		default:
			w.parts(r.Hdoc.Parts, true)
		}
		s.commands = append(s.commands, []string{"eval", string(w.text)})
	}
}

// isVerbatim is true of a here-document whose delimiter has a quote: nothing in
// it is expanded.
func isVerbatim(delimiter *syntax.Word) bool {
	text := delimiter.Lit()
	return text == "" || strings.Contains(text, `\`)
}

// words reads the words of a command as far as they are known.
func words(args []*syntax.Word) []string {
	argv := make([]string, 0, len(args))
	for _, a := range args {
		var w word
		w.parts(a.Parts, false)
		if w.many {
			return append(argv, command.Rest)
		}
		argv = append(argv, string(w.text))
	}
	return argv
}

// word is the text of a shell word, and whether it may become any number of
// words.
type word struct {
	text []byte
	many bool
}

// parts reads the parts of a word. quoted means that they stand between double
// quotes, or in a here-document.
func (w *word) parts(parts []syntax.WordPart, quoted bool) {
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			w.literal(p.Value, quoted)
		case *syntax.SglQuoted:
			if p.Dollar && strings.Contains(p.Value, `\`) {
				w.unknown(false)
			} else {
				w.text = append(w.text, p.Value...)
			}
		case *syntax.DblQuoted:
			w.parts(p.Parts, true)
		case *syntax.ParamExp:
			w.unknown(!quoted || isAll(p))
		case *syntax.ProcSubst:
			w.unknown(false)
		default:
			w.unknown(!quoted)
		}
	}
}

func (w *word) unknown(many bool) {
	if n := len(w.text); n == 0 || w.text[n-1] != 0 {
		w.text = append(w.text, command.Unknown...)
	}
	w.many = w.many || many
}

// isAll is true of "$@" and "${list[@]}", which are many words even in quotes.
func isAll(p *syntax.ParamExp) bool {
	if p.Param != nil && p.Param.Value == "@" {
		return true
	}
	index, ok := p.Index.(*syntax.Word)
	return ok && index.Lit() == "@"
}

// literal undoes backslashes. Between quotes a backslash only hides what would
// mean something there.
func (w *word) literal(s string, quoted bool) {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && i+1 < len(s):
			next := s[i+1]
			if quoted && strings.IndexByte("$`\"\\\n", next) < 0 {
				w.text = append(w.text, c)
				continue
			}
			i++
			if next != '\n' {
				w.text = append(w.text, next)
			}
		case !quoted && strings.IndexByte("*?[", c) >= 0:
			w.unknown(false)
		default:
			w.text = append(w.text, c)
		}
	}
	if !quoted && hasBraces(s) {
		w.many = true
	}
}

// hasBraces is true of a{b,c} and {1..3}, which become several words.
func hasBraces(s string) bool {
	open := strings.IndexByte(s, '{')
	return open >= 0 && strings.Contains(s[open:], "}") && (strings.Contains(s[open:], ",") || strings.Contains(s[open:], ".."))
}
