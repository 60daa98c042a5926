package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"

	"github.com/bailey-sandbox/bailey/internal/bench"
)

const benchHelp = `bailey bench: what the harness (scripts/benchmark.sh) measured

  bailey bench compare OLD NEW   two runs; exit status 1 if the newer is slower
  bailey bench compare RUN       an earlier build with a later one, in one run
                                 made with "scripts/benchmark.sh --against BINARY"
  bailey bench show RUN          a run as tables
  bailey bench page RUN [EARLIER]...   a run as a page with plots, to stdout

Flags of compare, before the files:
  --threshold PERCENT   what counts as slower (5)
  --alpha P             how often a run may be called slower by chance (0.01)
  --json                rows as JSON
`

// exitSlower says that a comparison found a regression.
const exitSlower = 1

func runBench(args []string, stdout, stderr io.Writer) int {
	status, err := benchWord(args, stdout)
	if err != nil {
		return answer(stderr, "bailey: bench: "+err.Error()+"\n", exitOwn)
	}
	return status
}

func benchWord(args []string, stdout io.Writer) (int, error) {
	word := ""
	if len(args) > 0 {
		word = args[0]
	}
	switch {
	case word == "compare":
		return compare(args[1:], stdout)
	case word == "show" && len(args) == 2:
		r, err := bench.Read(args[1])
		if err != nil {
			return 0, err
		}
		return answer(stdout, r.Markdown(), 0), nil
	case word == "page" && len(args) >= 2:
		return 0, page(args[1], args[2:], stdout)
	case len(args) == 1 && (word == "-h" || word == "--help" || word == "help"):
		return answer(stdout, benchHelp, 0), nil
	}
	return 0, errors.New("say compare, show or page; see: bailey bench --help")
}

func page(file string, others []string, stdout io.Writer) error {
	r, err := bench.Read(file)
	if err != nil {
		return err
	}
	var earlier []*bench.Report
	for _, other := range others {
		e, err := bench.Read(other)
		if err != nil {
			return err
		}
		earlier = append(earlier, e)
	}
	return r.HTML(stdout, earlier)
}

// comparison is what compare prints as JSON.
type comparison struct {
	Rows  []bench.Change `json:"rows"`
	Parts []bench.Change `json:"parts,omitempty"`
}

func compare(args []string, stdout io.Writer) (int, error) {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	threshold := flags.Float64("threshold", 100*bench.Usual.Threshold, "")
	alpha := flags.Float64("alpha", bench.Usual.Alpha, "")
	asJSON := flags.Bool("json", false, "")
	if err := flags.Parse(args); err != nil {
		return 0, fmt.Errorf("compare: %w; see: bailey bench --help", err)
	}
	usable := *threshold >= 0 && *threshold <= math.MaxFloat64 && *alpha > 0 && *alpha < 1 // false for what is no number
	if !usable {
		return 0, errors.New("compare: --threshold is a percentage, --alpha lies between 0 and 1")
	}
	c, err := compareFiles(flags.Args(), bench.Criterion{Threshold: *threshold / 100, Alpha: *alpha})
	if err != nil {
		return 0, err
	}
	if err := c.print(stdout, *asJSON); err != nil {
		return 0, err
	}
	for _, r := range c.Rows {
		if r.Verdict == bench.Slower {
			return exitSlower, nil
		}
	}
	return 0, nil
}

func compareFiles(files []string, criterion bench.Criterion) (c comparison, err error) {
	if len(files) < 1 || len(files) > 2 {
		return c, errors.New("compare: name two runs, or one that has an earlier build in it")
	}
	old, err := bench.Read(files[0])
	if err != nil {
		return c, err
	}
	if len(files) == 1 {
		c.Parts = bench.Attribute(old.LaunchesOf(bench.Previous), old.LaunchesOf(bench.Bailey), criterion)
		c.Rows, err = bench.Within(old, bench.Previous, bench.Bailey, criterion)
		return c, err
	}
	now, err := bench.Read(files[1])
	if err != nil {
		return c, err
	}
	c.Parts = bench.Attribute(old.LaunchesOf(bench.Bailey), now.LaunchesOf(bench.Bailey), criterion)
	c.Rows, err = bench.Between(old, now, criterion)
	return c, err
}

func (c *comparison) print(stdout io.Writer, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(c)
	}
	text := bench.Table(c.Rows)
	if len(c.Parts) > 0 {
		text += "\n" + bench.Table(c.Parts)
	}
	_, err := io.WriteString(stdout, text)
	return err
}
