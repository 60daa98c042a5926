package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// agent is a program that has a preset of its own name: typed without "--", it
// runs with what that preset grants besides the policy that holds here.
type agent struct {
	install string // how to get it
	// args come first. They switch off a sandbox of the agent's own, which
	// cannot be made inside of another.
	args []string
}

// isAgent decides without any table: every command comes through here.
func isAgent(name string) bool {
	switch name {
	case "aider", "amp", "claude", "codex", "copilot", "cursor-agent", "gemini", "opencode":
		return true
	}
	return false
}

func findAgent(name string) agent {
	switch name {
	case "aider":
		return agent{install: "pipx install aider-chat"}
	case "amp":
		return agent{install: "npm install -g @sourcegraph/amp"}
	case "claude":
		return agent{install: "npm install -g @anthropic-ai/claude-code"}
	case "codex":
		return agent{install: "npm install -g @openai/codex", args: []string{"-c", `sandbox_mode="danger-full-access"`}}
	case "copilot":
		return agent{install: "npm install -g @github/copilot"}
	case "cursor-agent":
		return agent{install: "curl https://cursor.com/install -fsS | bash", args: []string{"--sandbox", "disabled"}}
	case "gemini":
		return agent{install: "npm install -g @google/gemini-cli"}
	default: // opencode
		return agent{install: "npm install -g opencode-ai"}
	}
}

// prepareAgent finds the agent that was asked for, lets it be read where it is
// installed, and returns the argv that starts it.
func (r *request) prepareAgent() ([]string, error) {
	a := findAgent(r.agent)
	program := lookPath(r.agent)
	if program == "" {
		return nil, errors.New(r.agent + " is not installed, or not in PATH; to install it: " + a.install)
	}
	r.grants.Filesystem.AllowRead = append(r.grants.Filesystem.AllowRead, entries(installed(program))...)
	// Its hooks may name this program, and refuse every command without it.
	if self, err := os.Executable(); err == nil {
		r.grants.Filesystem.AllowRead = append(r.grants.Filesystem.AllowRead, pattern.Entry(self))
	}
	argv := append([]string{r.agent}, a.args...)
	return append(argv, r.args[1:]...), nil
}

// entries returns the entries of a policy that name these paths.
func entries(paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = pattern.Entry(p)
	}
	return out
}

// installed lists what a program consists of, besides what the system has: the
// packages around one of npm's, the virtual environment of one in Python, or
// else the file alone.
func installed(program string) []string {
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return []string{program}
	}
	const modules = "/node_modules"
	if i := strings.Index(real, modules+"/"); i >= 0 {
		return []string{program, real[:i+len(modules)]}
	}
	around := filepath.Dir(filepath.Dir(real))
	if _, err := os.Stat(filepath.Join(around, "pyvenv.cfg")); err == nil {
		return append([]string{program, around}, interpreterOf(around)...)
	}
	return []string{program, real}
}

// interpreterOf lists what the interpreter of a virtual environment needs of the
// installation that it belongs to.
func interpreterOf(environment string) []string {
	program := filepath.Join(environment, "bin/python3")
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return nil
	}
	libraries, _ := filepath.Glob(filepath.Join(filepath.Dir(real), "../lib/*python3*")) // the pattern is right
	return append(libraries, program)
}

// makeState makes the directories that an agent keeps its state in, as it would
// at its first start: what does not exist cannot be granted, and would be gone
// at the end.
func (r *request) makeState() error {
	facts, err := host.New()
	if err != nil {
		return err
	}
	data, _ := policy.Preset(r.agent)
	own, err := policy.Parse(r.agent, data)
	if err != nil {
		return err
	}
	for _, list := range [][]string{own.Filesystem.AllowWrite, own.Filesystem.PrivateWrite} {
		for _, dir := range list {
			below, ok := strings.CutPrefix(dir, "~/")
			if !ok || facts.Caller.Home == "" {
				continue
			}
			if err := os.MkdirAll(filepath.Join(facts.Caller.Home, below), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	return nil
}
