// Command testreport closes a test run: it reads what each stage did and the
// output of every "go test -json", prints a table, and fails if a stage failed,
// a test failed, or a test that could have run here ran nowhere.
//
// The stages file has one line a stage: name, status (ran, skipped, failed),
// seconds, note, and the file of its test events or nothing, separated by tabs.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: testreport STAGES [ABSENT-REQUIREMENT...]")
		os.Exit(2)
	}
	ok, err := report(os.Stdout, os.Args[1], absent(os.Args[2:], testenv.LandlockABI()))
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

type stage struct {
	name, status, seconds, note, events string
}

// absent tells which requirements this run may lack: those named, and a newer
// Landlock than the kernel has.
func absent(names []string, landlockABI int) func(requirement string) bool {
	return func(requirement string) bool {
		for _, name := range names {
			if requirement == name {
				return true
			}
		}
		wanted, isLandlock := strings.CutPrefix(requirement, testenv.LandlockPrefix)
		if !isLandlock {
			return false
		}
		abi, err := strconv.Atoi(wanted)
		return err == nil && abi > landlockABI
	}
}

func report(w io.Writer, stagesFile string, mayLack func(string) bool) (ok bool, err error) {
	stages, err := readStages(stagesFile)
	if err != nil {
		return false, err
	}
	all := results{}
	counts := make([]string, len(stages))
	for i, s := range stages {
		if s.events == "" {
			continue
		}
		run, err := readRun(s.events)
		if err != nil {
			return false, err
		}
		counts[i] = run.tally().String()
		all.add(s.name, run)
	}

	failures := all.failures()
	needless, excused := all.skips(mayLack)
	for _, line := range slices.Concat(failures, excused, needless) {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
	failedStages := printTable(w, stages, counts)
	fmt.Fprintf(w, "\n%s\n", all.tally())
	return failedStages+len(failures)+len(needless) == 0, nil
}

func printTable(w io.Writer, stages []stage, counts []string) (failed int) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STAGE\tRESULT\tTIME\tTESTS\tNOTE")
	for i, s := range stages {
		if s.status == "failed" {
			failed++
		}
		fmt.Fprintf(table, "%s\t%s\t%s s\t%s\t%s\n", s.name, s.status, s.seconds, counts[i], s.note)
	}
	table.Flush()
	return failed
}

func readStages(file string) ([]stage, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var stages []stage
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 5 {
			return nil, fmt.Errorf("%s: %q has %d fields, want 5", file, lines.Text(), len(fields))
		}
		stages = append(stages, stage{fields[0], fields[1], fields[2], fields[3], fields[4]})
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(stages) == 0 {
		return nil, errors.New("no stage ran")
	}
	return stages, nil
}

func readRun(file string) (run, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := parse(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}
