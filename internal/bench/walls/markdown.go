package walls

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Markdown renders results as tables.
func (r *Results) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured %s as %s: %d launches of each after one that is discarded, interleaved. Times in milliseconds.\n", r.Time, r.User, r.Iterations)
	r.boundaries(&b)
	r.launches(&b)
	r.memory(&b)
	r.work(&b)
	r.failures(&b)
	return b.String()
}

func (r *Results) boundaries(b *strings.Builder) {
	b.WriteString("\n### The boundary, seen from inside\n\n| runtime | ")
	var names []string
	for i := range r.Runtimes {
		for _, w := range r.Runtimes[i].Walls {
			if !slices.Contains(names, w.Name) {
				names = append(names, w.Name)
			}
		}
	}
	b.WriteString(strings.Join(names, " | ") + " |\n|---" + strings.Repeat("|---", len(names)) + "|\n")
	for i := range r.Runtimes {
		rt := &r.Runtimes[i]
		b.WriteString("| " + rt.Name)
		for _, name := range names {
			b.WriteString(" | " + rt.wall(name))
		}
		b.WriteString(" |\n")
	}
}

func (r *Runtime) wall(name string) string {
	for _, w := range r.Walls {
		if w.Name != name {
			continue
		}
		if w.Held {
			return w.Got
		}
		return "**" + w.Got + "**"
	}
	return ""
}

func (r *Results) launches(b *strings.Builder) {
	b.WriteString("\n### Launches\n\n| runtime | mode | part | min | p50 | p90 | p99 | launches | failed |\n|---|---|---|---:|---:|---:|---:|---:|---:|\n")
	for i := range r.Runtimes {
		rt := &r.Runtimes[i]
		for _, l := range rt.Launch {
			if len(l.Phases) == 0 || l.Failures == l.Attempts {
				fmt.Fprintf(b, "| %s | %s | | | | | | %d | %d |\n", rt.Name, l.Mode, l.Attempts, l.Failures)
				continue
			}
			for _, p := range l.Phases {
				fmt.Fprintf(b, "| %s | %s | %s | %.2f | %.2f | %.2f | %.2f | %d | %d |\n", rt.Name, l.Mode, p.Name, p.Min, p.P50, p.P90, p.P99, l.Attempts, l.Failures)
			}
		}
	}
}

func (r *Results) memory(b *strings.Builder) {
	b.WriteString("\n### Memory of a sandbox that does nothing\n\n| runtime | processes | RSS | PSS | USS |\n|---|---:|---:|---:|---:|\n")
	for i := range r.Runtimes {
		if m := r.Runtimes[i].Memory; m != nil {
			fmt.Fprintf(b, "| %s | %d | %.1f MB | %.1f MB | %.1f MB |\n", r.Runtimes[i].Name, m.Processes, float64(m.RSS)/1024, float64(m.PSS)/1024, float64(m.USS)/1024)
		}
	}
}

func (r *Results) work(b *strings.Builder) {
	b.WriteString("\n### Work, timed inside\n\n| work | runtime | min | p50 | p90 | p99 | to unsandboxed |\n|---|---|---:|---:|---:|---:|---:|\n")
	base := map[string]float64{}
	for i := range r.Runtimes {
		for _, w := range r.Runtimes[i].Work {
			if r.Runtimes[i].Name == Unsandboxed {
				base[w.Name] = w.P50
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(base)) {
		for i := range r.Runtimes {
			for _, w := range r.Runtimes[i].Work {
				if w.Name == name && len(w.Samples) > 0 {
					fmt.Fprintf(b, "| %s | %s | %.2f | %.2f | %.2f | %.2f | %.2f |\n", name, r.Runtimes[i].Name, w.Min, w.P50, w.P90, w.P99, w.P50/base[name])
				}
			}
		}
	}
}

// Unsandboxed is the name of no runtime at all: what everything is compared with, and a
// control, since what it holds no sandbox can claim for itself.
const Unsandboxed = "unsandboxed"

func (r *Results) failures(b *strings.Builder) {
	var lines []string
	for i := range r.Runtimes {
		rt := &r.Runtimes[i]
		for _, line := range rt.Broken() {
			lines = append(lines, "- "+rt.Name+": "+line+"\n")
		}
	}
	if len(lines) > 0 {
		b.WriteString("\n### What failed\n\n" + strings.Join(lines, ""))
	}
}

// Methodology says how the figures came about, on which machine.
func (r *Results) Methodology() string {
	var b strings.Builder
	fmt.Fprintf(&b, "kernel: %s\nprocessor: %s x %d, governor %s\nmemory: %s\nload before: %s\ncommit: %s\nuser: %s\ntime: %s\n",
		r.Machine.Kernel, r.Machine.Processor, r.Machine.Processors, r.Machine.Governor, r.Machine.Memory, r.Machine.Load, r.Commit, r.User, r.Time)
	for _, name := range slices.Sorted(maps.Keys(r.Programs)) {
		fmt.Fprintf(&b, "%s: %s\n", name, r.Programs[name])
	}
	fmt.Fprintf(&b, "root directory: %s\niterations: %d, after one that is discarded\n", r.Rootfs, r.Iterations)
	if r.MemoryMB > 0 {
		fmt.Fprintf(&b, "limits of each sandbox: %d MB, %g processors\n", r.MemoryMB, r.CPUs)
	} else {
		b.WriteString("limits of each sandbox: none; only root can have them made for these runtimes\n")
	}
	b.WriteString(method)
	for i := range r.Runtimes {
		fmt.Fprintf(&b, "%s: %s\n", r.Runtimes[i].Name, r.Runtimes[i].Command)
	}
	return b.String()
}

const method = `
How it was measured
- The bundles of runc, crun and runsc are written by Bailey's own writer (internal/sandbox/oci), which checks every
  wall, and are furnished anew for each launch in a directory in memory, in a mount and process namespace of its own.
- "bailey NAME" is the command with --runtime NAME: what a person waits for. The others are called by hand.
- Before anything is timed, a program inside looks at the boundary. A runtime whose boundary does not stand is not
  timed. "unsandboxed" is the control: there the same program must see that nothing stands.
- A launch counts if it ended with status 0 and a nonce, new for each launch, was written inside and read back.
  All others are counted as failures and are in no figure.
- Every iteration launches each runtime once, in rotating order, so that a change of the machine's speed meets all.
- cold: the root directory is a copy made for this launch, and the page cache is dropped before (root only).
  warm: neither. exec: one more process in a sandbox that runs. pool: "bailey --pool", once a sandbox waits.
- Quantiles are samples that were taken (nearest rank); raw samples are in results.json.
- Memory: all processes of the sandbox and those of Bailey that stand for it, from smaps_rollup, while the command
  sleeps.
- Work is timed inside, by the clock that the command sees, and its start is not in it.

How each was called
`
