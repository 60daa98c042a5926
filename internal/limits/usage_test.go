package limits

import (
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

func TestHitsNameTheLimitAndItsFlag(t *testing.T) {
	all := spec.Limits{Memory: 64 << 20, CPU: 100, Pids: 16, Disk: 1 << 20}
	for _, c := range []struct {
		name   string
		used   Usage
		limits *spec.Limits
		want   []string
	}{
		{"none was met", Unknown(), &all, nil},
		{"there is none", Usage{Killed: 1, Refused: 1, Full: true}, nil, nil},
		{"killed by another's limit", Usage{Killed: 1}, &spec.Limits{Pids: 3}, nil},
		{"memory", Usage{Killed: 1}, &all, []string{"memory: the limit of 64M was reached: the kernel killed 1 process; for more: --memory"}},
		{"all", Usage{Killed: 2, Refused: 3, Full: true}, &all, []string{
			"memory: the limit of 64M was reached: the kernel killed 2 processes; for more: --memory",
			"pids: the limit of 16 was reached: 3 processes were not started; for more: --pids",
			"disk: the limit of 1M was reached: no space was left for files at the end; for more: --disk",
		}},
	} {
		var got []string
		for _, h := range c.used.Hits(c.limits) {
			got = append(got, h.Text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

func TestSinceSubtractsWhatWasBefore(t *testing.T) {
	before := Usage{Killed: 1, Refused: 5, User: 2, System: 3}
	got := Usage{Killed: 2, Refused: 5, User: 10, System: 4, PeakMemory: 9}.Since(before)
	if want := (Usage{Killed: 1, User: 8, System: 1, PeakMemory: 9}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
