package main

import (
	"errors"
	"time"
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
	case k.name == "" && k.idle != 0:
		return errors.New("--idle-timeout goes with --keep")
	case k.name != "" && r.monitor:
		return errors.New("--monitor does not go with --keep; without it: bailey --monitor -- CMD")
	}
	return nil
}
