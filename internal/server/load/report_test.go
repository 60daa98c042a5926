package load

import (
	"strings"
	"testing"
	"time"
)

func TestQuantilesAreThoseOfTheSamples(t *testing.T) {
	var samples []time.Duration
	for i := 100; i > 0; i-- {
		samples = append(samples, time.Duration(i)*time.Millisecond)
	}
	got := latency(execConnect, 8, samples, 2*time.Second)
	want := Latency{Name: execConnect, Clients: 8, Samples: 100, P50: 50, P90: 90, P99: 99, PerSecond: 50, Published: published[execConnect]}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if one := latency("x", 1, []time.Duration{time.Millisecond}, time.Second); one.P50 != 1 || one.P99 != 1 {
		t.Errorf("of one sample: %+v", one)
	}
}

func TestReportsAreTablesForPeople(t *testing.T) {
	r := &Report{Quick: true, Latencies: []Latency{latency(read1K, 1, []time.Duration{1500 * time.Microsecond}, time.Second)}}
	r.add(idleCount, 1000, "")
	r.add(idleInit, 12.345, "KB")
	text := r.Markdown()
	for _, want := range []string{
		"too short to conclude anything from",
		"| read a file of 1 KB | 1 | 1.50 | 1.50 | 1.50 | 1 | 1 | p50 0.5 ms, p99 2 ms; 5000+/s |",
		"| sandboxes idle at once, all answering | 1000  | 120+ |",
		"| 12.3 KB |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing from:\n%s", want, text)
		}
	}
}
