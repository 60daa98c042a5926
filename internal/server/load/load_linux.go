package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
)

// Options say what to measure, and how much of it.
type Options struct {
	// Address of a server: unix:/PATH, http://HOST:PORT or https://HOST:PORT.
	// Processes of a server at a unix socket are measured, too.
	Address string
	Token   string
	// Idle is how many sandboxes are idle at once, Cycles how often one is made,
	// used and destroyed.
	Idle, Cycles int
	// Quick makes everything so small that it takes seconds.
	Quick bool
	// Progress is told what is being measured.
	Progress io.Writer
}

// sizes are how much of each is measured.
type sizes struct {
	clients []int         // at once
	slice   time.Duration // that each way of executing has, in each round
	rounds  int
	files   int // of the codebase
	upload  int // files
	creates int
	batch   int
	reads   time.Duration
}

func (o *Options) sizes() sizes {
	if o.Quick {
		return sizes{clients: []int{1, 4}, slice: 50 * time.Millisecond, rounds: 2, files: 500, upload: 100, creates: 10, batch: 10, reads: 100 * time.Millisecond}
	}
	return sizes{clients: []int{1, 8, 32}, slice: 250 * time.Millisecond, rounds: 12, files: 10000, upload: 3000, creates: 200, batch: 100, reads: 2 * time.Second}
}

// run is a measurement under way.
type run struct {
	Options
	sizes
	*client
	report    *Report
	processes processes
	codebase  string
}

// Run measures a server. Sandboxes and codebases that it makes are gone
// afterwards, if the server answers.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	c, err := connectTo(o.Address, o.Token)
	if err != nil {
		return nil, err
	}
	defer c.http.CloseIdleConnections()
	m := &run{Options: o, sizes: o.sizes(), client: c, report: &Report{Version: Version, Quick: o.Quick, Machine: machine()}}
	info, err := c.server.GetServer(ctx, &baileyv1.GetServerRequest{})
	if err != nil {
		return nil, err
	}
	m.report.Server = info.GetVersion()
	if m.processes, err = find(o.Address); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.cleanUp()) }()
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"codebases", m.codebases},
		{"commands", m.commands},
		{"sandboxes", m.sandboxes},
		{"files", m.files},
		{"idle sandboxes", m.idle},
		{"cycles", m.soak},
	} {
		fmt.Fprintln(o.Progress, "measuring "+part.name)
		if err := part.do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	m.report.Time = time.Now().UTC().Format(time.RFC3339)
	return m.report, nil
}

// operation is something that is measured, as the client of that number does it.
type operation func(ctx context.Context, client int) error

// drive has clients do something again and again until the time is over, and
// returns how long each took, and all together.
func drive(ctx context.Context, clients int, length time.Duration, do operation) ([]time.Duration, time.Duration, error) {
	begin := time.Now()
	return each(clients, func(i int, sample func(time.Duration)) error {
		for once := true; once || time.Since(begin) < length; once = false {
			start := time.Now()
			if err := do(ctx, i); err != nil {
				return err
			}
			sample(time.Since(start))
		}
		return nil
	})
}

// times has clients do something so many times in all.
func times(ctx context.Context, clients, n int, do operation) ([]time.Duration, time.Duration, error) {
	work := make(chan int, n)
	for i := range n {
		work <- i
	}
	close(work)
	return each(clients, func(_ int, sample func(time.Duration)) error {
		for i := range work {
			start := time.Now()
			if err := do(ctx, i); err != nil {
				return err
			}
			sample(time.Since(start))
		}
		return nil
	})
}

// each runs clients at once, and collects what they measured.
func each(clients int, work func(i int, sample func(time.Duration)) error) (samples []time.Duration, elapsed time.Duration, err error) {
	all, errs := make([][]time.Duration, clients), make([]error, clients)
	begin := time.Now()
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() { errs[i] = work(i, func(d time.Duration) { all[i] = append(all[i], d) }) })
	}
	group.Wait()
	elapsed = time.Since(begin)
	for _, s := range all {
		samples = append(samples, s...)
	}
	return samples, elapsed, errors.Join(errs...)
}

// way is one of several ways of doing the same.
type way struct {
	name string
	do   operation
}

// compare has the ways take turns, each round beginning with another.
func (m *run) compare(ctx context.Context, clients int, ways []way) error {
	samples, elapsed := make([][]time.Duration, len(ways)), make([]time.Duration, len(ways))
	for round := range m.rounds {
		for i := range ways {
			w := (i + round) % len(ways)
			s, e, err := drive(ctx, clients, m.slice, ways[w].do)
			if err != nil {
				return fmt.Errorf("%s: %w", ways[w].name, err)
			}
			samples[w], elapsed[w] = append(samples[w], s...), elapsed[w]+e
		}
	}
	for i, w := range ways {
		m.report.Latencies = append(m.report.Latencies, latency(w.name, clients, samples[i], elapsed[i]))
	}
	return nil
}

func machine() Machine {
	var name unix.Utsname
	var info unix.Sysinfo_t
	_, _ = unix.Uname(&name), unix.Sysinfo(&info) // they do not fail
	load, _ := os.ReadFile("/proc/loadavg")
	fields := append(strings.Fields(string(load)), "?", "?", "?")
	return Machine{
		Kernel: unix.ByteSliceToString(name.Release[:]), Processors: processors(),
		Memory: int64(info.Totalram) * int64(info.Unit), Load: strings.Join(fields[:3], " "), //nolint:gosec // bytes of memory
	}
}
