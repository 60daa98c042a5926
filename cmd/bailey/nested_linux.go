package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox/landlock"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/trace"
)

// launchNested runs a command inside a sandbox of Bailey's, where no other can be
// built: it puts up what walls it can around this process, which becomes the
// command.
func launchNested(r *request, argv []string, log *trace.Log) int {
	if r.monitor {
		return fail(errors.New("--monitor needs a broker of its own, which a sandbox inside another cannot have; give it to the one around this"))
	}
	if r.keep.name != "" {
		return fail(errInside)
	}
	m, err := r.manager()
	if err != nil {
		return fail(err)
	}
	if err := checkNested(m.Loaded().Policy); err != nil {
		return fail(err)
	}
	over, err := supposedOverlay(m)
	if err != nil {
		return fail(err)
	}
	s, status := r.compileWith(m, spec.Command{Argv: argv, Overlay: over}, log)
	if s == nil {
		return status
	}
	plan, err := landlock.Prepare(s, landlock.Options{
		Streams: [3]*os.File{os.Stdin, os.Stdout, os.Stderr},
		Denied:  denials(m.Loaded().Policy),
	})
	if err != nil {
		return startFailed(s, err)
	}
	r.announceNested(plan)
	log.Mark("walls")
	if err := log.Close(); err != nil {
		say(tagError, "BAILEY_TRACE: "+err.Error())
	}
	// The program starts with another one, see package native; this is what the
	// thread had from its parent.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0)
	return startFailed(s, plan.Exec())
}

// checkNested refuses a policy that insists on walls of the sandbox's own.
func checkNested(p policy.Policy) error {
	const fix = "remove it, or start bailey outside of the sandbox around this one"
	var reasons []*spec.Unsupported
	if p.Runtime != nil && *p.Runtime != "auto" && *p.Runtime != spec.RuntimeLandlock {
		reasons = append(reasons, &spec.Unsupported{Key: "runtime", Value: *p.Runtime, Reason: "namespaces cannot be made inside a sandbox", Fix: fix})
	}
	for _, layer := range p.Require {
		if !slices.Contains([]string{"landlock", "seccomp"}, layer) {
			reasons = append(reasons, &spec.Unsupported{Key: "require", Value: layer, Reason: "namespaces cannot be made inside a sandbox", Fix: fix})
		}
	}
	if len(reasons) > 0 {
		return &spec.Refused{Reasons: reasons}
	}
	return nil
}

// denials are what the policy denies by name, as far as it exists. Names relative
// to the project are in a directory that is granted, where the Spec has them.
func denials(p policy.Policy) (list []landlock.Denial) {
	home, _ := os.UserHomeDir() // without one no name starts with it
	add := func(key string, entries []string, read bool) {
		for _, entry := range entries {
			name, ok := pattern.Plain(entry)
			if !ok {
				name = entry // what else it matches is refused; see denyNamesake of spec
			}
			if rest, ok := strings.CutPrefix(name, "~"); ok {
				name = home + rest
			}
			if real, err := filepath.EvalSymlinks(name); err == nil && filepath.IsAbs(real) {
				list = append(list, landlock.Denial{Path: real, Read: read, Why: key + " " + entry})
			}
		}
	}
	for _, fs := range append([]policy.Filesystem{p.Filesystem}, p.Bounds...) {
		add("filesystem.denyRead", fs.DenyRead, false)
		add("filesystem.denyWrite", fs.DenyWrite, true)
	}
	return list
}

// announceNested says what the command has in common with the sandbox around it.
func (r *request) announceNested(p *landlock.Plan) {
	if r.settledQuiet() {
		return
	}
	for _, w := range p.Warnings {
		say(tagWarning, w)
	}
	say(tagNote, "inside another sandbox, whose processes it can see and with which it shares "+printable(strings.Join(p.Shared, ", ")))
}
