package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Criterion says what counts as a change: a median that moved by more than
// Threshold, where a difference so clear comes by chance, in any of the rows of a
// comparison, at most at the rate Alpha.
type Criterion struct {
	Threshold float64
	Alpha     float64
}

// Usual is the criterion unless somebody says otherwise.
var Usual = Criterion{Threshold: 0.05, Alpha: 0.01}

// Change is one row of a comparison. What is compared is the time in ratio to the
// unsandboxed run of the same round, so that a machine that is faster today does
// not make a build look better; where there is none, the time itself.
type Change struct {
	Workload string  `json:"workload"`
	Variant  string  `json:"variant"`
	Unit     string  `json:"unit"` // "x" or "s"
	Old      float64 `json:"old"`  // median
	New      float64 `json:"new"`
	Ratio    float64 `json:"ratio"` // of new to old
	Low      float64 `json:"low"`   // where the ratio lies with 95 % confidence
	High     float64 `json:"high"`
	P        float64 `json:"p"` // adjusted for the number of rows
	Verdict  Verdict `json:"verdict"`

	least float64 // what P could be for so many samples, whatever they were
}

// Verdict is what a comparison concludes.
type Verdict string

// The verdicts. Same means that no change was found, not that there is none; TooFew
// that none could have been found, since there are too few samples for the rate of
// false alarms that was asked for.
const (
	Same   Verdict = "same"
	Slower Verdict = "slower"
	Faster Verdict = "faster"
	TooFew Verdict = "too few rounds"
)

// Between compares two runs, in the variants that both have.
func Between(before, after *Report, c Criterion) ([]Change, error) {
	var rows []Change
	for i := range after.Workloads {
		w := &after.Workloads[i]
		old := before.workload(w.Name)
		if old == nil {
			continue
		}
		for _, v := range w.Variants {
			if row, ok := across(old, w, v.Name); ok {
				rows = append(rows, row)
			}
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("the reports have no workload in common (%s; %s)", before.names(), after.names())
	}
	judge(rows, c)
	return rows, nil
}

// across compares a variant of two runs.
func across(old, now *Workload, name string) (row Change, ok bool) {
	if name == Unsandboxed || old.Find(name) == nil {
		return row, false
	}
	a, b, unit := old.Factors(name, Unsandboxed), now.Factors(name, Unsandboxed), "x"
	if a == nil || b == nil {
		a, b, unit = old.Find(name), now.Find(name), "s"
	}
	row = Change{Workload: now.Name, Variant: name, Unit: unit, Old: Median(a), New: Median(b), P: RankSum(a, b), least: leastRankSum(len(a), len(b))}
	row.Ratio, row.Low, row.High = shift(a, b)
	return row, true
}

// Within compares two variants of one run, round by round.
func Within(r *Report, before, after string, c Criterion) ([]Change, error) {
	var rows []Change
	for i := range r.Workloads {
		w := &r.Workloads[i]
		ratios := w.Factors(after, before)
		if ratios == nil {
			continue
		}
		row := Change{
			Workload: w.Name, Variant: after, Unit: "s",
			Old: Median(w.Find(before)), New: Median(w.Find(after)), Ratio: Median(ratios), P: SignedRank(logs(ratios)),
			least: leastSignedRank(len(ratios)),
		}
		row.Low, row.High = Interval(ratios)
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("no workload of the report was run as %s and as %s", before, after)
	}
	judge(rows, c)
	return rows, nil
}

// Attribute compares the parts of launches, and names those that changed.
func Attribute(before, after []Launch, c Criterion) []Change {
	if len(before) == 0 || len(after) == 0 {
		return nil
	}
	var rows []Change
	old := parts(before)
	for _, now := range parts(after) {
		i := slices.IndexFunc(old, func(p partSamples) bool { return p.name == now.name })
		if i < 0 {
			continue
		}
		a, b := old[i].seconds, now.seconds
		row := Change{Workload: "launch", Variant: now.name, Unit: "s", Old: Median(a), New: Median(b), P: RankSum(a, b), least: leastRankSum(len(a), len(b))}
		row.Ratio, row.Low, row.High = shift(a, b)
		rows = append(rows, row)
	}
	judge(rows, c)
	return rows
}

func judge(rows []Change, c Criterion) {
	p, least := make([]float64, len(rows)), 1.0
	for i := range rows {
		p[i], least = rows[i].P, min(least, rows[i].least)
	}
	for i, adjusted := range adjust(p) {
		r := &rows[i]
		r.P, r.Verdict = adjusted, Same
		switch {
		case r.least > c.Alpha, least*float64(len(rows)) > c.Alpha: // the clearest is adjusted by all rows
			r.Verdict = TooFew
		case adjusted > c.Alpha:
		case r.Ratio > 1+c.Threshold:
			r.Verdict = Slower
		case r.Ratio < 1/(1+c.Threshold):
			r.Verdict = Faster
		}
	}
}

// shift estimates by what factor the values of b lie above those of a: the median
// of the ratios of every one to every other (Hodges and Lehmann), and where it
// lies with 95 % confidence.
func shift(a, b []float64) (ratio, low, high float64) {
	differences := make([]float64, 0, len(a)*len(b))
	for _, x := range logs(a) {
		for _, y := range logs(b) {
			differences = append(differences, y-x)
		}
	}
	slices.Sort(differences)
	n, m := float64(len(a)), float64(len(b))
	k := int(max(0, math.Floor(n*m/2-1.96*math.Sqrt(n*m*(n+m+1)/12))))
	return math.Exp(Median(differences)), math.Exp(differences[k]), math.Exp(differences[len(differences)-1-k])
}

func logs(values []float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = math.Log(v)
	}
	return out
}

func (r *Report) workload(name string) *Workload {
	for i := range r.Workloads {
		if r.Workloads[i].Name == name {
			return &r.Workloads[i]
		}
	}
	return nil
}

func (r *Report) names() string {
	var names []string
	for i := range r.Workloads {
		names = append(names, r.Workloads[i].Name)
	}
	return strings.Join(names, ", ")
}

// partSamples are the samples of one part over several launches.
type partSamples struct {
	name    string
	seconds []float64
}

// parts gathers the parts of launches, in the order of the first. A part that
// occurs twice in a launch is added up; a launch without it counts as none.
func parts(launches []Launch) []partSamples {
	var all []partSamples
	for i, l := range launches {
		for _, p := range l.Parts {
			at := slices.IndexFunc(all, func(s partSamples) bool { return s.name == p.Name })
			if at < 0 {
				all = append(all, partSamples{p.Name, make([]float64, len(launches))})
				at = len(all) - 1
			}
			all[at].seconds[i] += p.Seconds
		}
	}
	for _, s := range all {
		for i := range s.seconds {
			s.seconds[i] = max(s.seconds[i], 1e-9) // ratios need something to divide by
		}
	}
	return all
}

// typical returns the half of the launches that took neither very long nor very
// short: their parts, on average, add up to their whole, which medians do not.
func typical(launches []Launch) []Launch {
	if len(launches) == 0 {
		return nil
	}
	sorted := slices.Clone(launches)
	slices.SortFunc(sorted, func(a, b Launch) int { return cmp.Compare(a.Seconds, b.Seconds) })
	return sorted[len(sorted)/4 : len(sorted)-len(sorted)/4]
}

// LaunchesOf returns the launches of one build.
func (r *Report) LaunchesOf(build string) []Launch {
	var launches []Launch
	for _, l := range r.Launches {
		if l.Build == build {
			launches = append(launches, l)
		}
	}
	return launches
}

// Table renders rows for people.
func Table(rows []Change) string {
	var b strings.Builder
	b.WriteString("| workload | variant | old | new | change | 95 % | p | |\n|---|---|---:|---:|---:|---:|---:|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %+.1f %% | %+.1f … %+.1f %% | %.3f | %s |\n", r.Workload, r.Variant,
			inUnit(r.Old, r.Unit), inUnit(r.New, r.Unit), 100*(r.Ratio-1), 100*(r.Low-1), 100*(r.High-1), r.P, r.Verdict)
	}
	return b.String()
}

func inUnit(v float64, unit string) string {
	if unit == "x" {
		return fmt.Sprintf("%.2fx", v)
	}
	return fmt.Sprintf("%.3f ms", 1000*v)
}
