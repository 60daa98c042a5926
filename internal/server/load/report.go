// Package load measures a server from outside, as its clients see it, and beside
// every figure of commands what the machine does without one: ways of doing the
// same take turns in short slices of time, so that what else the machine does
// falls on all of them. It is no test of a server's correctness, but whatever
// does not answer as it should ends the run: a fast failure is no figure.
package load

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

//go:generate go run ../../bench/schemagen -load ../../../docs/schema/server-load.schema.json

// Version is the form of the reports that this package writes.
const Version = 1

// Report is one run.
type Report struct {
	Version   int       `json:"version" jsonschema:"form of this file"`
	Time      string    `json:"time" jsonschema:"when the run ended, as RFC 3339 has it"`
	Server    string    `json:"server" jsonschema:"version of the server"`
	Quick     bool      `json:"quick" jsonschema:"whether the run was too short to conclude anything from"`
	Machine   Machine   `json:"machine"`
	Latencies []Latency `json:"latencies"`
	Figures   []Figure  `json:"figures"`
}

// Machine is where it ran, with clients and server on the same.
type Machine struct {
	Kernel     string `json:"kernel"`
	Processors int    `json:"processors"`
	Memory     int64  `json:"memory" jsonschema:"bytes"`
	Load       string `json:"load" jsonschema:"before the run, over 1, 5 and 15 minutes"`
}

// Latency is how long one thing took, done again and again by so many clients at
// once. Times are in milliseconds.
type Latency struct {
	Name      string  `json:"name"`
	Clients   int     `json:"clients"`
	Samples   int     `json:"samples"`
	P50       float64 `json:"p50"`
	P90       float64 `json:"p90"`
	P99       float64 `json:"p99"`
	PerSecond float64 `json:"perSecond" jsonschema:"how many all clients together did in a second"`
	Published string  `json:"published,omitempty" jsonschema:"what AgentFense publishes for the same on a machine of 2 cores and 4 GB"`
}

// Figure is anything else.
type Figure struct {
	Name      string  `json:"name"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Published string  `json:"published,omitempty" jsonschema:"what AgentFense publishes for the same on a machine of 2 cores and 4 GB"`
}

// latency sums up samples, of which there is at least one.
func latency(name string, clients int, samples []time.Duration, elapsed time.Duration) Latency {
	slices.Sort(samples)
	at := func(q float64) float64 {
		return milliseconds(samples[int(math.Ceil(q*float64(len(samples))))-1])
	}
	return Latency{
		Name: name, Clients: clients, Samples: len(samples), P50: at(.5), P90: at(.9), P99: at(.99),
		PerSecond: float64(len(samples)) / elapsed.Seconds(), Published: published[name],
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (r *Report) add(name string, value float64, unit string) {
	r.Figures = append(r.Figures, Figure{name, value, unit, published[name]})
}

// Encode returns the report as JSON.
func (r *Report) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	return append(data, '\n'), err
}

// Markdown returns the report as tables.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Server %s, %s, Linux %s, %d processors, %d MB, load before %s.\n", r.Server, r.Time, r.Machine.Kernel, r.Machine.Processors, r.Machine.Memory>>20, r.Machine.Load)
	if r.Quick {
		b.WriteString("A quick run: too short to conclude anything from.\n")
	}
	b.WriteString("\n| | clients | p50 ms | p90 ms | p99 ms | per second | samples | AgentFense publishes |\n|---|--:|--:|--:|--:|--:|--:|---|\n")
	for _, l := range r.Latencies {
		fmt.Fprintf(&b, "| %s | %d | %.2f | %.2f | %.2f | %.0f | %d | %s |\n", l.Name, l.Clients, l.P50, l.P90, l.P99, l.PerSecond, l.Samples, l.Published)
	}
	b.WriteString("\n| | | AgentFense publishes |\n|---|--:|---|\n")
	for _, f := range r.Figures {
		fmt.Fprintf(&b, "| %s | %s %s | %s |\n", f.Name, number(f.Value), f.Unit, f.Published)
	}
	return b.String()
}

// number has three digits that mean something, and all of a large one's.
func number(v float64) string {
	switch {
	case v == float64(int64(v)), v >= 100, v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10, v <= -10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
