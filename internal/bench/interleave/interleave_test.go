package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRatiosAreTakenWithinARound(t *testing.T) {
	dir := writeInput(t, map[string]string{
		"facts": "kernel=6.18\n",
		"pss":   "bailey=612\n",
		// The machine is ten times slower in the second round: a ratio of medians
		// would show it, a median of ratios does not.
		"10-true/01.json": `{"results":[{"command":"unsandboxed","times":[0.001]},{"command":"bwrap","times":[0.004]},{"command":"bailey","times":[0.003]}]}`,
		"10-true/02.json": `{"results":[{"command":"bailey","times":[0.030]},{"command":"unsandboxed","times":[0.010]},{"command":"bwrap","times":[0.040]}]}`,
		"20-rg/missing":   "rg\n",
	})
	r, err := read(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := r.markdown()
	for _, want := range []string{
		"| true | unsandboxed | 1.00 | 5.50 | 0.25 | 1.00 |\n| true | bwrap | 4.00 | 22.00 | 1.00 | 4.00 |\n| true | bailey | 3.00 | 16.50 | 0.75 | 3.00 |\n",
		"| rg | rg: not installed |",
		"| bailey | 612 KB |",
		"- kernel: 6.18\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("report lacks %q:\n%s", want, got)
		}
	}
}

func TestRoundWithoutAVariantIsRefused(t *testing.T) {
	dir := writeInput(t, map[string]string{
		"facts": "", "pss": "",
		"10-true/01.json": `{"results":[{"command":"unsandboxed","times":[0.001]},{"command":"bailey","times":[0.003]}]}`,
		"10-true/02.json": `{"results":[{"command":"unsandboxed","times":[0.001]}]}`,
	})
	if _, err := read(dir); err == nil || !strings.Contains(err.Error(), "1 samples in 2 rounds") {
		t.Errorf("got %v, want an error that counts the samples", err)
	}
}

func TestAPeerThatIsMissingHasARow(t *testing.T) {
	w := workload{Name: "true", Variants: []variant{{"bailey", []float64{0.003}}, {plain, []float64{0.001}}}}
	var b strings.Builder
	w.rows(&b)
	if want := "| true | bwrap: not installed |"; !strings.Contains(b.String(), want) {
		t.Errorf("got %q, want it to contain %q", b.String(), want)
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
