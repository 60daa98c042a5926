package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

func runTrust(r *request) int {
	facts, err := host.New()
	if err != nil {
		return fail(err)
	}
	home := facts.Caller.Home
	o := policy.Options{
		Dir: facts.Caller.Dir, Home: home,
		ConfigHome: sandbox.ConfigHome(home), StateHome: sandbox.StateHome(home),
	}
	store := policy.NewStore(o.StateHome)
	switch {
	case insideSandbox():
		return fail(errors.New("inside a sandbox nothing can be trusted"))
	case r.list && r.revoke == "" && len(r.args) == 0:
		return trustList(store)
	case r.revoke != "" && !r.list && len(r.args) == 0:
		return trustRevoke(store, r.revoke)
	case r.list || r.revoke != "" || len(r.args) > 1:
		return fail(r.usage())
	}
	file, err := trustedFile(o.Dir, r.args)
	if err != nil {
		return fail(err)
	}
	project, err := policy.Inspect(o, file)
	if err != nil {
		return fail(err)
	}
	without, own, err := policy.Without(o)
	if err != nil {
		return fail(err)
	}
	holds := "the default"
	if own {
		holds = "your own policy"
	}
	return trustFile(r, store, project, policy.Describe(project.Policy, without), holds)
}

func trustedFile(dir string, args []string) (string, error) {
	if len(args) == 1 {
		return filepath.Abs(args[0])
	}
	file, err := policy.FindProject(dir)
	if err == nil && file == "" {
		err = errors.New("there is no bailey.jsonc or bailey.json here or above")
	}
	return file, err
}

// trustFile pins exactly the content it has shown, and what that grants besides what
// holds.
func trustFile(r *request, store *policy.Store, p *policy.Project, grants []string, holds string) int {
	if p.Status == policy.Trusted {
		say(tagNote, printable(p.Path)+" is trusted already")
		return 0
	}
	text, err := review(store, p, grants, holds)
	if err != nil {
		return fail(err)
	}
	if status := answer(text); status != 0 {
		return status
	}
	if !r.yes {
		if err := ask(); err != nil {
			return fail(err)
		}
	}
	if err := store.Trust(p.Bundle); err != nil {
		return fail(err)
	}
	say(tagNote, "trusted; any change to it ends that")
	return 0
}

// review is what a person should know before trusting a file.
func review(store *policy.Store, p *policy.Project, grants []string, holds string) (string, error) {
	var b strings.Builder
	b.WriteString(printable(p.Path) + ": " + string(p.Status) + "\n")
	if p.Status == policy.Changed {
		old, err := store.Pinned(p.Bundle.Path)
		if err != nil {
			return "", err
		}
		b.WriteString("\nWhat changed:\n" + indent(policy.Diff(old, p.Bundle.Text())))
	}
	if len(grants) == 0 {
		b.WriteString("\nIt grants nothing besides " + holds + ".\n")
		return b.String(), nil
	}
	b.WriteString("\nBesides " + holds + ", a command it governs\n")
	for _, g := range grants {
		b.WriteString("  " + g + "\n")
	}
	return b.String(), nil
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("  " + line)
	}
	return b.String()
}

// ask wants a yes from a person. Only a terminal has one.
func ask() error {
	if !isTerminal(os.Stdin) || !isTerminal(os.Stdout) {
		return errors.New("nobody to ask: trust needs a terminal, or --yes if you have read the above")
	}
	if status := answer("\nTrust it? [y/N] "); status != 0 {
		return errors.New("nobody to ask")
	}
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // no line is no
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errors.New("not trusted")
}

func trustList(store *policy.Store) int {
	pins, err := store.List()
	if err != nil {
		return fail(err)
	}
	var b strings.Builder
	for _, p := range pins {
		fmt.Fprintf(&b, "%s  %.12s  %s\n", p.Time.Local().Format("2006-01-02 15:04"), p.SHA256, printable(p.Path))
	}
	return answer(b.String())
}

func trustRevoke(store *policy.Store, file string) int {
	path, err := filepath.Abs(file)
	if err != nil {
		return fail(err)
	}
	found, err := store.Revoke(path)
	if err != nil {
		return fail(err)
	}
	if !found {
		return fail(errors.New(printable(path) + " is not trusted; see: bailey trust --list"))
	}
	say(tagNote, printable(path)+" is no longer trusted")
	return 0
}
