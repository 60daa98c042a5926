package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/bench"
)

// collect reads a directory of rounds and writes the report in three forms.
//
// The input has a directory for each workload, in the order of their names
// ("10-true"), with the JSON export of hyperfine for each round, and a file
// "about" with lines of the form name=value: the category, the command, the
// number of calls, what is missing, and absent.VARIANT for each that is. The
// files "facts" and "memory" are of the same form, and "sandboxes", with lines
// NAME.command and NAME.tried.WHAT; "launches" has one JSON object a line.
func collect(rounds, output string, now time.Time) error {
	report, err := read(rounds)
	if err != nil {
		return err
	}
	report.Version, report.OS, report.Arch, report.Time = bench.Version, runtime.GOOS, runtime.GOARCH, now.Format(time.RFC3339)
	if err := report.Check(); err != nil {
		return err
	}
	if err := os.MkdirAll(output, 0o755); err != nil {
		return err
	}
	return write(report, free(filepath.Join(output, fmt.Sprintf("%s-%s-%s", report.OS, report.Arch, now.Format("20060102T150405Z")))))
}

// free returns a name that no report has yet: another run may have ended in the same
// second.
func free(base string) string {
	name := base
	for i := 2; ; i++ {
		if _, err := os.Lstat(name + ".json"); err != nil {
			return name
		}
		name = fmt.Sprintf("%s-%d", base, i)
	}
}

func write(report *bench.Report, base string) error {
	encoded, err := report.Encode()
	if err != nil {
		return err
	}
	earlier, err := earlierThan(report, filepath.Dir(base))
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := report.HTML(&page, earlier); err != nil {
		return err
	}
	text := report.Markdown()
	for _, f := range []struct {
		ending string
		data   []byte
	}{{".json", encoded}, {".md", []byte(text)}, {".html", page.Bytes()}} {
		if err := writeWhole(base+f.ending, f.data); err != nil {
			return err
		}
	}
	fmt.Printf("%s\nwritten: %s.json .md .html\n", text, base)
	return nil
}

// writeWhole writes a file, or none: half of a report is no report.
func writeWhole(name string, data []byte) error {
	part := name + ".part"
	err := os.WriteFile(part, data, 0o644)
	if err == nil {
		err = os.Rename(part, name)
	}
	if err != nil {
		_ = os.Remove(part) // it may not be there
	}
	return err
}

// earlierThan reads the reports of the same user and system that are in a
// directory. What is no report is passed over: it may be anything.
func earlierThan(r *bench.Report, dir string) ([]*bench.Report, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var earlier []*bench.Report
	for _, file := range files {
		if other, err := bench.Read(file); err == nil && other.OS == r.OS && other.Arch == r.Arch && other.User == r.User {
			earlier = append(earlier, other)
		}
	}
	return earlier, nil
}

func read(dir string) (*bench.Report, error) {
	facts, err := readPairs(filepath.Join(dir, "facts"))
	if err != nil {
		return nil, err
	}
	r := newReport(facts)
	if r.Memory, err = readNumbers(filepath.Join(dir, "memory")); err != nil {
		return nil, err
	}
	if r.Launches, err = readLaunches(filepath.Join(dir, "launches")); err != nil {
		return nil, err
	}
	if r.Sandboxes, err = readSandboxes(filepath.Join(dir, "sandboxes")); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		w, err := readWorkload(filepath.Join(dir, entry.Name()), peersOf(r.Sandboxes))
		if err != nil {
			return nil, err
		}
		r.Workloads = append(r.Workloads, w)
	}
	return r, nil
}

// newReport sorts the facts. Those with a "program." before their name are
// versions.
func newReport(facts map[string]string) *bench.Report {
	number := func(name string) int { n, _ := strconv.Atoi(facts[name]); return n }
	r := &bench.Report{
		Commit: facts["commit"], User: facts["user"], Rounds: number("rounds"),
		Machine: bench.Machine{
			Kernel: facts["kernel"], Processor: facts["processor"], Processors: number("processors"),
			Memory: facts["memory"], Governor: facts["governor"], Load: facts["load"],
		},
		Programs: map[string]string{},
	}
	for name, value := range facts {
		if program, ok := strings.CutPrefix(name, "program."); ok {
			r.Programs[program] = value
		}
	}
	return r
}

func readWorkload(dir string, peers map[string]bool) (bench.Workload, error) {
	_, name, _ := strings.Cut(filepath.Base(dir), "-")
	w := bench.Workload{Name: name}
	about, err := readPairs(filepath.Join(dir, "about"))
	if err != nil {
		return w, err
	}
	w.Category, w.Command, w.Missing = about["category"], about["command"], about["missing"]
	if calls := about["calls"]; calls != "" {
		if w.Calls, err = strconv.Atoi(calls); err != nil {
			return w, fmt.Errorf("%s: calls: %w", dir, err)
		}
	}
	for key, reason := range about {
		if variant, ok := strings.CutPrefix(key, "absent."); ok {
			if w.Absent == nil {
				w.Absent = map[string]string{}
			}
			w.Absent[variant] = reason
		}
	}
	if w.Missing != "" {
		return w, nil
	}
	return w, addRounds(&w, dir, peers)
}

func addRounds(w *bench.Workload, dir string, peers map[string]bool) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	failures := map[string]int{}
	for _, file := range files {
		if err := addRound(w, file, failures); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	for _, v := range w.Variants {
		if len(v.Seconds) != len(files) {
			return fmt.Errorf("%s: %s has %d samples in %d rounds", dir, v.Name, len(v.Seconds), len(files))
		}
	}
	return dropFailed(w, failures, len(files), peers)
}

// addRound reads what hyperfine exports: one time for each variant. It counts
// those whose command failed.
func addRound(w *bench.Workload, file string, failures map[string]int) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var round struct {
		Results []struct {
			Command string    `json:"command"`
			Times   []float64 `json:"times"`
			Codes   []*int    `json:"exit_codes"` // null: a signal
		} `json:"results"`
	}
	if err := json.Unmarshal(data, &round); err != nil {
		return err
	}
	for _, result := range round.Results {
		v := variant(w, result.Command)
		v.Seconds = append(v.Seconds, result.Times...)
		if slices.ContainsFunc(result.Codes, func(code *int) bool { return code == nil || *code != 0 }) {
			failures[result.Command]++
		}
	}
	return nil
}

func variant(w *bench.Workload, name string) *bench.Variant {
	for i := range w.Variants {
		if w.Variants[i].Name == name {
			return &w.Variants[i]
		}
	}
	w.Variants = append(w.Variants, bench.Variant{Name: name})
	return &w.Variants[len(w.Variants)-1]
}

func readLaunches(file string) ([]bench.Launch, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []bench.Launch
	for line := range strings.Lines(string(data)) {
		var l bench.Launch
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, l)
	}
	return all, nil
}

func readNumbers(file string) (map[string]int, error) {
	pairs, err := readPairs(file)
	if err != nil {
		return nil, err
	}
	numbers := map[string]int{}
	for name, value := range pairs {
		if numbers[name], err = strconv.Atoi(value); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, name, err)
		}
	}
	return numbers, nil
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
