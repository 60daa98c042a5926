// Command resident measures sandboxes that stay: what a command in one costs
// compared with the same command outside, through the Go API and through the
// command bailey, and what memory many that do nothing take. Whatever is compared
// takes turns, so that a change of the machine's speed meets both.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
)

func main() {
	binary := flag.String("binary", "bin/bailey", "the bailey to measure")
	runs := flag.Int("n", 200, "rounds")
	many := flag.Int("boxes", 100, "sandboxes whose memory is measured")
	dir := flag.String("dir", ".", "the project")
	flag.Parse()
	if err := run(*binary, *dir, *runs, *many); err != nil {
		fmt.Fprintln(os.Stderr, "resident:", err)
		os.Exit(1)
	}
}

func run(binary, dir string, runs, many int) error {
	m := bailey.New(bailey.Config{Dir: dir})
	if err := m.Initialize(); err != nil {
		return err
	}
	defer func() { _ = m.Cleanup() }() // it never fails
	box, err := m.Open()
	if err != nil {
		return err
	}
	outside := func() error { return exec.Command("/bin/true").Run() }
	inside := func() error { return box.Command("/bin/true").Run() }
	fmt.Println("| | outside | resident | |\n|---|---|---|---|")
	if err := compare("Go API, one after the other", outside, inside, runs); err != nil {
		return err
	}
	if err := throughput("Go API, four at once", outside, inside, runs); err != nil {
		return err
	}
	name := "bench" + strconv.Itoa(os.Getpid())
	kept := command(binary, dir, "--keep", name, "--", "/bin/true")
	if err := kept(); err != nil {
		return err
	}
	defer func() { _ = command(binary, dir, "box", "stop", name)() }() // it may have ended by itself
	if err := compare("the command, `--keep`", outside, kept, runs); err != nil {
		return err
	}
	if err := compare("the command, `box exec`", outside, command(binary, dir, "box", "exec", name, "/bin/true"), runs); err != nil {
		return err
	}
	return memory(m, many)
}

func command(binary, dir string, args ...string) func() error {
	return func() error {
		cmd := exec.Command(binary, args...)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		return cmd.Run()
	}
}

// compare takes turns and prints medians and minima.
func compare(name string, a, b func() error, runs int) error {
	var times [2][]time.Duration
	for range runs {
		for i, f := range []func() error{a, b} {
			begin := time.Now()
			if err := f(); err != nil {
				return err
			}
			times[i] = append(times[i], time.Since(begin))
		}
	}
	for i := range times {
		slices.Sort(times[i])
	}
	x, y := times[0][runs/2], times[1][runs/2]
	fmt.Printf("| %s, median (least) | %s (%s) | %s (%s) | %.2fx, %+.2f ms |\n", name, ms(x), ms(times[0][0]), ms(y), ms(times[1][0]),
		float64(y)/float64(x), float64(y-x)/float64(time.Millisecond))
	return nil
}

func ms(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

// throughput counts commands a second, in short turns.
func throughput(name string, a, b func() error, runs int) error {
	const workers, turns = 4, 10
	var rates [2][]float64
	for range turns {
		for i, f := range []func() error{a, b} {
			begin := time.Now()
			errs := make([]error, workers)
			var group sync.WaitGroup
			for w := range workers {
				group.Go(func() {
					for range runs / workers {
						if err := f(); err != nil {
							errs[w] = err
						}
					}
				})
			}
			group.Wait()
			for _, err := range errs {
				if err != nil {
					return err
				}
			}
			rates[i] = append(rates[i], float64(runs/workers*workers)/time.Since(begin).Seconds())
		}
	}
	for i := range rates {
		slices.Sort(rates[i])
	}
	x, y := rates[0][turns/2], rates[1][turns/2]
	fmt.Printf("| %s, median | %.0f a second | %.0f a second | %.0f %% |\n", name, x, y, 100*y/x)
	return nil
}

// memory opens sandboxes that do nothing.
func memory(m *bailey.Manager, many int) error {
	before, err := pss(os.Getpid())
	if err != nil {
		return err
	}
	var sum int
	for range many {
		box, err := m.Open()
		if err != nil {
			return err
		}
		cmd := box.Command("/bin/true")
		if err := cmd.Run(); err != nil {
			return err
		}
		kb, err := pss(cmd.Pid())
		if err != nil {
			return err
		}
		sum += kb
	}
	after, err := pss(os.Getpid())
	if err != nil {
		return err
	}
	fmt.Printf("| memory of %d that do nothing, mean (PSS) | | %d KB process 1, %d KB its owner | |\n", many, sum/many, (after-before)/many)
	return nil
}

var pssLine = regexp.MustCompile(`(?m)^Pss:\s+(\d+)`)

func pss(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	found := pssLine.FindStringSubmatch(string(text))
	if found == nil {
		return 0, fmt.Errorf("no Pss in %q", strings.TrimSpace(string(text)))
	}
	return strconv.Atoi(found[1])
}
