package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The variants other variants are compared with.
const (
	plain = "unsandboxed"
	peer  = "bwrap"
)

func (r report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmark of %s, %s/%s\n\n", r.Time, r.OS, r.Arch)
	for _, name := range slices.Sorted(maps.Keys(r.Facts)) {
		fmt.Fprintf(&b, "- %s: %s\n", name, r.Facts[name])
	}
	b.WriteString("\nTimes in milliseconds. A ratio is the median of the ratios within each round.\n\n")
	b.WriteString("| workload | variant | min | median | to bwrap | to unsandboxed |\n|---|---|---:|---:|---:|---:|\n")
	for _, w := range r.Workloads {
		w.rows(&b)
	}
	if len(r.PSS) > 0 {
		b.WriteString("\n| processes besides the command, while it sleeps | PSS |\n|---|---:|\n")
		for _, name := range slices.Sorted(maps.Keys(r.PSS)) {
			fmt.Fprintf(&b, "| %s | %s KB |\n", name, r.PSS[name])
		}
	}
	return b.String()
}

func (w workload) rows(b *strings.Builder) {
	if w.Missing != "" {
		fmt.Fprintf(b, "| %s | %s: not installed | | | | |\n", w.Name, w.Missing)
		return
	}
	slices.SortFunc(w.Variants, func(a, b variant) int { return rank(a.Name) - rank(b.Name) })
	for _, v := range w.Variants {
		fmt.Fprintf(b, "| %s | %s | %.2f | %.2f | %s | %s |\n", w.Name, v.Name,
			1000*slices.Min(v.Seconds), 1000*median(v.Seconds), w.ratio(v, peer), w.ratio(v, plain))
	}
	if w.find(peer) == nil {
		fmt.Fprintf(b, "| %s | %s: not installed | | | | |\n", w.Name, peer)
	}
}

// rank orders the variants: the bases first, what is compared with them last.
func rank(name string) int {
	bases := []string{plain, peer}
	if i := slices.Index(bases, name); i >= 0 {
		return i
	}
	return len(bases)
}

func (w workload) find(name string) []float64 {
	for _, v := range w.Variants {
		if v.Name == name {
			return v.Seconds
		}
	}
	return nil
}

// ratio is how many times as long the variant took as the base did in the same
// round.
func (w workload) ratio(v variant, base string) string {
	reference := w.find(base)
	if reference == nil {
		return ""
	}
	ratios := make([]float64, len(v.Seconds))
	for i := range ratios {
		ratios[i] = v.Seconds[i] / reference[i]
	}
	return fmt.Sprintf("%.2f", median(ratios))
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
