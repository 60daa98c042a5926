package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/finding"
	"github.com/bailey-sandbox/bailey/internal/pathrule"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// fromPermissions finds what path permissions leave of what is granted.
func fromPermissions(f *finding.Finding, s *spec.Spec, origins policy.Origins) error {
	if !f.Allowed || !s.Rules.Covers(f.Subject) {
		return nil
	}
	d, err := s.Rules.Decide(f.Subject)
	if err != nil {
		return err
	}
	defer fromLinks(f, s.Rules, d.Permission)
	if d.Rule < 0 || d.Permission == pathrule.Write {
		return nil
	}
	switch {
	case d.Way:
		f.Allowed, f.Verdict = false, "is hidden; if it is a directory, it shows only the way to what a rule grants below it"
	case d.Permission == pathrule.None:
		f.Allowed, f.Verdict = false, "does not exist inside"
	case d.Permission == pathrule.View:
		f.Allowed, f.Verdict = false, "shows its name and size, and not its content"
	case !strings.HasPrefix(f.Verdict, "can be read and written"):
		return nil // it could not be written anyway
	default:
		f.Verdict = "can be read"
	}
	f.Rule, f.Fix = spec.RuleReason(s.Rules.Lists[d.List][d.Rule]), "another workspace.rules"
	f.Where = ""
	if pos, ok := origins[policy.Origin{Key: "workspace.rules", Entry: strconv.Itoa(d.Rule)}]; ok && d.List == 0 {
		f.Where = pos.String()
	}
	return nil
}

// whereRule returns the place of a path permission that a mount holds.
func whereRule(reason string, p *policy.Policy) string {
	for i, r := range slices.Backward(p.Workspace.Rules) {
		granted, err := pathrule.Parse(r.Permission)
		if err == nil && spec.RuleReason(pathrule.Rule{Pattern: r.Pattern, Permission: granted}) == reason {
			return p.Origins[policy.Origin{Key: "workspace.rules", Entry: strconv.Itoa(i)}].String()
		}
	}
	return ""
}

// fromLinks adds that other names of a file count as well.
func fromLinks(f *finding.Finding, r *spec.Rules, granted pathrule.Permission) {
	var st unix.Stat_t
	if !f.Allowed || unix.Lstat(f.Subject, &st) != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR || st.Nlink < 2 {
		return
	}
	for _, list := range r.Lists {
		if slices.ContainsFunc(list, func(r pathrule.Rule) bool { return r.Permission < granted }) {
			f.Verdict += fmt.Sprintf(", unless another of its %d hard links permits less", st.Nlink)
			return
		}
	}
}
