package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailey-sandbox/bailey/internal/bench"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

var twoRounds = map[string]string{
	"facts":         "commit=abc\nuser=me\nrounds=2\nkernel=6.18\nprocessor=some\nprocessors=2\nmemory=1 MiB\ngovernor=none\nload=0 0 0\nprogram.git=git version 2\n",
	"memory":        "bailey=612\n",
	"sandboxes":     "bwrap.command=bwrap --bind / / COMMAND\nbwrap.tried.read elsewhere=read\nunsandboxed.command=COMMAND\nunsandboxed.tried.read elsewhere=read\nbailey.command=bailey -- COMMAND\nbailey.tried.read elsewhere=refused\n",
	"launches":      `{"build":"bailey","seconds":0.003,"parts":[{"name":"program start","seconds":0.001},{"name":"exec","seconds":0.002}]}` + "\n",
	"10-true/about": "category=spawn\ncommand=/bin/true\nabsent.firejail=not installed\n",
	// The machine is ten times slower in the second round: a ratio of medians
	// would show it, a median of ratios does not.
	"10-true/01.json": `{"results":[{"command":"unsandboxed","times":[0.001]},{"command":"bwrap","times":[0.004]},{"command":"bailey","times":[0.003]}]}`,
	"10-true/02.json": `{"results":[{"command":"bailey","times":[0.030]},{"command":"unsandboxed","times":[0.010]},{"command":"bwrap","times":[0.040]}]}`,
	"20-rg/about":     "category=files\nmissing=rg is not installed\n",
	"60-many/about":   "category=amortised\ncommand=sh spawn.sh\ncalls=1000\n",
	"60-many/01.json": `{"results":[{"command":"unsandboxed","times":[0.5]},{"command":"bailey","times":[0.6]}]}`,
	"60-many/02.json": `{"results":[{"command":"unsandboxed","times":[0.5]},{"command":"bailey","times":[0.6]}]}`,
}

func TestReportHasEveryRowThatWasAskedFor(t *testing.T) {
	r, err := read(writeInput(t, twoRounds))
	if err != nil {
		t.Fatal(err)
	}
	got := r.Markdown()
	for _, want := range []string{
		"| true | unsandboxed | 1.00 | 5.50 | 1.00 |  | 0.25 |\n| true | bwrap | 4.00 | 22.00 | 4.00 | (4.00 … 4.00) | 1.00 |\n| true | bailey | 3.00 | 16.50 | 3.00 | (3.00 … 3.00) | 0.75 |\n",
		"| true | firejail: not installed |",
		"| rg | rg is not installed |",
		"| many | bailey | 600 |",
		"| bailey | 612 KB |",
		"| sandbox | read elsewhere |\n|---|---|\n| unsandboxed | read |\n| bailey | refused |\n| bwrap | read |\n",
		"- bwrap: `bwrap --bind / / COMMAND`\n",
		"| all parts | 3000 | 100.0 % |",
		"- kernel: 6.18\n", "- git: git version 2\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("report lacks %q:\n%s", want, got)
		}
	}
}

func TestEveryReportIsWhatTheSchemaSays(t *testing.T) {
	out := t.TempDir()
	if err := collect(writeInput(t, twoRounds), out, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(out, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	schema := testenv.Schema(t, "benchmark.schema.json")
	if err := validate(schema, data); err != nil {
		t.Error(err)
	}
	if err := validate(schema, bytes.Replace(data, []byte(`"rounds": 2`), []byte(`"rounds": "2"`), 1)); err == nil {
		t.Error("the schema takes a number in quotes")
	}
	if _, err := bench.Read(files[0]); err != nil {
		t.Error(err)
	}
	page, err := os.ReadFile(strings.TrimSuffix(files[0], ".json") + ".html")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<svg", "What a launch is made of", "read elsewhere: refused", "abc", "firejail (not installed)", "rg is not installed", ">16.50 ms, 3.00x<",
	} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, unwanted := range []string{"http://", "https://", "<script", "NaN"} {
		if bytes.Contains(page, []byte(unwanted)) {
			t.Errorf("the page has %q in it", unwanted)
		}
	}
}

// Two runs may end in the same second, and a disk may be full.
func TestNoReportTakesThePlaceOfAnother(t *testing.T) {
	out, now := t.TempDir(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	input := writeInput(t, twoRounds)
	for range 3 {
		if err := collect(input, out, now); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(out, "*"))
	if err != nil || len(files) != 9 {
		t.Errorf("three runs left %v, %v", files, err)
	}
	// Nothing can be renamed to what is a directory with something in it.
	name := filepath.Join(out, "taken.json")
	if err := os.MkdirAll(filepath.Join(name, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeWhole(name, []byte("{}")); err == nil || exists(name+".part") {
		t.Errorf("got %v, and half of the file is there: %v", err, exists(name+".part"))
	}
}

func validate(schema *jsonschema.Resolved, data []byte) error {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	return schema.Validate(value)
}

func TestRoundWithoutAVariantIsRefused(t *testing.T) {
	dir := writeInput(t, map[string]string{
		"facts": "", "memory": "", "sandboxes": "", "10-true/about": "",
		"10-true/01.json": `{"results":[{"command":"unsandboxed","times":[0.001]},{"command":"bailey","times":[0.003]}]}`,
		"10-true/02.json": `{"results":[{"command":"unsandboxed","times":[0.001]}]}`,
	})
	if _, err := read(dir); err == nil || !strings.Contains(err.Error(), "1 samples in 2 rounds") {
		t.Errorf("got %v, want an error that counts the samples", err)
	}
}

// A command that fails is often the fastest.
func TestWhatFailedHasNoTime(t *testing.T) {
	input := func(failed string) map[string]string {
		round := `{"results":[{"command":"unsandboxed","times":[0.001],"exit_codes":[0]},{"command":"bailey","times":[0.003],"exit_codes":[0]},{"command":"bwrap","times":[0.002],"exit_codes":[0]}]}`
		at := strings.Index(round, failed)
		return map[string]string{
			"facts": "", "memory": "", "sandboxes": "bailey.command=x\nbwrap.command=x\n", "10-true/about": "", "10-true/01.json": round,
			"10-true/02.json": round[:at] + strings.Replace(round[at:], `"exit_codes":[0]`, `"exit_codes":[null]`, 1),
			"10-true/03.json": round[:at] + strings.Replace(round[at:], `"exit_codes":[0]`, `"exit_codes":[1]`, 1),
		}
	}
	r, err := read(writeInput(t, input("bwrap")))
	if err != nil {
		t.Fatal(err)
	}
	if w := r.Workloads[0]; w.Find("bwrap") != nil || w.Absent["bwrap"] != "failed in 2 of 3 rounds" || len(w.Find("bailey")) != 3 {
		t.Errorf("got %+v", w)
	}
	for _, name := range []string{"bailey", "unsandboxed"} {
		if _, err := read(writeInput(t, input(name))); err == nil || !strings.Contains(err.Error(), name+" failed in 2 of 3 rounds") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestPartsOfALaunchAddUpToTheWhole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace")
	if err := os.WriteFile(file, []byte(`{"part":"start","ns":1000}
{"part":"program start","ns":4000,"took":3000}
{"part":"spec","ns":8000,"took":4000}
{"part":"clone","ns":5000,"child":true}
{"part":"exec","ns":9000,"took":1000}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := readTrace(file, 1000, 10000)
	if err != nil {
		t.Fatal(err)
	}
	sum, least := 0.0, 1.0
	for _, p := range l.Parts {
		sum, least = sum+p.Seconds, min(least, p.Seconds)
	}
	if len(l.Parts) != 5 || math.Abs(sum-l.Seconds) > 1e-12 || least <= 0 || l.Parts[4].Name != "exit" {
		t.Errorf("got %+v, whose parts add up to %g", l, sum)
	}
}

func writeInput(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}
