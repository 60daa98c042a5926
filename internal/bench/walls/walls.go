// Package walls holds what the sandbox bench (scripts/bench/sandbox-bench.sh) saw of
// each runtime: whether its boundary stood, how long every part of a launch took, what
// an idle sandbox takes of memory, and what work inside costs.
//
// Only launches that ended with status 0 and whose nonce was read back count. The others
// are in the results too, as failures.
package walls

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bailey-sandbox/bailey/internal/bench"
)

//go:generate go run ../schemagen -walls ../../../docs/schema/sandbox-bench.schema.json

// Version is the form of the results that this package writes and reads.
const Version = 1

// Modes of launches.
const (
	Cold = "cold" // a root directory staged for this launch, page cache dropped
	Warm = "warm"
	Exec = "exec" // one more process in a sandbox that runs
	Pool = "pool" // a sandbox that had been built before; see docs/runtimes-oci.md
)

// Phases of launches, in their order.
const (
	PhaseStage     = "stage"      // the bundle is furnished
	PhaseCreate    = "create"     // the runtime makes the sandbox
	PhaseStart     = "start"      // the runtime starts the command, up to its own end
	PhaseFirstByte = "first byte" // from the start to the first byte that the command writes
	PhaseExit      = "exit"       // from the first byte to the end of the command
	PhaseTeardown  = "teardown"   // from there until nothing is left
	PhaseTotal     = "total"
)

// Phases is their order.
var Phases = []string{PhaseStage, PhaseCreate, PhaseStart, PhaseFirstByte, PhaseExit, PhaseTeardown, PhaseTotal}

// Results is one run of the bench.
type Results struct {
	Version    int               `json:"version" jsonschema:"form of this file"`
	Time       string            `json:"time" jsonschema:"when the run ended, as RFC 3339 has it"`
	Commit     string            `json:"commit" jsonschema:"of the tree that the bench ran in"`
	User       string            `json:"user"`
	Iterations int               `json:"iterations" jsonschema:"launches of each runtime in each mode, not counting one that is discarded"`
	MemoryMB   int               `json:"memory_mb" jsonschema:"limit of each sandbox; 0: none, which is what an ordinary user has"`
	CPUs       float64           `json:"cpus" jsonschema:"limit of each sandbox; 0: none"`
	Rootfs     string            `json:"rootfs" jsonschema:"what the root directory of the bundles is"`
	Machine    bench.Machine     `json:"machine"`
	Programs   map[string]string `json:"programs" jsonschema:"versions of what took part"`
	Runtimes   []Runtime         `json:"runtimes"`
}

// Runtime is what was seen of one way to run a command.
type Runtime struct {
	Name    string   `json:"name"`
	Command string   `json:"command" jsonschema:"how it was called"`
	Control bool     `json:"control" jsonschema:"it is there to be compared with, and its boundary need not stand"`
	Missing string   `json:"missing,omitempty" jsonschema:"why nothing was measured"`
	Walls   []Wall   `json:"walls,omitempty" jsonschema:"the boundary as it was seen from inside, before anything was timed"`
	Launch  []Launch `json:"launches,omitempty"`
	Memory  *Memory  `json:"memory,omitempty"`
	Work    []Work   `json:"work,omitempty"`
}

// Wall is one part of a boundary.
type Wall struct {
	Name string `json:"name"`
	Want string `json:"want"`
	Got  string `json:"got"`
	Held bool   `json:"held"`
}

// Launch is all launches in one mode.
type Launch struct {
	Mode     string   `json:"mode"`
	Attempts int      `json:"attempts"`
	Failures int      `json:"failures"`
	Reasons  []string `json:"reasons,omitempty" jsonschema:"of failures, each once"`
	Phases   []Timed  `json:"phases,omitempty"`
}

// Timed is something that was timed over and over.
type Timed struct {
	Name    string    `json:"name"`
	Samples []float64 `json:"samples_ms" jsonschema:"in the order they were taken"`
	Min     float64   `json:"min_ms"`
	P50     float64   `json:"p50_ms"`
	P90     float64   `json:"p90_ms"`
	P99     float64   `json:"p99_ms"`
}

// Memory is what a sandbox takes whose command does nothing: all of its processes, and
// those of Bailey that stand for it.
type Memory struct {
	Processes int `json:"processes"`
	RSS       int `json:"rss_kb" jsonschema:"with what is shared counted in each process"`
	PSS       int `json:"pss_kb" jsonschema:"with what is shared divided among those that share it"`
	USS       int `json:"uss_kb" jsonschema:"what would be free if it ended"`
}

// Work is something that was timed inside, by the clock that the command sees.
type Work struct {
	Operations int    `json:"operations"`
	Attempts   int    `json:"attempts"`
	Failures   int    `json:"failures"`
	Reason     string `json:"reason,omitempty" jsonschema:"of the last failure"`
	Timed
}

// Broken says what of a runtime is not as it must be: it could not be measured, a wall
// did not stand, or launches failed.
func (r *Runtime) Broken() (list []string) {
	if r.Missing != "" {
		return []string{r.Missing}
	}
	for _, w := range r.Walls {
		if !w.Held && !r.Control {
			list = append(list, fmt.Sprintf("%s is %s, must be %s", w.Name, w.Got, w.Want))
		}
	}
	for _, l := range r.Launch {
		if l.Failures > 0 {
			list = append(list, fmt.Sprintf("%d of %d launches failed (%s): %s", l.Failures, l.Attempts, l.Mode, l.Reasons[0]))
		}
	}
	for _, w := range r.Work {
		if w.Failures > 0 {
			list = append(list, fmt.Sprintf("%d of %d runs failed (%s): %s", w.Failures, w.Attempts, w.Name, w.Reason))
		}
	}
	return list
}

// Find returns what was timed, or nil.
func (r *Runtime) Find(mode, phase string) *Timed {
	for i := range r.Launch {
		if r.Launch[i].Mode != mode {
			continue
		}
		for j := range r.Launch[i].Phases {
			if r.Launch[i].Phases[j].Name == phase {
				return &r.Launch[i].Phases[j]
			}
		}
	}
	return nil
}

// Check reports what makes results unfit for conclusions.
func (r *Results) Check() error {
	if r.Version != Version {
		return fmt.Errorf("the results are of version %d, this program reads %d", r.Version, Version)
	}
	if len(r.Runtimes) == 0 {
		return errors.New("the results have no runtimes")
	}
	for i := range r.Runtimes {
		if err := r.Runtimes[i].check(); err != nil {
			return fmt.Errorf("%s: %w", r.Runtimes[i].Name, err)
		}
	}
	return nil
}

func (r *Runtime) check() error {
	if r.Missing == "" && len(r.Walls) == 0 {
		return errors.New("nothing is known of its boundary")
	}
	for _, l := range r.Launch {
		if l.Failures > 0 != (len(l.Reasons) > 0) {
			return fmt.Errorf("%s: %d failures have %d reasons", l.Mode, l.Failures, len(l.Reasons))
		}
		for _, p := range l.Phases {
			if err := p.check(l.Attempts - l.Failures); err != nil {
				return fmt.Errorf("%s: %w", l.Mode, err)
			}
		}
	}
	for _, w := range r.Work {
		if err := w.check(w.Attempts - w.Failures); err != nil {
			return err
		}
	}
	return nil
}

// check wants as many samples as there were launches that count.
func (t *Timed) check(count int) error {
	if len(t.Samples) != count {
		return fmt.Errorf("%s has %d samples of %d launches", t.Name, len(t.Samples), count)
	}
	if again := Time(t.Name, t.Samples); again.Min != t.Min || again.P50 != t.P50 || again.P90 != t.P90 || again.P99 != t.P99 {
		return fmt.Errorf("%s: the figures are not those of the samples", t.Name)
	}
	return nil
}

// Read reads results from a file.
func Read(file string) (*Results, error) { return bench.ReadChecked[Results](file) }

// Encode returns results as a file has them.
func (r *Results) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	return append(data, '\n'), err
}
