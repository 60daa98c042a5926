package seatbelt

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// form is a list, a word, or a string of a profile's text.
type form struct {
	list []form
	word string
	text string
	kind byte // '(', 'w', '"'
}

// read takes a profile's text apart. It is stricter than Seatbelt: what it does not
// know is an error.
func read(text string) (forms []form, err error) {
	r := &reader{text: text}
	for r.space(); r.at < len(r.text); r.space() {
		f, err := r.form()
		if err != nil {
			return nil, err
		}
		forms = append(forms, f)
	}
	return forms, nil
}

type reader struct {
	text string
	at   int
}

func (r *reader) space() {
	for r.at < len(r.text) && (r.text[r.at] == ' ' || r.text[r.at] == '\n') {
		r.at++
	}
}

func (r *reader) form() (form, error) {
	switch {
	case r.at == len(r.text):
		return form{}, fmt.Errorf("the text ends in a list")
	case r.text[r.at] == '(':
		return r.list()
	case r.text[r.at] == '"':
		return r.quoted(1)
	case strings.HasPrefix(r.text[r.at:], `#"`):
		return r.quoted(2)
	}
	n := strings.IndexAny(r.text[r.at:], " \n()\"")
	if n <= 0 || strings.Trim(r.text[r.at:r.at+n], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_*") != "" {
		return form{}, fmt.Errorf("no word at %d", r.at)
	}
	r.at += n
	return form{kind: 'w', word: r.text[r.at-n : r.at]}, nil
}

func (r *reader) list() (form, error) {
	f := form{kind: '('}
	r.at++
	for r.space(); r.at == len(r.text) || r.text[r.at] != ')'; r.space() {
		child, err := r.form()
		if err != nil {
			return f, err
		}
		f.list = append(f.list, child)
	}
	r.at++
	return f, nil
}

func (r *reader) quoted(skip int) (form, error) {
	text, _, ok := strings.Cut(r.text[r.at+skip:], `"`)
	if !ok || strings.Contains(text, `\`) {
		return form{}, fmt.Errorf("no string at %d", r.at)
	}
	r.at += skip + len(text) + 1
	return form{kind: '"', text: text}, nil
}

func (f form) head() string {
	if len(f.list) > 0 {
		return f.list[0].word
	}
	return ""
}

// judge decides operations as Seatbelt is documented to: by the last rule that
// matches.
type judge struct {
	rules  []form
	params map[string]string
}

func newJudge(t testing.TB, p *Profile) *judge {
	t.Helper()
	forms, err := read(p.Text)
	if err != nil {
		t.Fatal(err)
	}
	j := &judge{rules: forms, params: make(map[string]string)}
	for _, v := range p.Params {
		j.params[v.Name] = v.Value
	}
	return j
}

// allows says whether a path may be used; for a socket's the operation is
// network-outbound.
func (j *judge) allows(operation, path string) bool {
	allowed := false
	for _, rule := range j.rules {
		if rule.head() == "version" || !names(rule, operation) {
			continue
		}
		if j.matches(rule, operation, path) {
			allowed = rule.head() == "allow"
		}
	}
	return allowed
}

// names says whether a rule is about an operation, by its name or a wildcard's.
func names(rule form, operation string) bool {
	for _, f := range rule.list[1:] {
		prefix, wild := strings.CutSuffix(f.word, "*")
		if f.kind == 'w' && (f.word == operation || f.word == "default" || wild && strings.HasPrefix(operation, prefix)) {
			return true
		}
	}
	return false
}

// matches: filters are alternatives, and none means everything.
func (j *judge) matches(rule form, operation, path string) bool {
	filters := 0
	for _, f := range rule.list[1:] {
		if f.kind == '(' {
			filters++
			if j.filter(f, operation, path) {
				return true
			}
		}
	}
	return filters == 0
}

func (j *judge) filter(f form, operation, path string) bool {
	switch f.head() {
	case "literal", "path-literal":
		return j.value(f.list[1]) == path
	case "subpath":
		return spec.Covers(j.value(f.list[1]), path)
	case "regex":
		return bytesMatch(j.value(f.list[1]), path)
	case "require-not":
		return !j.filter(f.list[1], operation, path)
	case "require-any", "require-all":
		all := f.head() == "require-all"
		for _, child := range f.list[1:] {
			if j.filter(child, operation, path) != all {
				return !all
			}
		}
		return all
	case "remote":
		return f.list[1].word == "unix-socket" && operation == "network-outbound" && (len(f.list) == 2 || j.filter(f.list[2], operation, path))
	}
	return false // about something that is no path
}

func (j *judge) value(f form) string {
	if f.kind == '"' {
		return f.text
	}
	if f.head() != "param" {
		panic("not a value: " + f.head())
	}
	v, ok := j.params[f.list[1].text]
	if !ok {
		panic("no parameter " + f.list[1].text)
	}
	return v
}

// bytesMatch applies an expression to bytes, each as a character of its own.
func bytesMatch(expression, path string) bool {
	return regexp.MustCompile("(?s)" + latin(expression)).MatchString(latin(path))
}

func latin(s string) string {
	r := make([]rune, len(s))
	for i := range len(s) {
		r[i] = rune(s[i])
	}
	return string(r)
}

func TestReaderRefusesWhatIsNoProfile(t *testing.T) {
	for _, text := range []string{"(", ")", `(a "b)`, `(a "\x")`, "(a ; b)", "(a 'b)", `(a "b" c`} {
		if _, err := read(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
	if forms, err := read("(a (b \"c d\") #\"e\")\n(f)"); err != nil || len(forms) != 2 || forms[0].list[1].list[1].text != "c d" {
		t.Errorf("got %v, %v", forms, err)
	}
}
