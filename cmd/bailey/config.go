package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	_ "embed"

	"github.com/bailey-sandbox/bailey/docs/schema"
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// starter is the file that "config init" writes.
//
//go:embed starter.jsonc
var starter string

func runConfig(r *request) int {
	if len(r.args) == 0 {
		return fail(r.usage())
	}
	what := r.args[0]
	if what != "validate" && len(r.args) > 1 {
		return fail(r.usage())
	}
	switch what {
	case "show":
		return configShow(r)
	case "init":
		return configInit()
	case "validate":
		return configValidate(r, r.args[1:])
	case "schema":
		return answer(string(schema.JSON))
	case "path":
		return configPath(r)
	}
	return fail(r.usage())
}

// configShow prints where the policy comes from on stderr, and on stdout the
// policy itself, which is a valid file. It is what people paste into reports: a
// proxy's password is not in it.
func configShow(r *request) int {
	m, err := r.manager()
	if err != nil {
		return fail(err)
	}
	l := m.Loaded()
	shown, other := l.Policy.WithoutPassword()
	if !r.settledQuiet() {
		text := describeChain(l)
		if other {
			text += "network.upstreamProxy is shown without its user and password\n"
		}
		for _, b := range l.Policy.Bounds {
			text += "bound: every path must also be granted by " +
				strings.TrimSpace(string(policy.Marshal(policy.Policy{Filesystem: b}, ""))) + "\n"
		}
		for _, rules := range l.Policy.RuleBounds {
			text += "bound: every path of the project must also be permitted by " +
				strings.TrimSpace(string(policy.Marshal(policy.Policy{Workspace: policy.Workspace{Rules: rules}}, ""))) + "\n"
		}
		say(tagNote, text)
	}
	return answer(string(policy.Marshal(shown, "  ")))
}

func configInit() int {
	const name = "bailey.jsonc"
	if _, err := os.Lstat("bailey.json"); err == nil {
		return fail(errors.New("bailey.json is there already"))
	}
	err := writeNew(name, []byte(starter))
	if errors.Is(err, fs.ErrExist) {
		return fail(errors.New(name + " is there already"))
	}
	if err != nil {
		return fail(err)
	}
	say(tagNote, "wrote "+name+"; edit it, check it with: bailey config validate; then let it grant with: bailey trust")
	return 0
}

// configValidate checks files, or without any the one that would be used.
func configValidate(r *request, files []string) int {
	c, err := r.config()
	if err != nil {
		return fail(err)
	}
	if len(files) == 0 {
		file, err := usedFile(c)
		if err != nil {
			return fail(err)
		}
		if file == "" {
			return fail(errors.New("there is no policy file here or above, nor one of your own; make one with: bailey config init"))
		}
		files = []string{file}
	}
	status := 0
	for _, file := range files {
		c.Settings, c.Preset, c.Policy = file, "", nil
		if err := validate(c); err != nil {
			status = fail(err)
			continue
		}
		if !r.settledQuiet() {
			say(tagNote, printable(file)+" is valid")
		}
	}
	return status
}

// validate reads a policy, and says which of its restrictions this system cannot hold.
// What it says of files that are not here may be meant for another machine.
func validate(c sandbox.Config) error {
	m := sandbox.New(c)
	if err := m.Initialize(); err != nil {
		return err
	}
	over, err := supposedOverlay(m)
	if err != nil {
		return nil //nolint:nilerr // it is about this directory, not about the policy
	}
	s, err := m.CompileCommand(spec.Command{Argv: []string{"sh"}, Overlay: over})
	if err == nil {
		err = spec.Locate(limits.Check(s.Limits), m.Loaded().Policy.Origins)
	}
	var refused *spec.Refused
	if !errors.As(err, &refused) {
		return err
	}
	reasons := slices.DeleteFunc(refused.Reasons, func(u *spec.Unsupported) bool { return u.Here || u.At.File == "" })
	if len(reasons) == 0 {
		return nil
	}
	return &spec.Refused{Reasons: reasons}
}

// configPath prints the file a command here would run with, if there is one.
func configPath(r *request) int {
	c, err := r.config()
	if err != nil {
		return fail(err)
	}
	file, err := usedFile(c)
	if err != nil {
		return fail(err)
	}
	if file == "" {
		return fail(errors.New("no policy file is used"))
	}
	return answer(file + "\n")
}

// usedFile is the file a command would run with, or "".
func usedFile(c sandbox.Config) (string, error) {
	if c.Settings != "" || c.Preset != "" || len(c.Policy) > 0 {
		return c.Settings, nil
	}
	facts, err := host.New()
	if err != nil {
		return "", err
	}
	dir := facts.Caller.Dir
	if c.Dir != "" {
		if dir, err = filepath.Abs(c.Dir); err != nil {
			return "", err
		}
	}
	file, err := policy.FindProject(dir)
	if err != nil || file != "" {
		return file, err
	}
	own := policy.UserFile(sandbox.ConfigHome(facts.Caller.Home))
	if _, err := os.Stat(own); err == nil {
		return own, nil
	}
	return "", nil
}
