package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/bench"
)

// readSandboxes reads how each sandbox ran a command and what it held: nothing at
// all first, then Bailey, then the others by name.
func readSandboxes(file string) ([]bench.Sandbox, error) {
	pairs, err := readPairs(file)
	if err != nil {
		return nil, err
	}
	byName := map[string]*bench.Sandbox{}
	for key, value := range pairs {
		name, what, _ := strings.Cut(key, ".")
		if byName[name] == nil {
			byName[name] = &bench.Sandbox{Name: name, Tried: map[string]string{}}
		}
		tried, isTried := strings.CutPrefix(what, "tried.")
		switch {
		case isTried:
			byName[name].Tried[tried] = value
		case what == "command":
			byName[name].Command = value
		default:
			return nil, fmt.Errorf("%s: nothing is called %q", filepath.Base(file), key)
		}
	}
	var all []bench.Sandbox
	for _, s := range byName {
		all = append(all, *s)
	}
	rank := func(s bench.Sandbox) string {
		return map[string]string{bench.Unsandboxed: "0", bench.Bailey: "1"}[s.Name] + s.Name
	}
	slices.SortFunc(all, func(a, b bench.Sandbox) int { return strings.Compare(rank(a), rank(b)) })
	return all, nil
}

// peersOf are the sandboxes of others.
func peersOf(all []bench.Sandbox) map[string]bool {
	peers := map[string]bool{}
	for _, s := range all {
		peers[s.Name] = s.Name != bench.Unsandboxed && s.Name != bench.Bailey
	}
	return peers
}

// dropFailed takes the times of those out whose command failed, and says so. That
// somebody else's sandbox fails is a result; that Bailey does is none.
func dropFailed(w *bench.Workload, failures map[string]int, rounds int, peers map[string]bool) error {
	for name, count := range failures {
		reason := fmt.Sprintf("failed in %d of %d rounds", count, rounds)
		if !peers[name] {
			return fmt.Errorf("%s: %s %s", w.Name, name, reason)
		}
		w.Variants = slices.DeleteFunc(w.Variants, func(v bench.Variant) bool { return v.Name == name })
		if w.Absent == nil {
			w.Absent = map[string]string{}
		}
		w.Absent[name] = reason
	}
	return nil
}
