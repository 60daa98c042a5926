package server

import (
	"slices"
	"testing"
	"time"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// misdeeds are what a command does to take from its machine as much as it gets. None of
// them ends by itself.
var misdeeds = map[string]string{
	"processor":   "for i in 1 2 3 4; do while :; do :; done & done; wait",
	"processes":   "bomb() { bomb | bomb & }; bomb 2>/dev/null; while :; do (sleep 1000 &) 2>/dev/null; done",
	"memory":      "while :; do tail </dev/zero; done 2>/dev/null",
	"disk":        "while :; do dd if=/dev/zero of=f bs=1M count=128 conv=fsync 2>/dev/null; rm f; done",
	"inodes":      "while :; do i=0; while [ $i -lt 5000 ]; do : >$i; i=$((i+1)); done; rm -f *; done",
	"descriptors": "while :; do (for i in $(seq 3 10000); do eval \"exec $i</dev/null\" || exit; done) 2>/dev/null; done",
	"network":     "for i in 1 2; do while :; do echo x >/dev/udp/127.0.0.1/9; done 2>/dev/null & done; wait",
}

// One sandbox does what it can to be in the way of another, which has its commands in no
// more than twice the time. What others do for it is left out, since that is not the
// sandbox's own time: to look after names that may not come into being, and to take output.
func TestNeighbourThatMisbehavesIsHardlyNoticed(t *testing.T) {
	testenv.Requires(t, testenv.Long, testenv.Root, testenv.NoRace, testenv.File("/bin/bash"))
	s := newSite(t, nil)
	own := s.create(&baileyv1.CreateSandboxRequest{})
	for name, line := range misdeeds {
		t.Run(name, func(t *testing.T) {
			other := s.create(&baileyv1.CreateSandboxRequest{
				Policy:    `{"filesystem": {"protectMissing": false}}`,
				Resources: &baileyv1.Resources{MemoryBytes: 64 << 20, CpuQuota: cpuPeriod / 2, PidsLimit: 64, OpenFiles: 256},
			})
			e := s.begin1(other, &baileyv1.Command{Argv: []string{"bash", "-c", line}})
			const tries = 5 // others use the machine, too
			for try := 1; ; try++ {
				alone, beside := s.interleaved(own, other)
				if at(beside, .99) <= 2*at(alone, .99) {
					break
				}
				if try == tries {
					t.Fatalf("p99 of a command: %v alone, %v beside it", at(alone, .99), at(beside, .99))
				}
			}
			if x, err := s.GetExec(ann, &baileyv1.GetExecRequest{SandboxId: other, ExecId: e}); err != nil || !x.GetRunning() {
				t.Errorf("it was not in the way to the end: %v, %v", x, err)
			}
			if _, err := s.DestroySandbox(ann, &baileyv1.DestroySandboxRequest{SandboxId: other}); err != nil {
				t.Errorf("it does not end: %v", err)
			}
		})
	}
}

// interleaved measures commands in one sandbox while another stands still and while it
// runs, by turns, so that both see the same machine.
func (s *site) interleaved(own, other string) (alone, beside []time.Duration) {
	s.t.Helper()
	some := func(to []time.Duration) []time.Duration {
		for range 10 {
			begin := time.Now()
			if r := s.exec1(own, &baileyv1.Command{Argv: []string{"/bin/true"}}); r.GetExit().GetCode() != 0 {
				s.t.Fatalf("%v, %s", r.GetExit(), r.GetStderr())
			}
			to = append(to, time.Since(begin))
		}
		return to
	}
	for range 50 {
		if _, err := s.PauseSandbox(ann, &baileyv1.PauseSandboxRequest{SandboxId: other}); err != nil {
			s.t.Fatal(err)
		}
		alone = some(alone)
		if _, err := s.ResumeSandbox(ann, &baileyv1.ResumeSandboxRequest{SandboxId: other}); err != nil {
			s.t.Fatal(err)
		}
		beside = some(beside)
	}
	slices.Sort(alone)
	slices.Sort(beside)
	return alone, beside
}

// at is a quantile of what is sorted.
func at(sorted []time.Duration, q float64) time.Duration { return sorted[int(q*float64(len(sorted)))] }
