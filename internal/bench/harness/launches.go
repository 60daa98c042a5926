package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/bench"
	"github.com/bailey-sandbox/bailey/internal/trace"
)

// launches has each build launch a command that does nothing, so many times, and
// appends what its trace says, one JSON object a line. The builds take turns. What
// it needs meanwhile is in the current directory, so that whoever stops it and
// removes that has removed all.
func launches(count int, output string, builds []string) error {
	dir, err := os.MkdirTemp(".", "launches-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	for i := range count + 1 {
		for j := range builds {
			name, program, ok := strings.Cut(builds[(i+j)%len(builds)], "=")
			if !ok {
				return fmt.Errorf("%s: not BUILD=PROGRAM", builds[j])
			}
			l, err := launch(program, filepath.Join(dir, "trace"))
			if err != nil {
				return err
			}
			if i == 0 {
				continue // it warmed the caches
			}
			l.Build = name
			if err := encoder.Encode(l); err != nil {
				return err
			}
		}
	}
	return out.Close()
}

// launch measures one launch from before its program is started until its end is
// known. The trace is told when that began, so that the program's own start is a
// part like the others.
func launch(program, file string) (bench.Launch, error) {
	defer func() { _ = os.Remove(file) }()
	file, err := filepath.Abs(file)
	if err != nil {
		return bench.Launch{}, err
	}
	cmd := exec.Command(program, "--", "true")
	begin := trace.Now()
	cmd.Env = append(os.Environ(), "BAILEY_TRACE="+file, "BAILEY_TRACE_START="+strconv.FormatInt(begin, 10))
	if out, err := cmd.CombinedOutput(); err != nil {
		return bench.Launch{}, fmt.Errorf("%s: %w: %s", program, err, out)
	}
	return readTrace(file, begin, trace.Now())
}

// mark is a line of a trace: the end of a part.
type mark struct {
	Part string `json:"part"`
	Nano int64  `json:"ns"`
}

// readTrace divides the time from begin to end by the moments of a trace. Two
// processes record them, at the same time for a while: a part is what was waited
// for since whatever ended before. What comes after the last is the program's end.
func readTrace(file string, begin, end int64) (bench.Launch, error) {
	marks, err := readMarks(file)
	if err != nil {
		return bench.Launch{}, err
	}
	l, last := bench.Launch{Seconds: seconds(end - begin)}, begin
	for _, m := range marks {
		if m.Nano > begin {
			l.Parts = append(l.Parts, bench.Part{Name: m.Part, Seconds: seconds(m.Nano - last)})
			last = m.Nano
		}
	}
	if len(l.Parts) == 0 {
		return l, errors.New(file + ": the trace is empty")
	}
	l.Parts = append(l.Parts, bench.Part{Name: "exit", Seconds: seconds(end - last)})
	return l, nil
}

func readMarks(file string) ([]mark, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var marks []mark
	for line := range strings.Lines(string(data)) {
		var m mark
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		marks = append(marks, m)
	}
	slices.SortStableFunc(marks, func(a, b mark) int { return cmp.Compare(a.Nano, b.Nano) })
	return marks, nil
}

func seconds(nano int64) float64 { return float64(nano) / 1e9 }
