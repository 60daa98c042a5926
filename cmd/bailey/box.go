package main

import (
	"cmp"
	"errors"
	"time"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// boxWords are what "bailey box" can do.
var boxWords = []string{"ps", "exec", "stop", "reload", "logs", "top"}

// defaultIdle is how long a resident sandbox stands without a command, and
// defaultGrace how long its commands get to end.
const (
	defaultIdle  = 15 * time.Minute
	defaultGrace = 2 * time.Second
)

func boxVerb() verb {
	return verb{
		name: "box", args: "ps | exec NAME [--] CMD… | stop NAME…|--all | reload NAME | logs [-f] NAME | top",
		text: "sandboxes that stay (see --keep): list them, use them, change their network rules, end them", words: boxWords, run: runBox,
		isWhole: func(words []string) bool { return len(words) == 2 && words[0] == "exec" },
		flags: []flag{
			{"json", "", "", "with ps and top: one object for each sandbox, for programs", hintNone, func(r *request, _ string) error { r.json = true; return nil }},
			{"once", "", "", "with top: a table, also on a terminal", hintNone, func(r *request, _ string) error { r.keep.once = true; return nil }},
			{"all", "a", "", "with stop: all of them", hintNone, func(r *request, _ string) error { r.keep.all = true; return nil }},
			{"follow", "f", "", "with logs: go on as more is written", hintNone, func(r *request, _ string) error { r.keep.follow = true; return nil }},
			{"grace", "", "TIME", "with stop: how long commands get to end by themselves (default: 2s)", hintNone, func(r *request, v string) error { return setDuration(&r.keep.grace, v) }},
		},
	}
}

// checkKeep refuses flags that do not go together.
func (r *request) checkKeep() error {
	k := &r.keep
	switch {
	case k.name == "" && k.detach:
		return errors.New("--detach goes with --keep")
	case k.name == "" && !k.pool && k.idle != 0:
		return errors.New("--idle-timeout goes with --keep or --pool")
	case k.name != "" && k.pool:
		return errors.New("--pool does not go with --keep: a sandbox that stays is started once")
	case k.name != "" && r.monitor:
		return errors.New("--monitor does not go with --keep; without it: bailey --monitor -- CMD")
	}
	return nil
}

// checkPool refuses to have sandboxes built beforehand where that would gain nothing.
func (r *request) checkPool(runtime string) error {
	switch runtime {
	case "", spec.RuntimeNative, spec.RuntimeLandlock, spec.RuntimeBwrap:
		if r.keep.pool {
			return errors.New("--pool is for runtimes that take long to start; this one does not: leave it out, or use --runtime gvisor, runc or crun")
		}
	}
	return nil
}

// pooling is how long sandboxes that are built beforehand stay without a command, or 0.
func (r *request) pooling() time.Duration {
	if !r.keep.pool {
		return 0
	}
	return cmp.Or(r.keep.idle, defaultIdle)
}
