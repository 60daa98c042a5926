package main

import (
	"bytes"
	"encoding/json"
	"os"

	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// runExplain prints the Spec of a command. Without one it is that of a shell.
func runExplain(r *request) int {
	if r.isQuestion() {
		return r.explainOne()
	}
	argv := []string{"sh"}
	if len(r.args) > 0 || r.hasLine {
		var err error
		if argv, err = r.command(); err != nil {
			return fail(err)
		}
	}
	m, err := r.manager()
	if err != nil {
		return fail(err)
	}
	s, err := m.Compile(argv)
	if err == nil {
		err = limits.Check(s.Limits)
	}
	if err != nil {
		return fail(err)
	}
	if r.json {
		return explainJSON(s)
	}
	if !r.settledQuiet() {
		say(tagNote, describeChain(m.Loaded()))
	}
	if err := spec.Explain(os.Stdout, s); err != nil {
		return fail(err)
	}
	if text := explainProgram(s); text != "" {
		return answer("\nprogram\n" + indent(text+"\n"))
	}
	return 0
}

func explainJSON(s *spec.Spec) int {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		return fail(err)
	}
	return answer(b.String())
}
