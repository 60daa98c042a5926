package server

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
)

// scrape returns the figures as they are now; of histograms, how often.
func (s *site) scrape() map[string]float64 {
	s.t.Helper()
	s.figures.mu.Lock()
	s.figures.taken = time.Time{}
	s.figures.mu.Unlock()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collector())
	families, err := registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func TestFiguresAreThoseOfAllSandboxes(t *testing.T) {
	s := newSite(t, nil)
	if f := s.scrape(); f["bailey_sandbox_processes"] != 0 || f["bailey_sandbox_mounts"] != 0 {
		t.Errorf("without sandboxes: %v", f)
	}
	one, two := s.create(&baileyv1.CreateSandboxRequest{}), s.create(&baileyv1.CreateSandboxRequest{})
	s.run(one, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
	// The kernel counts the memory of a process only roughly: it must be much.
	const much, hold = 30_000_000, "x=$(head -c 30000000 /dev/zero | tr '\\0' x); kill -STOP $$"
	if _, err := s.StartExec(ann, &baileyv1.StartExecRequest{SandboxId: two, Command: &baileyv1.Command{Argv: []string{"sh", "-c", hold}}}); err != nil {
		t.Fatal(err)
	}
	f := s.scrape()
	for f["bailey_sandbox_memory_bytes"] < much || f["bailey_sandbox_processes"] > 3 {
		time.Sleep(10 * time.Millisecond)
		f = s.scrape()
	}
	// The command of the one is over, that of the other is not.
	for id, want := range map[string]*baileyv1.Stats{one: {}, two: {Processes: 1, MemoryBytes: much, Execs: 1}} {
		st, err := s.GetStats(ann, &baileyv1.GetStatsRequest{SandboxId: id})
		if err != nil || st.GetProcesses() != want.GetProcesses() || st.GetMemoryBytes() < want.GetMemoryBytes() || st.GetExecs() != want.GetExecs() {
			t.Errorf("stats: %v, %v, want %v", st, err, want)
		}
		if st.GetCpuTime().AsDuration() <= 0 || st.GetMemoryPeakBytes() < max(st.GetMemoryBytes(), 1<<20) {
			t.Errorf("what was used is forgotten: %v", st)
		}
	}
	for name, want := range map[string]float64{
		"bailey_sandbox_processes": 3, "bailey_execs_running": 1,
		"bailey_sandbox_create_seconds": 2, "bailey_exec_start_seconds": 2,
	} {
		if f[name] != want {
			t.Errorf("%s is %v, want %v", name, f[name], want)
		}
	}
	for _, name := range []string{"bailey_sandbox_mounts", "bailey_sandbox_cpu_seconds_total"} {
		if f[name] <= 0 {
			t.Errorf("%s is %v", name, f[name])
		}
	}
	if _, err := s.DestroySandbox(ann, &baileyv1.DestroySandboxRequest{SandboxId: one}); err != nil {
		t.Fatal(err)
	}
	after := s.scrape()
	if after["bailey_sandbox_processes"] != 2 || after["bailey_sandbox_cpu_seconds_total"] < f["bailey_sandbox_cpu_seconds_total"] {
		t.Errorf("after one was destroyed: %v, before %v", after, f)
	}
}

func TestTotalsOnlyGrow(t *testing.T) {
	f := newFigures(nil)
	for _, step := range []struct {
		found map[string]*used
		want  used
	}{
		{map[string]*used{"a": {cpu: 5, read: 10, written: 20}}, used{cpu: 5, read: 10, written: 20}},
		{map[string]*used{"a": {cpu: 7, read: 9, written: 25}, "b": {cpu: 1}}, used{cpu: 8, read: 10, written: 25}},
		{map[string]*used{"b": {cpu: 2}}, used{cpu: 9, read: 10, written: 25}},
		{map[string]*used{}, used{cpu: 9, read: 10, written: 25}},
	} {
		if f.add(step.found); f.total != step.want {
			t.Errorf("after %v the total is %+v, want %+v", step.found, f.total, step.want)
		}
	}
}

func TestProcessFilesAreRead(t *testing.T) {
	stat := []byte("7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 10 20 30 40 20 0 2 0 5 1000 3 18446744073709551615\n")
	if cpu, memory, threads, ok := parseStat(stat); !ok || cpu != time.Second || memory <= 0 || threads != 2 {
		t.Errorf("stat: %v, %d, %d, %v", cpu, memory, threads, ok)
	}
	if _, _, _, ok := parseStat([]byte("7 (a) S 1")); ok {
		t.Error("half a line is taken for a whole one")
	}
	io := []byte("rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 5\n")
	if read, written := parseIO(io); read != 4096 || written != 8192 {
		t.Errorf("io: %d, %d", read, written)
	}
}
