// Command interleave joins the rounds of an interleaved benchmark into one
// report. scripts/benchmark.sh runs, in each round, every variant of a workload
// once, in rotating order, so that a machine that slows down slows all variants;
// the ratio of two variants is therefore taken within a round, and the median of
// these ratios is what is reported.
//
// The input directory has a directory for each workload, in the order of their
// names ("10-true"), with the JSON export of hyperfine for each round, or a file
// "missing" with the name of a program that is not installed. The file "facts"
// has lines of the form name=value, the file "pss" lines of the form
// variant=kilobytes.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: interleave ROUNDS OUTPUT-DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], time.Now().UTC()); err != nil {
		fmt.Fprintln(os.Stderr, "interleave:", err)
		os.Exit(1)
	}
}

func run(rounds, output string, now time.Time) error {
	report, err := read(rounds)
	if err != nil {
		return err
	}
	report.OS, report.Arch, report.Time = runtime.GOOS, runtime.GOARCH, now.Format(time.RFC3339)
	encoded, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(output, 0o755); err != nil {
		return err
	}
	base := filepath.Join(output, fmt.Sprintf("%s-%s-%s", report.OS, report.Arch, now.Format("20060102T150405Z")))
	if err := os.WriteFile(base+".json", append(encoded, '\n'), 0o644); err != nil {
		return err
	}
	text := report.markdown()
	if err := os.WriteFile(base+".md", []byte(text), 0o644); err != nil {
		return err
	}
	fmt.Printf("%s\nwritten: %s.json %s.md\n", text, base, base)
	return nil
}

// report is the whole benchmark, as written to the JSON file.
type report struct {
	OS        string            `json:"os"`
	Arch      string            `json:"arch"`
	Time      string            `json:"time"`
	Facts     map[string]string `json:"facts"`
	Workloads []workload        `json:"workloads"`
	PSS       map[string]string `json:"pssKilobytes,omitempty"`
}

// workload has the same number of samples, in seconds, for each variant: sample
// i of all variants was taken in round i.
type workload struct {
	Name     string    `json:"name"`
	Missing  string    `json:"missing,omitempty"`
	Variants []variant `json:"variants,omitempty"`
}

type variant struct {
	Name    string    `json:"name"`
	Seconds []float64 `json:"seconds"`
}

func read(dir string) (report, error) {
	facts, err := readPairs(filepath.Join(dir, "facts"))
	if err != nil {
		return report{}, err
	}
	pss, err := readPairs(filepath.Join(dir, "pss"))
	if err != nil {
		return report{}, err
	}
	r := report{Facts: facts, PSS: pss}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return report{}, err
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		w, err := readWorkload(filepath.Join(dir, entry.Name()))
		if err != nil {
			return report{}, err
		}
		r.Workloads = append(r.Workloads, w)
	}
	if len(r.Workloads) == 0 {
		return report{}, fmt.Errorf("%s: no workloads", dir)
	}
	return r, nil
}

func readWorkload(dir string) (workload, error) {
	_, name, _ := strings.Cut(filepath.Base(dir), "-")
	w := workload{Name: name}
	missing, err := os.ReadFile(filepath.Join(dir, "missing"))
	if err == nil {
		w.Missing = strings.TrimSpace(string(missing))
		return w, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return w, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return w, err
	}
	for _, file := range files {
		if err := w.addRound(file); err != nil {
			return w, fmt.Errorf("%s: %w", file, err)
		}
	}
	for _, v := range w.Variants {
		if len(v.Seconds) != len(files) {
			return w, fmt.Errorf("%s: %s has %d samples in %d rounds", dir, v.Name, len(v.Seconds), len(files))
		}
	}
	return w, nil
}

// addRound reads what hyperfine exports: one time for each variant.
func (w *workload) addRound(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var round struct {
		Results []struct {
			Command string    `json:"command"`
			Times   []float64 `json:"times"`
		} `json:"results"`
	}
	if err := json.Unmarshal(data, &round); err != nil {
		return err
	}
	for _, result := range round.Results {
		v := w.variant(result.Command)
		v.Seconds = append(v.Seconds, result.Times...)
	}
	return nil
}

func (w *workload) variant(name string) *variant {
	for i := range w.Variants {
		if w.Variants[i].Name == name {
			return &w.Variants[i]
		}
	}
	w.Variants = append(w.Variants, variant{Name: name})
	return &w.Variants[len(w.Variants)-1]
}

func readPairs(file string) (map[string]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pairs := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			return nil, fmt.Errorf("%s: %q is not name=value", file, line)
		}
		pairs[name] = value
	}
	return pairs, nil
}
