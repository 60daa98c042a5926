// Package bench holds what the harness measured: how it is written and read,
// what may be concluded from it, and how it is shown.
package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
)

//go:generate go run ./schemagen ../../docs/schema/benchmark.schema.json

// Version is the form of the reports that this package writes and reads.
const Version = 1

// Names of variants that others are compared with.
const (
	Unsandboxed = "unsandboxed"
	Previous    = "previous" // an earlier build, measured in the same run
	Bailey      = "bailey"
)

// Report is one run of the harness, with every sample it took.
type Report struct {
	Version   int               `json:"version" jsonschema:"form of this file"`
	Time      string            `json:"time" jsonschema:"when the run ended, as RFC 3339 has it"`
	OS        string            `json:"os"`
	Arch      string            `json:"arch"`
	Commit    string            `json:"commit" jsonschema:"of the tree that the harness ran in"`
	User      string            `json:"user" jsonschema:"who ran what was measured"`
	Rounds    int               `json:"rounds" jsonschema:"how often every variant of a workload was run, in rotating order"`
	Machine   Machine           `json:"machine"`
	Programs  map[string]string `json:"programs" jsonschema:"versions of what took part"`
	Workloads []Workload        `json:"workloads"`
	Launches  []Launch          `json:"launches,omitempty" jsonschema:"launches of a command that does nothing, in parts"`
	Sandboxes []Sandbox         `json:"sandboxes,omitempty" jsonschema:"what took part, as it was tried from inside before the run"`
	Memory    map[string]int    `json:"memory,omitempty" jsonschema:"kilobytes (PSS) of everything a sandbox runs besides the command, by variant"`
}

// Machine is where it ran.
type Machine struct {
	Kernel     string `json:"kernel"`
	Processor  string `json:"processor"`
	Processors int    `json:"processors"`
	Memory     string `json:"memory"`
	Governor   string `json:"governor" jsonschema:"of the processor's frequency, or none"`
	Load       string `json:"load" jsonschema:"before the run, over 1, 5 and 15 minutes"`
}

// Workload is a command, run in several ways. All variants have as many samples;
// sample i of each was taken in the same round, moments apart.
type Workload struct {
	Name     string            `json:"name"`
	Category string            `json:"category"`
	Command  string            `json:"command" jsonschema:"as it ran unsandboxed"`
	Calls    int               `json:"calls,omitempty" jsonschema:"programs that one sample executes one after the other, if several"`
	Missing  string            `json:"missing,omitempty" jsonschema:"why nothing was measured"`
	Variants []Variant         `json:"variants,omitempty"`
	Absent   map[string]string `json:"absent,omitempty" jsonschema:"variants that were not measured, and why"`
}

// Variant is a way to run a workload.
type Variant struct {
	Name    string    `json:"name"`
	Seconds []float64 `json:"seconds"`
}

// Sandbox is something that runs commands, and what it held when it was tried.
// Unsandboxed is among them: what it holds, no sandbox can claim for itself.
type Sandbox struct {
	Name    string            `json:"name" jsonschema:"the variant"`
	Command string            `json:"command" jsonschema:"how it runs COMMAND"`
	Tried   map[string]string `json:"tried" jsonschema:"what was tried from inside, and what came of it"`
}

// Launch is one launch as its starter saw it, and its parts in their order.
type Launch struct {
	Build   string  `json:"build" jsonschema:"the variant that was launched"`
	Seconds float64 `json:"seconds"`
	Parts   []Part  `json:"parts"`
}

// Part is one part of a launch.
type Part struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// Find returns the samples of a variant, or nil.
func (w *Workload) Find(name string) []float64 {
	for i := range w.Variants {
		if w.Variants[i].Name == name {
			return w.Variants[i].Seconds
		}
	}
	return nil
}

// Factors returns how many times as long a variant took as another did in the
// same round. A machine that slows down for a while slows both.
func (w *Workload) Factors(name, base string) []float64 {
	over, under := w.Find(name), w.Find(base)
	if over == nil || under == nil {
		return nil
	}
	factors := make([]float64, len(over))
	for i := range factors {
		factors[i] = over[i] / under[i]
	}
	return factors
}

// Check reports what makes a report unfit for conclusions.
func (r *Report) Check() error {
	if r.Version != Version {
		return fmt.Errorf("the report is of version %d, this program reads %d", r.Version, Version)
	}
	if len(r.Workloads) == 0 {
		return errors.New("the report has no workloads")
	}
	for i := range r.Workloads {
		if err := r.Workloads[i].check(); err != nil {
			return err
		}
	}
	for _, l := range r.Launches {
		if l.Seconds <= 0 || len(l.Parts) == 0 {
			return errors.New("a launch has no duration or no parts")
		}
	}
	return nil
}

func (w *Workload) check() error {
	if w.Missing != "" {
		return nil
	}
	if len(w.Variants) == 0 {
		return fmt.Errorf("workload %s has no variants", w.Name)
	}
	for _, v := range w.Variants {
		if len(v.Seconds) == 0 || len(v.Seconds) != len(w.Variants[0].Seconds) {
			return fmt.Errorf("workload %s: %s has %d samples, %s has %d", w.Name, v.Name, len(v.Seconds), w.Variants[0].Name, len(w.Variants[0].Seconds))
		}
		if slices.Min(v.Seconds) <= 0 {
			return fmt.Errorf("workload %s: %s has a sample that took no time", w.Name, v.Name)
		}
	}
	return nil
}

// Read reads a report from a file.
func Read(file string) (*Report, error) { return ReadChecked[Report](file) }

// ReadChecked reads a file of JSON that has nothing but what a type has, and that
// the type's Check finds fit.
func ReadChecked[T any, P interface {
	*T
	Check() error
}](file string) (P, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := P(new(T))
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := r.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// Encode returns a report as a file has it.
func (r *Report) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	return append(data, '\n'), err
}
