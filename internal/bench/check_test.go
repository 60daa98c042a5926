package bench

import (
	"strings"
	"testing"
)

// TestReportsThatAllowNoConclusionsAreRefused names what is wrong with each.
func TestReportsThatAllowNoConclusionsAreRefused(t *testing.T) {
	whole := func() *Report {
		return &Report{
			Version: Version,
			Workloads: []Workload{{Name: "true", Variants: []Variant{
				{Name: "plain", Seconds: []float64{1, 2}}, {Name: "bailey", Seconds: []float64{2, 3}},
			}}},
			Launches: []Launch{{Seconds: 1, Parts: []Part{{Name: "start", Seconds: 1}}}},
		}
	}
	if err := whole().Check(); err != nil {
		t.Fatalf("a whole report: %v", err)
	}
	for want, spoil := range map[string]func(*Report){
		"the report is of version 99":           func(r *Report) { r.Version = 99 },
		"the report has no workloads":           func(r *Report) { r.Workloads = nil },
		"workload true has no variants":         func(r *Report) { r.Workloads[0].Variants = nil },
		"bailey has 1 samples, plain has 2":     func(r *Report) { r.Workloads[0].Variants[1].Seconds = []float64{1} },
		"bailey has a sample that took no time": func(r *Report) { r.Workloads[0].Variants[1].Seconds[0] = 0 },
		"a launch has no duration or no parts":  func(r *Report) { r.Launches[0].Parts = nil },
		"a launch has no duration or no parts ": func(r *Report) { r.Launches[0].Seconds = 0 },
	} {
		r := whole()
		spoil(r)
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
