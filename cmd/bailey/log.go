package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

// logRequest is what the flags of "bailey log" ask for.
type logRequest struct {
	filter event.Filter
	last   int // how many of the recorded events; negative: all
	follow bool
}

func logVerb() verb {
	l := &logRequest{last: -1}
	return verb{
		name: "log", args: "[--kind KIND] [--since TIME] [--path GLOB] [--host HOST] [-n N] [--follow] [--json]",
		text: "what happened in sandboxes: the audit log, newest last",
		run:  l.run,
		flags: []flag{
			{"kind", "", "KIND", "only allow, deny, exec, exit, limit or connection; can be repeated", hintNone, func(_ *request, v string) error { return l.addKind(v) }},
			{"sandbox", "", "ID", "only of this sandbox", hintNone, func(_ *request, v string) error { return setOnce(&l.filter.Sandbox, v) }},
			{"path", "", "GLOB", "only about paths like this: '**/.env', '/work/**'", hintPath, func(_ *request, v string) error { return l.setPath(v) }},
			{"host", "", "HOST", "only about this host of the network: 'example.com', '*.example.com', '*' for any", hintNone, func(_ *request, v string) error { return l.setHost(v) }},
			{"process", "", "NAME", "only of programs of this name", hintNone, func(_ *request, v string) error { return setOnce(&l.filter.Process, v) }},
			{"since", "", "TIME", "only what is younger than 10m, 3h or 2d, or than 2026-01-02T15:04", hintNone, func(_ *request, v string) error { return l.setSince(v, time.Now()) }},
			{"", "n", "N", "only the last N", hintNone, func(_ *request, v string) error { return l.setLast(v) }},
			{"follow", "f", "", "go on with what happens from now on", hintNone, func(*request, string) error { l.follow = true; return nil }},
			{"json", "", "", "print the lines as they are recorded, for programs", hintNone, func(r *request, _ string) error { r.json = true; return nil }},
		},
	}
}

func (l *logRequest) addKind(v string) error {
	if !slices.Contains(event.Kinds(), event.Kind(v)) {
		var known []string
		for _, k := range event.Kinds() {
			known = append(known, string(k))
		}
		if near := policy.Nearest(v, known); near != "" {
			return errors.New("is no kind of event; did you mean " + near + "?")
		}
		return errors.New("is no kind of event; there are " + strings.Join(known, ", "))
	}
	l.filter.Kinds = append(l.filter.Kinds, event.Kind(v))
	return nil
}

func (l *logRequest) setPath(v string) error {
	if v == "" {
		return errEmpty
	}
	l.filter.Path = v
	return l.filter.Check()
}

func (l *logRequest) setHost(v string) error {
	if v == "" {
		return errEmpty
	}
	l.filter.Host = v
	return l.filter.Check()
}

func (l *logRequest) setLast(v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return errors.New("is not a number of events")
	}
	l.last = n
	return nil
}

// setSince takes an age, or a moment on the clock on the wall unless it names
// its zone.
func (l *logRequest) setSince(v string, now time.Time) error {
	if age, err := parseAge(v); err == nil {
		l.filter.Since = now.Add(-age)
		return nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, v, time.Local); err == nil {
			l.filter.Since = t
			return nil
		}
	}
	return errors.New("is neither an age, such as 10m, 3h or 2d, nor a time, such as 2026-01-02T15:04")
}

// parseAge knows days besides what Go does.
func parseAge(v string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(v, "d"); ok {
		const most = 1 << 16
		n, err := strconv.ParseUint(days, 10, 64)
		return time.Duration(min(n, most)) * 24 * time.Hour, err
	}
	age, err := time.ParseDuration(v)
	if err == nil && age < 0 {
		err = errors.New("in the future")
	}
	return age, err
}

func (l *logRequest) run(r *request) int {
	if err := r.noArguments(); err != nil {
		return fail(err)
	}
	if insideSandbox() {
		return fail(errors.New("inside a sandbox there is no audit log; run this outside"))
	}
	facts, err := host.New()
	if err != nil {
		return fail(err)
	}
	p := newLogPrinter(l, r.json)
	err = l.print(p, event.AuditDir(sandbox.StateHome(facts.Caller.Home)))
	if flushed := p.out.Flush(); err == nil {
		err = flushed
	}
	p.reportBroken()
	if err != nil {
		return fail(err)
	}
	if !p.any && !r.settledQuiet() {
		say(tagNote, "nothing is recorded that fits")
	}
	return 0
}

func (l *logRequest) print(p *logPrinter, dir string) error {
	log := event.OpenLog(dir)
	defer log.Close()
	if l.follow {
		return l.printOn(p, log, dir)
	}
	if err := log.Read(p.keep); err != nil {
		return err
	}
	log.Finish(p.keep)
	p.printKept()
	return nil
}

// printOn goes on until somebody ends this process, or the log vanishes.
func (l *logRequest) printOn(p *logPrinter, log *event.Log, dir string) error {
	watch, err := event.NewWatch(dir)
	if err != nil {
		return err
	}
	defer watch.Close()
	each := p.keep
	for {
		if err := log.Read(each); err != nil {
			return err
		}
		p.printKept()
		if err := p.out.Flush(); err != nil {
			return err
		}
		p.reportBroken()
		each = p.print
		if err := watch.Wait(); err != nil {
			return fmt.Errorf("%s: %w", plain.Word(dir), err)
		}
	}
}

// logPrinter writes events to stdout.
type logPrinter struct {
	out    *bufio.Writer
	filter *event.Filter
	last   int
	json   bool
	colour bool

	kept   []event.Line // the last, if only so many are wanted
	any    bool
	broken int
	first  error // what is wrong with the first broken line
}

func newLogPrinter(l *logRequest, json bool) *logPrinter {
	return &logPrinter{
		out: bufio.NewWriter(os.Stdout), filter: &l.filter, last: l.last, json: json,
		colour: !json && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(os.Stdout),
	}
}

// print writes a line, if it is wanted. The error stays in p.out.
func (p *logPrinter) print(line event.Line) {
	if p.wants(line) {
		_, _ = p.out.WriteString(p.format(line))
	}
}

// keep is print for what was recorded before: of that only the last lines may
// be wanted.
func (p *logPrinter) keep(line event.Line) {
	if p.last < 0 {
		p.print(line)
		return
	}
	if !p.wants(line) || p.last == 0 {
		return
	}
	if len(p.kept) == 2*p.last {
		p.kept = append(p.kept[:0], p.kept[p.last:]...)
	}
	if p.json {
		line.Raw = bytes.Clone(line.Raw)
	}
	p.kept = append(p.kept, line)
}

func (p *logPrinter) printKept() {
	for i := max(0, len(p.kept)-p.last); i < len(p.kept); i++ {
		_, _ = p.out.WriteString(p.format(p.kept[i]))
	}
	p.kept = nil
}

// reportBroken says what was met since the last time.
func (p *logPrinter) reportBroken() {
	if p.broken > 0 {
		say(tagWarning, fmt.Sprintf("lines of the audit log that cannot be read: %d; the first: %s", p.broken, printable(p.first.Error())))
	}
	p.broken, p.first = 0, nil
}

func (p *logPrinter) wants(line event.Line) bool {
	if line.Err != nil {
		if p.broken++; p.first == nil {
			p.first = line.Err
		}
		return false
	}
	fits := p.filter.Match(line.Event)
	p.any = p.any || fits
	return fits
}

func (p *logPrinter) format(line event.Line) string {
	if p.json {
		return string(line.Raw) + "\n"
	}
	e := line.Event
	kind := fmt.Sprintf("%-10s", plain.Word(string(e.Kind)))
	if c := kindColour(e.Kind); p.colour && c != "" {
		kind = string(c) + kind + "\x1b[0m"
	}
	return e.Time.Local().Format("2006-01-02 15:04:05.000") + " " + kind + " " + e.Text() + "\n"
}

func kindColour(k event.Kind) tag {
	switch k {
	case event.Deny:
		return tagError
	case event.Limit:
		return tagWarning
	}
	return ""
}
