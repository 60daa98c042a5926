package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

func setSize(to **policy.Size, v string) error {
	n, err := policy.ParseSize(v)
	if err != nil {
		return errors.New("is no size; for example: 512M, 2G")
	}
	*to = &n
	return nil
}

// setProcessors takes a number of processors, or a share of one.
func setProcessors(to **float64, v string) error {
	digits, percent := strings.CutSuffix(v, "%")
	n, err := strconv.ParseFloat(digits, 64)
	if percent {
		n /= 100
	}
	const least, most = 0.01, 1 << 20
	if err != nil || !(n >= least && n <= most) {
		return errors.New("is no number of processors; for example: 0.5, 50%, 2")
	}
	*to = &n
	return nil
}

func setNumber(to **int, v string) error {
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil || n == 0 {
		return errors.New("is no number above 0")
	}
	count := int(n)
	*to = &count
	return nil
}

func setTimeout(to **policy.Duration, v string) error {
	d, err := policy.ParseDuration(v)
	if err != nil {
		return errors.New("is no time; for example: 90s, 15m, 8h")
	}
	*to = &d
	return nil
}

// checkStats refuses what --stats cannot tell.
func (r *request) checkStats() error {
	switch {
	case r.stats && insideSandbox():
		return errInside
	case r.stats && r.keep.name != "":
		return errors.New("--stats is about a sandbox of its own; for one that stays: bailey box ps")
	case r.json && r.stats && r.monitor:
		return errors.New("--json is for one of --monitor and --stats at a time")
	}
	return nil
}
