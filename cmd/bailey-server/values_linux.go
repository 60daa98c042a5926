package main

import (
	"errors"
	"math"
	"strconv"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// The values of flags that set limits. None is negative, and 0 is no limit.

// count is a number of things.
type count int

func (c *count) String() string { return strconv.Itoa(int(*c)) }

func (c *count) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 {
		return errors.New("want a whole number that is not negative")
	}
	*c = count(n)
	return nil
}

// size is a number of bytes, written as in a policy.
type size int64

func (v *size) String() string { return policy.Size(*v).String() }

func (v *size) Set(s string) error {
	if s == "0" {
		*v = 0
		return nil
	}
	n, err := policy.ParseSize(s)
	*v = size(n)
	return err
}

// rate is a number that need not be whole.
type rate float64

func (r *rate) String() string { return strconv.FormatFloat(float64(*r), 'g', -1, 64) }

func (r *rate) Set(s string) error {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
		return errors.New("want a number that is not negative")
	}
	*r = rate(n)
	return nil
}
