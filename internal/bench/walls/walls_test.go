package walls

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestQuantilesAreSamples(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[len(hundred)-1-i] = float64(i + 1)
	}
	for _, c := range []struct {
		name    string
		samples []float64
		want    [4]float64 // min, p50, p90, p99
	}{
		{"none", nil, [4]float64{}},
		{"one", []float64{7}, [4]float64{7, 7, 7, 7}},
		{"two", []float64{9, 3}, [4]float64{3, 3, 9, 9}},
		{"ten", []float64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, [4]float64{1, 5, 9, 10}},
		{"a hundred", hundred, [4]float64{1, 50, 90, 99}},
		{"one far out", append(slices.Repeat([]float64{2}, 98), 500, 600), [4]float64{2, 2, 2, 500}},
	} {
		got := Time(c.name, c.samples)
		if have := [4]float64{got.Min, got.P50, got.P90, got.P99}; have != c.want {
			t.Errorf("%s: got %v, want %v", c.name, have, c.want)
		}
	}
}

// standing is what a command sees of a boundary that stands.
func standing() (*View, *Bounds) {
	sets := map[string]string{}
	for _, name := range capabilitySets {
		sets[name] = "0000000000000000"
	}
	return &View{UID: 65534, Sets: sets, NoNewPrivs: true, Filter: true},
		&Bounds{MemoryMB: 256, Below: true, CPUs: 1, Busy: 0.97}
}

func TestEveryWeakWallIsSeen(t *testing.T) {
	if view, bounds := standing(); slices.ContainsFunc(Judge(view, bounds, false), func(w Wall) bool { return !w.Held }) {
		t.Fatalf("control: %+v", Judge(view, bounds, false))
	}
	for name, weaken := range map[string]func(*View, *Bounds){
		"user":                            func(v *View, _ *Bounds) { v.UID = 0 },
		"no new privileges":               func(v *View, _ *Bounds) { v.NoNewPrivs = false },
		"system call filter":              func(v *View, _ *Bounds) { v.Filter = false },
		"system directories":              func(v *View, _ *Bounds) { v.Written = []string{"/usr"} },
		"network interfaces":              func(v *View, _ *Bounds) { v.Interfaces = []string{"eth0"} },
		"descriptors besides the streams": func(v *View, _ *Bounds) { v.Descriptors = []int{7} },
		"memory":                          func(_ *View, b *Bounds) { b.Beyond = true },
		"processors":                      func(_ *View, b *Bounds) { b.Busy = 1.9 },
	} {
		view, bounds := standing()
		weaken(view, bounds)
		expectWeak(t, view, bounds, name)
	}
	for _, set := range capabilitySets {
		view, bounds := standing()
		view.Sets[set] = "0000000000000020"
		expectWeak(t, view, bounds, "capabilities")
		delete(view.Sets, set)
		expectWeak(t, view, bounds, "capabilities")
	}
	// A control that fails shows nothing.
	view, bounds := standing()
	bounds.Below = false
	expectWeak(t, view, bounds, "memory")
	bounds.Below, bounds.Busy = true, 0
	expectWeak(t, view, bounds, "processors")
}

func expectWeak(t *testing.T, v *View, b *Bounds, want string) {
	t.Helper()
	var weak []string
	for _, w := range Judge(v, b, false) {
		if !w.Held {
			weak = append(weak, w.Name)
		}
	}
	if !slices.Equal(weak, []string{want}) {
		t.Errorf("weak is %q, want %q", weak, want)
	}
}

func TestRootMayBeNoMoreThanAName(t *testing.T) {
	view, bounds := standing()
	view.UID = 0
	for _, w := range Judge(view, bounds, true) {
		if !w.Held {
			t.Errorf("%+v", w)
		}
	}
}

func example() *Results {
	return &Results{
		Version: Version, Time: "2026-01-02T03:04:05Z", Iterations: 3, Programs: map[string]string{"runc": "1.1"},
		Runtimes: []Runtime{
			{
				Name: "runc", Command: "runc", Walls: []Wall{{"user", "not root", "uid 65534", true}},
				Launch: []Launch{{Mode: Warm, Attempts: 3, Failures: 1, Reasons: []string{"it exploded"}, Phases: []Timed{Time(PhaseTotal, []float64{3, 4})}}},
				Memory: &Memory{Processes: 2, RSS: 3, PSS: 2, USS: 1},
				Work:   []Work{{Operations: 9, Attempts: 1, Timed: Time("stat walk", []float64{2})}},
			},
			{Name: "runsc", Missing: "runsc is not installed"},
		},
	}
}

func TestFailuresAreShown(t *testing.T) {
	r := example()
	text := r.Markdown()
	for _, want := range []string{"| runc | warm | total | 3.00 | 3.00 | 4.00 | 4.00 | 3 | 1 |", "1 of 3 launches failed (warm): it exploded", "runsc: runsc is not installed"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	r.Runtimes[0].Walls[0].Held = false
	if got := r.Runtimes[0].Broken(); len(got) != 2 || !strings.Contains(got[0], "user is uid 65534") {
		t.Errorf("broken: %q", got)
	}
	r.Runtimes[0].Launch[0].Failures = 0
	r.Runtimes[0].Control = true
	if got := r.Runtimes[0].Broken(); len(got) != 0 {
		t.Errorf("a control is broken: %q", got)
	}
}

func TestResultsFitTheSchemaAndAreReadBack(t *testing.T) {
	data, err := example().Encode()
	if err != nil {
		t.Fatal(err)
	}
	schema := testenv.Schema(t, "sandbox-bench.schema.json")
	var value map[string]any
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Error(err)
	}
	value["iterations"] = "3"
	if schema.Validate(value) == nil {
		t.Error("control: a number that is a text fits the schema")
	}
	file := filepath.Join(t.TempDir(), "results.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); err != nil {
		t.Error(err)
	}
}

func TestFiguresThatAreNotOfTheSamplesAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Results){
		"another version":        func(r *Results) { r.Version = 7 },
		"nothing":                func(r *Results) { r.Runtimes = nil },
		"no boundary":            func(r *Results) { r.Runtimes[0].Walls = nil },
		"a figure":               func(r *Results) { r.Runtimes[0].Launch[0].Phases[0].P50 = 1 },
		"a sample of a failure":  func(r *Results) { r.Runtimes[0].Launch[0].Failures = 2 },
		"a failure for nothing":  func(r *Results) { r.Runtimes[0].Launch[0].Reasons = nil },
		"a sample less of work":  func(r *Results) { r.Runtimes[0].Work[0].Attempts = 2 },
		"reasons for no failure": func(r *Results) { r.Runtimes[0].Launch[0].Failures = 0 },
	} {
		r := example()
		if err := r.Check(); err != nil {
			t.Fatalf("control: %v", err)
		}
		spoil(r)
		if r.Check() == nil {
			t.Errorf("%s passed", name)
		}
	}
}
