package main

import (
	"strings"
	"testing"
)

func TestWhatBenchSaysHelps(t *testing.T) {
	run, other := madeRun(t, 1, 3, 0.4), madeRun(t, 2, 3, 0.4)
	for _, c := range []struct {
		wrong []string
		want  string
		right []string
	}{
		{nil, "say compare, show or page; see: bailey bench --help", []string{"--help"}},
		{[]string{"compare", "--fast", run}, "see: bailey bench --help", []string{"compare", run}},
		{[]string{"compare", "--alpha", "2", run}, "--threshold is a percentage, --alpha lies between 0 and 1", []string{"compare", "--alpha", "0.05", "--threshold", "10", run}},
		{[]string{"compare", "--threshold", "nan", run}, "--threshold is a percentage, --alpha lies between 0 and 1", []string{"compare", "--alpha", "0.05", "--threshold", "10", run}},
		{[]string{"compare"}, "name two runs, or one that has an earlier build in it", []string{"compare", run, other}},
		{[]string{"compare", run, run, run}, "name two runs, or one that has an earlier build in it", []string{"compare", run}},
	} {
		var out, errs strings.Builder
		if status := runBench(c.wrong, &out, &errs); status != exitOwn || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%q: status %d, %q; want %q", c.wrong, status, errs.String(), c.want)
		}
		errs.Reset()
		if status := runBench(c.right, &out, &errs); status != 0 {
			t.Errorf("%q does not help: status %d, %q", c.right, status, errs.String())
		}
	}
}
