package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey/internal/hooks"
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/plain"
)

func hooksVerb() verb {
	v := verb{
		name: "hooks", args: "print|install|uninstall --AGENT… [FILE]", text: "have an agent's shell commands run in a sandbox",
		words: []string{"print", "install", "uninstall"}, run: runHooks,
	}
	for _, t := range hooks.Targets() {
		v.flags = append(v.flags, flag{string(t), "", "", hookText(t), hintNone, func(r *request, _ string) error {
			r.hooks = append(r.hooks, t)
			return nil
		}})
	}
	return v
}

func hookText(t hooks.Target) string {
	return "of " + map[hooks.Target]string{
		hooks.Claude: "Claude Code", hooks.Codex: "Codex", hooks.Cursor: "Cursor", hooks.OpenCode: "opencode", hooks.Windsurf: "Windsurf",
	}[t]
}

func runHooks(r *request) int {
	if len(r.args) == 0 || len(r.args) > 2 || len(r.hooks) == 0 {
		return fail(r.usage())
	}
	if r.args[0] == "run" {
		return answerHook(r)
	}
	var do func(hooks.Target, string) error
	switch r.args[0] {
	case "print":
		do = printHook
	case "install":
		do = r.installHook
	case "uninstall":
		do = r.uninstallHook
	default:
		return fail(r.usage())
	}
	if len(r.args) == 2 && (len(r.hooks) > 1 || r.args[0] == "print") {
		return fail(errors.New("a file goes with install or uninstall of one agent"))
	}
	for _, t := range r.hooks {
		file, err := r.hookFile(t)
		if err == nil {
			err = do(t, file)
		}
		if err != nil {
			return fail(err)
		}
	}
	return 0
}

// hookFile is the file to edit: the one that was named, or the agent's own.
func (r *request) hookFile(t hooks.Target) (string, error) {
	if len(r.args) == 2 {
		return r.args[1], nil
	}
	facts, err := host.New()
	if err != nil {
		return "", err
	}
	if facts.Caller.Home == "" {
		return "", errors.New("there is no home directory; name the file")
	}
	return t.File(facts.Caller.Home, os.Getenv), nil
}

func printHook(t hooks.Target, file string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := t.Snippet(self)
	if err == nil {
		say(tagNote, "for "+printable(file))
		_, err = os.Stdout.Write(text)
	}
	return err
}

func (r *request) installHook(t hooks.Target, file string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	changed, err := edit(file, func(data []byte) ([]byte, error) { return t.Install(data, self) })
	if err != nil || r.settledQuiet() {
		return err
	}
	if !changed {
		say(tagNote, printable(file)+" has the hook already")
		return nil
	}
	undo := "bailey hooks uninstall --" + string(t)
	if len(r.args) == 2 {
		undo += " " + plain.Word(file)
	}
	say(tagNote, "wrote "+printable(file)+"; to undo: "+undo)
	if note := t.Note(); note != "" {
		say(tagWarning, note)
	}
	return nil
}

func (r *request) uninstallHook(t hooks.Target, file string) error {
	changed, err := edit(file, func(data []byte) ([]byte, error) {
		if data == nil {
			return nil, nil
		}
		return t.Uninstall(data)
	})
	if err != nil || r.settledQuiet() {
		return err
	}
	if !changed {
		say(tagNote, printable(file)+" has no hook of Bailey's")
		return nil
	}
	say(tagNote, "took the hook out of "+printable(file))
	return nil
}

// edit replaces the content of a file, which is nil if there is none, and keeps
// its mode. Nil as a result removes it. It says whether anything changed.
func edit(file string, change func([]byte) ([]byte, error)) (bool, error) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		real = file
	}
	data, err := os.ReadFile(real)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	text, err := change(data)
	if err != nil {
		return false, fmt.Errorf("%s: %w; it was left as it is", printable(file), err)
	}
	switch {
	case data == nil && text == nil, data != nil && text != nil && bytes.Equal(data, text):
		return false, nil
	case text == nil:
		return true, os.Remove(real)
	}
	if data != nil {
		return true, replaceFile(real, text)
	}
	if err := os.MkdirAll(filepath.Dir(real), 0o755); err != nil {
		return false, err
	}
	return true, os.WriteFile(real, text, 0o600)
}

// replaceFile gives a file another content and keeps its mode.
func replaceFile(file string, data []byte) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".bailey-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if changed := f.Chmod(info.Mode().Perm()); err == nil {
		err = changed
	}
	if err == nil {
		err = f.Sync() // it is a person's file: a crash must leave the old one or the new one
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// exitRefused is the status by which every agent understands that the call is
// not to be made. Others let it pass.
const exitRefused = 2

// answerHook is what agents run for each call: it reads the call and prints an
// answer.
func answerHook(r *request) int {
	answer, err := r.hookAnswer()
	if err == nil && len(answer) > 0 {
		_, err = os.Stdout.Write(append(answer, '\n'))
	}
	if err != nil {
		say(tagError, err.Error())
		return exitRefused
	}
	return 0
}

func (r *request) hookAnswer() ([]byte, error) {
	const most = 16 << 20 // more than any command; a call that was cut off cannot be read
	if len(r.args) != 1 || len(r.hooks) != 1 {
		return nil, errors.New("usage: bailey hooks run --AGENT")
	}
	said, err := io.ReadAll(io.LimitReader(os.Stdin, most))
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return r.hooks[0].Answer(said, hooks.Caller{Self: self, Inside: insideSandbox()})
}
