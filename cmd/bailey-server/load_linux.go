package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey/internal/server/load"
)

const loadUsage = `Usage: baileyd load [FLAGS]

Measures a server: commands, against those without a server, sandboxes, files,
what idle sandboxes cost, and whether the server grows. It starts a server for
that, and ends it, unless there is an address. Tables go to standard output.

`

// loadOptions are what was asked for.
type loadOptions struct {
	load.Options
	json string
	time time.Duration
}

func readLoadOptions(args []string, stdout io.Writer) (*loadOptions, error) {
	o := &loadOptions{}
	f := newFlags("load", loadUsage, stdout)
	f.StringVar(&o.Address, "address", "", "`address` of a server: unix:/PATH, http://HOST:PORT or https://HOST:PORT; its token is $BAILEY_TOKEN")
	f.IntVar(&o.Idle, "idle", 200, "`number` of sandboxes that are idle at once")
	f.IntVar(&o.Cycles, "cycles", 500, "`number` of cycles of create, exec and destroy")
	f.BoolVar(&o.Quick, "quick", false, "measure so little that it takes seconds; the figures then mean little")
	f.StringVar(&o.json, "json", "", "`file` to write the report to as JSON")
	f.DurationVar(&o.time, "time", 15*time.Minute, "the most `time` it may take")
	if err := parse(f, args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q is no flag; see: baileyd load --help", f.Arg(0))
	}
	if o.Quick {
		o.Idle, o.Cycles = min(o.Idle, 10), min(o.Cycles, 10)
	}
	if o.Idle < 1 || o.Cycles < 1 {
		return nil, errors.New("--idle and --cycles are 1 or more")
	}
	o.Token = os.Getenv("BAILEY_TOKEN")
	return o, nil
}

func measure(args []string, stdout, stderr io.Writer) (err error) {
	o, err := readLoadOptions(args, stdout)
	if err != nil {
		return err
	}
	o.Progress = stderr
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.time)
	defer cancel()
	if o.Address == "" {
		end, failure := o.start(stderr)
		if failure != nil {
			return failure
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	report, err := load.Run(ctx, o.Options)
	if err != nil {
		return err
	}
	if o.json != "" {
		data, err := report.Encode()
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, data, 0o644); err != nil {
			return err
		}
	}
	_, err = io.WriteString(stdout, report.Markdown())
	return err
}

// start starts a server of the tool's own, a process like any other. It ends when
// its input does, so also if this process is killed.
func (o *loadOptions) start(stderr io.Writer) (end func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	server := exec.Command(self, "serve", "--ephemeral", "--log-level", "error")
	server.Stderr = stderr
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the tool, which then cleans up
	stdin, err := server.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	end = func() error { return errors.Join(stdin.Close(), server.Wait()) }
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if address, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			o.Address = address
		}
		if lines.Text() == "ready" && o.Address != "" {
			return end, nil
		}
	}
	return nil, errors.Join(errors.New("the server ended before it was ready; see: bailey doctor"), end())
}
