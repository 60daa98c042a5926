package main

import (
	"bytes"
	"encoding/json"
	"os"

	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// runExplain prints the Spec of a command. Without one it is that of a shell.
func runExplain(r *request) int {
	if r.isQuestion() {
		return r.explainOne()
	}
	m, err := r.managerInImage()
	if err != nil {
		return fail(err)
	}
	argv := []string{"sh"}
	if len(r.args) > 0 || r.hasLine {
		if argv, err = r.command(); err != nil {
			return fail(err)
		}
	}
	s, err := r.supposed(m, argv)
	if err == nil {
		err = spec.Locate(limits.Check(s.Limits), m.Loaded().Policy.Origins)
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

// managerInImage finds the effective policy, and the image that it or a flag names.
func (r *request) managerInImage() (*sandbox.Manager, error) {
	if err := r.openImage(); err != nil {
		return nil, err
	}
	m, err := r.manager()
	if err != nil {
		return nil, err
	}
	wants, err := r.wantsImage(m)
	if err == nil && wants {
		err = r.openImage()
	}
	return m, err
}

// supposed compiles a command that is not run.
func (r *request) supposed(m *sandbox.Manager, argv []string) (*spec.Spec, error) {
	over, err := supposedOverlay(m)
	if err != nil {
		return nil, err
	}
	return m.CompileCommand(spec.Command{Argv: argv, Overlay: over, Image: r.image.found})
}

func explainJSON(s *spec.Spec) int {
	if s.Gate != nil {
		shown, gate := *s, *s.Gate
		gate.Config.Upstream = gate.Config.Upstream.Redacted()
		shown.Gate = &gate
		s = &shown
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		return fail(err)
	}
	return answer(b.String())
}
