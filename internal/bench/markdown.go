package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// peer is what a sandbox is compared with besides nothing at all.
const peer = "bwrap"

// Markdown renders a report as tables.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmark of %s, %s/%s\n\n", r.Time, r.OS, r.Arch)
	for _, fact := range r.facts() {
		fmt.Fprintf(&b, "- %s: %s\n", fact[0], fact[1])
	}
	b.WriteString("\nTimes in milliseconds. The overhead is the time in ratio to the unsandboxed run of the same round: its median,\n" +
		"and where that lies with 95 % confidence; in brackets, where fewer than six samples lie, which say nothing of the kind.\n" +
		"So is the ratio to bwrap.\n\n")
	b.WriteString("| workload | variant | min | median | overhead | 95 % | to bwrap |\n|---|---|---:|---:|---:|---:|---:|\n")
	for i := range r.Workloads {
		r.Workloads[i].rows(&b)
	}
	r.held(&b)
	r.calls(&b)
	r.attribution(&b)
	if len(r.Memory) > 0 {
		b.WriteString("\n| processes besides the command, while it sleeps | PSS |\n|---|---:|\n")
		for _, name := range slices.Sorted(maps.Keys(r.Memory)) {
			fmt.Fprintf(&b, "| %s | %d KB |\n", name, r.Memory[name])
		}
	}
	return b.String()
}

func (r *Report) facts() [][2]string {
	facts := [][2]string{
		{"commit", r.Commit},
		{"kernel", r.Machine.Kernel},
		{"processor", fmt.Sprintf("%s × %d, governor %s", r.Machine.Processor, r.Machine.Processors, r.Machine.Governor)},
		{"memory", r.Machine.Memory},
		{"load before", r.Machine.Load},
		{"user", r.User},
		{"rounds", fmt.Sprint(r.Rounds)},
	}
	for _, name := range slices.Sorted(maps.Keys(r.Programs)) {
		facts = append(facts, [2]string{name, r.Programs[name]})
	}
	return facts
}

func (w *Workload) rows(b *strings.Builder) {
	if w.Missing != "" {
		fmt.Fprintf(b, "| %s | %s | | | | | |\n", w.Name, w.Missing)
		return
	}
	for _, v := range w.ordered() {
		fmt.Fprintf(b, "| %s | %s | %.2f | %.2f | %s | %s | %s |\n", w.Name, v.Name,
			1000*slices.Min(v.Seconds), 1000*Median(v.Seconds), w.factor(v.Name, Unsandboxed), w.interval(v.Name), w.factor(v.Name, peer))
	}
	for _, name := range slices.Sorted(maps.Keys(w.Absent)) {
		fmt.Fprintf(b, "| %s | %s: %s | | | | | |\n", w.Name, name, w.Absent[name])
	}
}

// ordered returns the variants, what others are compared with first.
func (w *Workload) ordered() []Variant {
	rank := func(name string) int {
		bases := []string{Unsandboxed, peer, Previous, Bailey}
		if i := slices.Index(bases, name); i >= 0 {
			return i
		}
		return len(bases)
	}
	variants := slices.Clone(w.Variants)
	slices.SortStableFunc(variants, func(a, b Variant) int { return rank(a.Name) - rank(b.Name) })
	return variants
}

func (w *Workload) factor(name, base string) string {
	factors := w.Factors(name, base)
	if factors == nil {
		return ""
	}
	return fmt.Sprintf("%.2f", Median(factors))
}

func (w *Workload) interval(name string) string {
	factors := w.Factors(name, Unsandboxed)
	if factors == nil || name == Unsandboxed {
		return ""
	}
	low, high := Interval(factors)
	if len(factors) < Enough {
		return fmt.Sprintf("(%.2f … %.2f)", low, high)
	}
	return fmt.Sprintf("%.2f … %.2f", low, high)
}

// held shows what each sandbox was good for while it was measured: a fast one may
// be fast because it holds little.
func (r *Report) held(b *strings.Builder) {
	if len(r.Sandboxes) == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(r.Sandboxes[0].Tried))
	fmt.Fprintf(b, "\nTried from inside, before the run:\n\n| sandbox | %s |\n|---|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for _, s := range r.Sandboxes {
		fmt.Fprintf(b, "| %s |", s.Name)
		for _, name := range names {
			fmt.Fprintf(b, " %s |", s.Tried[name])
		}
		b.WriteString("\n")
	}
	b.WriteString("\nHow each ran a command:\n\n")
	for _, s := range r.Sandboxes {
		fmt.Fprintf(b, "- %s: `%s`\n", s.Name, s.Command)
	}
}

// calls shows what one program costs where a sample runs many of them.
func (r *Report) calls(b *strings.Builder) {
	title := "\n| workload | variant | a call, µs |\n|---|---|---:|\n"
	for i := range r.Workloads {
		w := &r.Workloads[i]
		if w.Calls == 0 {
			continue
		}
		for _, v := range w.ordered() {
			fmt.Fprintf(b, "%s| %s | %s | %.0f |\n", title, w.Name, v.Name, 1e6*Median(v.Seconds)/float64(w.Calls))
			title = ""
		}
	}
}

// attribution shows what a launch is made of.
func (r *Report) attribution(b *strings.Builder) {
	launches := typical(r.LaunchesOf(Bailey))
	if len(launches) == 0 {
		return
	}
	whole := 0.0
	for _, l := range launches {
		whole += l.Seconds / float64(len(launches))
	}
	fmt.Fprintf(b, "\n| part of a launch (mean of %d) | µs | share |\n|---|---:|---:|\n", len(launches))
	sum := 0.0
	for _, p := range parts(launches) {
		m := mean(p.seconds)
		sum += m
		fmt.Fprintf(b, "| %s | %.0f | %.1f %% |\n", p.name, 1e6*m, 100*m/whole)
	}
	fmt.Fprintf(b, "| all parts | %.0f | %.1f %% |\n| the whole | %.0f | |\n", 1e6*sum, 100*sum/whole, 1e6*whole)
}
