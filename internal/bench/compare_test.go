package bench

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// drifting makes a run on a machine whose speed wanders by half over the run,
// with now and then a sample that something else disturbed.
func drifting(random *rand.Rand, slowdown float64) *Report {
	r := &Report{Version: Version}
	pace := 1 + random.Float64()
	for _, name := range []string{"true", "python3", "node", "git-status", "rg", "create"} {
		w := Workload{Name: name, Variants: []Variant{{Name: Unsandboxed}, {Name: Bailey}, {Name: Previous}}}
		for range 30 {
			pace *= math.Exp(0.05 * random.NormFloat64())
			for i, base := range []float64{0.001, 0.003 * slowdown, 0.003} {
				s := base * pace * math.Exp(0.08*random.NormFloat64())
				if random.IntN(40) == 0 {
					s *= 3
				}
				w.Variants[i].Seconds = append(w.Variants[i].Seconds, s)
			}
		}
		r.Workloads = append(r.Workloads, w)
	}
	return r
}

func TestTheSameBuildRarelyLooksDifferent(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	alarms, rounds := 0, 500
	for range rounds {
		rows, err := Between(drifting(random, 1), drifting(random, 1), Criterion{Alpha: Usual.Alpha})
		if err != nil {
			t.Fatal(err)
		}
		within, err := Within(drifting(random, 1), Previous, Bailey, Criterion{Alpha: Usual.Alpha})
		if err != nil {
			t.Fatal(err)
		}
		if changed(rows) {
			alarms++
		}
		if changed(within) {
			alarms++
		}
	}
	// Twice five hundred comparisons, one in a hundred of which may be wrong. The
	// rows of one comparison come from the same machine, which makes it no worse.
	if alarms > 2*rounds/50 {
		t.Errorf("%d alarms in %d comparisons of a build with itself", alarms, 2*rounds)
	}
}

func TestASlowerBuildIsFound(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 50 {
		slow := drifting(random, 1.6)
		rows, err := Between(drifting(random, 1), slow, Usual)
		if err != nil {
			t.Fatal(err)
		}
		within, err := Within(slow, Previous, Bailey, Usual)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range append(within, rows...) {
			if r.Variant == Bailey && r.Verdict != Slower {
				t.Errorf("%s %s: ratio %.2f, p %.4f: %s", r.Workload, r.Variant, r.Ratio, r.P, r.Verdict)
			}
			if r.Variant == Bailey && math.Abs(r.Ratio-1.6) > 0.4 {
				t.Errorf("%s: the ratio is 1.6, estimated as %.2f (%.2f … %.2f)", r.Workload, r.Ratio, r.Low, r.High)
			}
		}
	}
}

func changed(rows []Change) bool {
	for _, r := range rows {
		if r.Variant == Bailey && r.Verdict != Same {
			return true
		}
	}
	return false
}

func TestAPartThatGrewIsNamed(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	launches := func(spec float64) (out []Launch) {
		for range 30 {
			l := Launch{Build: Bailey}
			for _, p := range []Part{{"program start", 0.0005}, {"spec", spec}, {"exec", 0.0004}} {
				p.Seconds *= math.Exp(0.1 * random.NormFloat64())
				l.Parts, l.Seconds = append(l.Parts, p), l.Seconds+p.Seconds
			}
			out = append(out, l)
		}
		return out
	}
	missed, alarms := 0, 0
	for range 100 {
		for _, r := range Attribute(launches(0.0004), launches(0.0024), Usual) {
			switch {
			case r.Variant == "spec" && r.Verdict != Slower:
				missed++
			case r.Variant != "spec" && r.Verdict != Same:
				alarms++
			}
		}
	}
	if missed > 0 || alarms > 3 {
		t.Errorf("in 100 comparisons the part that grew was not named %d times, another one %d times", missed, alarms)
	}
}

// A comparison that could not have found anything does not say that nothing changed.
func TestTooFewRoundsAreNotCalledTheSame(t *testing.T) {
	run := func(rounds int, seconds float64) *Report {
		w := Workload{Name: "true", Variants: []Variant{{Name: Bailey}, {Name: Previous}}}
		for i := range rounds {
			w.Variants[0].Seconds = append(w.Variants[0].Seconds, seconds+float64(i)/1e6)
			w.Variants[1].Seconds = append(w.Variants[1].Seconds, 1+float64(i*i)/1e6)
		}
		return &Report{Workloads: []Workload{w}}
	}
	for rounds, want := range map[int]Verdict{1: TooFew, 4: TooFew, 7: TooFew, 8: Slower} {
		rows, err := Within(run(rounds, 2), Previous, Bailey, Usual)
		if err != nil || rows[0].Verdict != want {
			t.Errorf("%d rounds of twice the time: got %+v, want %s (%v)", rounds, rows, want, err)
		}
	}
	for rounds, want := range map[int]Verdict{1: TooFew, 4: TooFew, 5: TooFew, 6: Slower} {
		rows, err := Between(run(rounds, 1), run(rounds, 2), Usual) // two rows
		if err != nil || rows[0].Verdict != want {
			t.Errorf("twice %d rounds: got %+v, want %s (%v)", rounds, rows, want, err)
		}
	}
	if rows, err := Within(run(20, 1), Previous, Bailey, Usual); err != nil || rows[0].Verdict != Same {
		t.Errorf("twenty rounds of the same: got %+v, %v", rows, err)
	}
}

func TestReportsWithNothingInCommonAreRefused(t *testing.T) {
	a := &Report{Workloads: []Workload{{Name: "true", Variants: []Variant{{Bailey, []float64{1}}}}}}
	b := &Report{Workloads: []Workload{{Name: "node", Variants: []Variant{{Bailey, []float64{1}}}}}}
	if _, err := Between(a, b, Usual); err == nil || !strings.Contains(err.Error(), "no workload in common") {
		t.Errorf("got %v", err)
	}
	if _, err := Within(a, Previous, Bailey, Usual); err == nil || !strings.Contains(err.Error(), Previous) {
		t.Errorf("got %v", err)
	}
}
