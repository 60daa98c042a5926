package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// event is one line of "go test -json"; see "go doc test2json". A failed build
// has an ImportPath instead of a Package.
type event struct {
	Action, Package, ImportPath, Test, Output string
	FailedBuild                               string
}

// id is a test, or a package where test is empty.
type id struct{ pkg, test string }

func (i id) String() string { return strings.TrimSpace(i.pkg + " " + i.test) }

type outcome string

const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
)

// result is what became of one test in one run. Output is kept for what did not
// pass.
type result struct {
	outcome outcome
	output  string
}

// run is one "go test" over all packages. A package is in it only if it failed
// although none of its tests did: it did not build, or the process died.
type run map[id]result

// parse reads test events. Lines that are none, such as a build's messages, are
// passed over.
func parse(r io.Reader) (run, error) {
	done := run{}
	output := map[id]*strings.Builder{}
	started := map[id]bool{}
	builds := map[string]*strings.Builder{}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(data) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		test := id{e.Package, e.Test}
		switch e.Action {
		case "build-output":
			text(builds, e.ImportPath).WriteString(e.Output)
		case "run":
			started[test] = true
		case "output":
			text(output, test).WriteString(e.Output)
		case "pass", "fail", "skip":
			delete(started, test)
			done[test] = result{outcome(e.Action), text(output, test).String()}
			if e.FailedBuild != "" {
				done[test] = result{failed, text(builds, e.FailedBuild).String()}
			}
		}
	}
	for test := range started {
		done[test] = result{failed, text(output, test).String() + "never finished\n"}
	}
	done.dropExplainedPackages()
	return done, nil
}

// dropExplainedPackages leaves only those packages in the run that failed for a
// reason none of their tests shows.
func (r run) dropExplainedPackages() {
	hasFailedTest := map[string]bool{}
	for test, result := range r {
		if test.test != "" && result.outcome == failed {
			hasFailedTest[test.pkg] = true
		}
	}
	for test, result := range r {
		if test.test == "" && (result.outcome != failed || hasFailedTest[test.pkg]) {
			delete(r, test)
		}
	}
}

func (r run) tally() tally {
	var t tally
	for _, result := range r {
		t.count(result.outcome)
	}
	return t
}

// results are all runs, by test and then by the run's name.
type results map[id]map[string]result

func (rs results) add(name string, r run) {
	for test, got := range r {
		if rs[test] == nil {
			rs[test] = map[string]result{}
		}
		rs[test][name] = got
	}
}

// outcome of a test over all runs: failed if it failed in one, skipped if it
// ran in none.
func (rs results) outcome(test id) outcome {
	overall := skipped
	for _, result := range rs[test] {
		switch result.outcome {
		case failed:
			return failed
		case passed:
			overall = passed
		}
	}
	return overall
}

func (rs results) tally() tally {
	var t tally
	for test := range rs {
		t.count(rs.outcome(test))
	}
	return t
}

// failures are the outputs of what failed, with the run it failed in.
func (rs results) failures() []string {
	var lines []string
	for test, runs := range rs {
		for name, got := range runs {
			if got.outcome == failed {
				lines = append(lines, fmt.Sprintf("FAILED (%s)  %s\n%s", name, test, indent(got.output)))
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// skips are the tests that ran nowhere: needless where this machine should have
// had what they require, excused where it may lack it.
func (rs results) skips(mayLack func(string) bool) (needless, excused []string) {
	for test, runs := range rs {
		if rs.outcome(test) != skipped {
			continue
		}
		missing, mayBe := missingEverywhere(runs, mayLack)
		switch {
		case len(missing) == 0:
			needless = append(needless, fmt.Sprintf("SKIPPED  %s: names no requirement", test))
		case mayBe:
			excused = append(excused, fmt.Sprintf("skipped  %s: requires %s", test, strings.Join(missing, ", ")))
		default:
			needless = append(needless, fmt.Sprintf("SKIPPED  %s: nothing here provides %s", test, strings.Join(missing, ", ")))
		}
	}
	slices.Sort(needless)
	slices.Sort(excused)
	return needless, excused
}

// missingEverywhere takes the run in which a test lacked the least, and tells
// whether the machine may lack that. A skip without a requirement yields none.
func missingEverywhere(runs map[string]result, mayLack func(string) bool) (missing []string, mayBe bool) {
	for _, got := range runs {
		names := requirements(got.output)
		if len(names) == 0 {
			return nil, false
		}
		if missing == nil || len(names) < len(missing) {
			missing = names
		}
	}
	return missing, slices.ContainsFunc(missing, mayLack)
}

// requirements reads the names out of the message of testenv.Requires.
func requirements(output string) []string {
	for line := range strings.Lines(output) {
		if _, names, found := strings.Cut(line, testenv.SkipPrefix); found {
			return strings.Split(strings.TrimSpace(names), ", ")
		}
	}
	return nil
}

func indent(s string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n    ")
}

func text[K comparable](m map[K]*strings.Builder, key K) *strings.Builder {
	if m[key] == nil {
		m[key] = &strings.Builder{}
	}
	return m[key]
}

// tally counts tests by outcome.
type tally struct{ passed, failed, skipped int }

func (t *tally) count(o outcome) {
	switch o {
	case passed:
		t.passed++
	case failed:
		t.failed++
	case skipped:
		t.skipped++
	}
}

func (t tally) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", t.passed, t.failed, t.skipped)
}
