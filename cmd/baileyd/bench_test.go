package main

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/bench"
)

// madeRun writes a report in which Bailey takes so many milliseconds, of which
// some go to the part "spec".
func madeRun(t *testing.T, seed uint64, milliseconds, spec float64) string {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	noise := func() float64 { return math.Exp(0.03 * random.NormFloat64()) }
	r := bench.Report{Version: bench.Version, Programs: map[string]string{}}
	w := bench.Workload{Name: "true", Variants: []bench.Variant{{Name: bench.Unsandboxed}, {Name: bench.Bailey}, {Name: bench.Previous}}}
	for range 30 {
		for i, ms := range []float64{1, milliseconds, 3} {
			w.Variants[i].Seconds = append(w.Variants[i].Seconds, ms/1000*noise())
		}
		for build, ms := range map[string]float64{bench.Bailey: spec, bench.Previous: 0.4} {
			l := bench.Launch{Build: build, Seconds: 0.003, Parts: []bench.Part{{Name: "spec", Seconds: ms / 1000 * noise()}, {Name: "exec", Seconds: 0.001 * noise()}}}
			r.Launches = append(r.Launches, l)
		}
	}
	r.Workloads = []bench.Workload{w}
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "run.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCompareFailsForASlowerBuildOnly(t *testing.T) {
	usual, again, slow := madeRun(t, 1, 3, 0.4), madeRun(t, 2, 3, 0.4), madeRun(t, 3, 5, 2.4)
	for _, c := range []struct {
		name   string
		args   []string
		status int
		want   string
	}{
		{"the same build again", []string{"compare", usual, again}, 0, "| same |"},
		{"a slower one", []string{"compare", usual, slow}, exitSlower, "| true | bailey |"},
		{"its slower part", []string{"compare", usual, slow}, exitSlower, "| launch | spec | "},
		{"a faster one", []string{"compare", slow, usual}, 0, "| faster |"},
		{"both in one run", []string{"compare", slow}, exitSlower, "| slower |"},
		{"not slower enough", []string{"compare", "--threshold", "90", usual, slow}, 0, "| same |"},
		{"a file that is none", []string{"compare", usual, os.DevNull}, exitOwn, ""},
		{"no file", []string{"compare"}, exitOwn, ""},
		{"an odd flag", []string{"compare", "--alpha", "2", usual, slow}, exitOwn, ""},
		{"tables", []string{"show", usual}, 0, "| part of a launch"},
		{"a page", []string{"page", usual, slow}, 0, "<svg"},
		{"nothing", nil, exitOwn, ""},
	} {
		var out, errs strings.Builder
		status := runBench(c.args, &out, &errs)
		if status != c.status || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: status %d, want %d:\n%s%s", c.name, status, c.status, out.String(), errs.String())
		}
		if (status == exitOwn) != (errs.Len() > 0) {
			t.Errorf("%s: stderr %q", c.name, errs.String())
		}
	}
}

func TestComparePrintsRowsForPrograms(t *testing.T) {
	var out, errs strings.Builder
	status := runBench([]string{"compare", "--json", madeRun(t, 1, 3, 0.4), madeRun(t, 3, 5, 2.4)}, &out, &errs)
	var c comparison
	if err := json.Unmarshal([]byte(out.String()), &c); err != nil || status != exitSlower {
		t.Fatalf("status %d, %v: %s%s", status, err, out.String(), errs.String())
	}
	if len(c.Rows) == 0 || c.Rows[0].Workload != "true" || len(c.Parts) != 2 {
		t.Errorf("got %+v", c)
	}
}
