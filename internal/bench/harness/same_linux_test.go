package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/bench"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// Real runs of one build, measured against itself: however the machine behaves,
// they must not seem to differ more often than is stated. The threshold is nothing
// here, so that the rate is that of the statistics alone. Five rounds, as a quick
// run has, could not be significant whatever they were; these can.
func TestTheSameBuildRarelyLooksDifferentInRealRuns(t *testing.T) {
	testenv.Requires(t, testenv.Long, testenv.UserNamespaces, testenv.Modules, testenv.NoRace, testenv.Program("hyperfine"))
	const repetitions = 20
	root, dir := testenv.ModuleRoot(t), t.TempDir()
	one, other := filepath.Join(dir, "one"), filepath.Join(dir, "other")
	build(t, root, one, nil)
	build(t, root, other, nil)
	var runs []*bench.Report
	for i := range repetitions + 1 {
		out := filepath.Join(dir, fmt.Sprint("run-", i))
		runScript(t, root, "--gate", "--runs", "15", "--binary", filepath.Join(one, "bailey"), "--against", filepath.Join(other, "bailey"), "--output", out)
		runs = append(runs, onlyReport(t, out))
	}
	// So many of twenty come by chance in less than one of a thousand attempts.
	for alpha, most := range map[float64]int{bench.Usual.Alpha: 2, 0.1: 7} {
		within, between := alarms(t, runs, bench.Criterion{Alpha: alpha})
		t.Logf("at %g: %d of %d runs differ within, %d of %d pairs between", alpha, within, repetitions, between, repetitions)
		if within > most || between > most {
			t.Errorf("at %g, %d of %d runs differ within and %d between; by chance it would be %.1f", alpha, within, repetitions, between, alpha*repetitions)
		}
	}
}

// alarms counts the runs in which two copies of a build differ, and those that
// differ from the run before.
func alarms(t *testing.T, runs []*bench.Report, c bench.Criterion) (within, between int) {
	t.Helper()
	for i, now := range runs[1:] {
		rows, err := bench.Within(now, bench.Previous, bench.Bailey, c)
		if err != nil {
			t.Fatal(err)
		}
		within += count(rows)
		if rows, err = bench.Between(runs[i], now, c); err != nil {
			t.Fatal(err)
		}
		between += count(rows)
	}
	return within, between
}

// count is 1 if anything differs.
func count(rows []bench.Change) int {
	for _, r := range rows {
		if r.Verdict != bench.Same {
			return 1
		}
	}
	return 0
}
