package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/sandbox/oci"
)

// Exit statuses.
const (
	exitOwn    = 1 // nothing was measured
	exitBroken = 3 // something was asked for and could not be measured, or failed
)

func main() {
	if status, is := oci.Become(); is {
		os.Exit(status)
	}
	if len(os.Args) > 1 && os.Args[1] == probeWord {
		os.Exit(probe(os.Args[2:]))
	}
	if os.Args[0] == launcherName {
		os.Exit(launcher())
	}
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandboxbench:", err)
	}
	os.Exit(status)
}

// known are what --runtimes can name.
var known = []string{"native", "bwrap", "runc", "crun", "runsc", "runsc-systrap", "runsc-ptrace", "docker", "docker+runsc"}

// options are what a run is asked for.
type options struct {
	bin        string // with Bailey's programs
	out        string
	work       string
	iterations int
	runtimes   []string
	memoryMB   int
	cpus       float64
	image      string
	rootfs     string
	commit     string
	warmOnly   bool // leave the page cache alone
}

func parse(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("sandboxbench", flag.ContinueOnError)
	flags.StringVar(&o.bin, "bin", "bin", "directory with Bailey's programs")
	flags.StringVar(&o.out, "out", "", "directory for the results")
	flags.StringVar(&o.work, "work", "", "directory for the project and the root directory")
	flags.StringVar(&o.commit, "commit", "none", "what is measured")
	flags.IntVar(&o.iterations, "iterations", 50, "launches of each runtime in each mode")
	list := flags.String("runtimes", "native,bwrap,runc,crun,runsc", "comma-separated")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if o.iterations < 1 || o.out == "" || o.work == "" || flags.NArg() > 0 {
		return nil, errors.New("needs --out, --work and at least one iteration; it is called by scripts/bench/sandbox-bench.sh")
	}
	for name := range strings.SplitSeq(*list, ",") {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("--runtimes: %q is none of %s", name, strings.Join(known, ", "))
		}
		if name == "runsc" {
			o.runtimes = append(o.runtimes, "runsc-systrap", "runsc-ptrace")
			continue
		}
		o.runtimes = append(o.runtimes, name)
	}
	return o, o.environment()
}

// environment reads what the script's users set.
func (o *options) environment() (err error) {
	o.image, o.rootfs = os.Getenv("BENCH_IMAGE"), os.Getenv("BENCH_ROOTFS")
	if o.image != "" && o.rootfs != "" {
		return errors.New("BENCH_IMAGE and BENCH_ROOTFS: one root directory is enough")
	}
	o.memoryMB, o.cpus = 256, 1
	if text := os.Getenv("BENCH_MEM_MB"); text != "" {
		if o.memoryMB, err = strconv.Atoi(text); err != nil || o.memoryMB < 32 {
			return fmt.Errorf("BENCH_MEM_MB=%s: not a number of megabytes from 32 on", text)
		}
	}
	if text := os.Getenv("BENCH_CPUS"); text != "" {
		if o.cpus, err = strconv.ParseFloat(text, 64); err != nil || !(o.cpus > 0) || math.IsInf(o.cpus, 0) {
			return fmt.Errorf("BENCH_CPUS=%s: not a number of processors", text)
		}
	}
	if os.Geteuid() != 0 {
		o.memoryMB, o.cpus = 0, 0 // only root can have these runtimes hold them
	}
	return nil
}

func run(args []string) (int, error) {
	o, err := parse(args)
	if err != nil {
		return exitOwn, err
	}
	return perform(o)
}

func perform(o *options) (int, error) {
	b, err := newBench(o)
	if err != nil {
		return exitOwn, err
	}
	defer b.close()
	b.closeWhenInterrupted()
	if err := b.measure(); err != nil {
		return exitOwn, err
	}
	return b.report()
}

// closeWhenInterrupted leaves nothing behind when somebody has seen enough.
func (b *bench) closeWhenInterrupted() {
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, unix.SIGINT, unix.SIGTERM)
	go func() {
		sig := (<-arrived).(unix.Signal)
		b.close()
		os.Exit(128 + int(sig))
	}()
}

// report writes what was seen, in three forms, and returns the exit status.
func (b *bench) report() (int, error) {
	results := b.results()
	if err := results.Check(); err != nil {
		return exitOwn, err
	}
	encoded, err := results.Encode()
	if err != nil {
		return exitOwn, err
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return exitOwn, err
	}
	text := results.Markdown()
	for name, data := range map[string][]byte{
		"results.json": encoded, "results.md": []byte(text), "methodology.txt": []byte(results.Methodology()),
	} {
		if err := os.WriteFile(filepath.Join(b.out, name), data, 0o644); err != nil {
			return exitOwn, err
		}
	}
	fmt.Printf("%s\nwritten: results.json, results.md and methodology.txt in %s\n", text, b.out)
	return b.verdict(), nil
}

// verdict says on stderr what could not be measured or failed.
func (b *bench) verdict() (status int) {
	for _, s := range b.subjects {
		for _, line := range s.seen.Broken() {
			fmt.Fprintf(os.Stderr, "sandboxbench: %s: %s\n", s.seen.Name, line)
			status = exitBroken
		}
	}
	return status
}
