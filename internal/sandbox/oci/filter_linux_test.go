package oci

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bailey-sandbox/bailey/internal/seccomp"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// decide goes by a profile as its documentation reads.
func decide(p seccomp.Profile, nr uint32, args [6]uint64) seccomp.Action {
	for i := range p.Rules {
		if p.Rules[i].Nr != nr {
			continue
		}
		for _, c := range p.Rules[i].Checks {
			if holds(&c, args) && (c.And == nil || holds(c.And, args)) {
				return c.Then
			}
		}
		return p.Rules[i].Else
	}
	return seccomp.Allow
}

func holds(c *seccomp.Check, args [6]uint64) bool {
	bits := uint32(args[c.Arg]) & c.Mask
	switch c.Test {
	case seccomp.Equal:
		return bits == c.Value&c.Mask
	case seccomp.NotEqual:
		return bits != c.Value&c.Mask
	case seccomp.AnySet:
		return bits != 0
	}
	return bits == 0
}

// translated decides as a runtime does, and counts the entries that match.
func translated(s *specs.LinuxSeccomp, name string, args [6]uint64) (action seccomp.Action, matches int) {
	action = seccomp.Fail(uint16(*s.DefaultErrnoRet))
	for _, e := range s.Syscalls {
		match := slices.Contains(e.Names, name)
		for _, a := range e.Args {
			match = match && a.Op == specs.OpMaskedEqual && args[a.Index]&a.Value == a.ValueTwo
		}
		if !match {
			continue
		}
		matches++
		action = seccomp.Allow
		if e.Action == specs.ActErrno {
			action = seccomp.Fail(uint16(*e.ErrnoRet))
		}
	}
	return action, matches
}

// argument is one that rules look at, near one, or any; the upper half is whatever a
// caller likes.
func argument(r *rand.Rand, interesting []uint32) uint64 {
	low := r.Uint32()
	switch r.IntN(4) {
	case 0, 1:
		low = interesting[r.IntN(len(interesting))]
	case 2:
		low = interesting[r.IntN(len(interesting))] ^ 1<<r.IntN(32)
	}
	return uint64(r.Uint32())<<32*uint64(r.IntN(2)) | uint64(low)
}

func TestTranslatedFiltersDecideAsTheNativeOne(t *testing.T) {
	profiles := map[string]seccomp.Profile{
		"no sockets of the host":  profileWithout(),
		"all families":            seccomp.New(seccomp.Options{Families: []uint32{1, 2, 10, 16}}),
		"nothing but the network": seccomp.New(seccomp.Options{Families: []uint32{2, 10}}),
	}
	for name, p := range profiles {
		t.Run(name, func(t *testing.T) {
			s, err := translate(p)
			if err != nil {
				t.Fatal(err)
			}
			interesting := []uint32{0, 1, 2, 3, 10, 16, 17}
			var ruled []uint32
			for _, rule := range p.Rules {
				ruled = append(ruled, rule.Nr)
				for _, c := range rule.Checks {
					interesting = append(interesting, c.Value, c.Mask)
				}
			}
			r := rand.New(rand.NewPCG(1, 2))
			for range testenv.Count(20_000, 2_000_000) {
				nr := ruled[r.IntN(len(ruled))]
				var args [6]uint64
				for i := range args {
					args[i] = argument(r, interesting)
				}
				got, matches := translated(s, callNames[nr], args)
				if want := decide(p, nr, args); got != want || matches > 1 {
					t.Fatalf("%s%#x: %#x by %d entries, want %#x", callNames[nr], args, got, matches, want)
				}
			}
		})
	}
}

// profileWithout is that of a Spec that reaches no unix sockets.
func profileWithout() seccomp.Profile { return profile(example(), false) }

func TestEveryCallOfTheFilterHasAName(t *testing.T) {
	for _, rule := range seccomp.New(seccomp.Options{Families: []uint32{1}}).Rules {
		if callNames[rule.Nr] == "" {
			t.Errorf("call %d has no name, so nothing could be said about it", rule.Nr)
		}
	}
}

func TestAFilterThatAsksSomebodyIsRefused(t *testing.T) {
	if _, err := translate(seccomp.New(seccomp.Options{Writes: true})); err == nil {
		t.Error("a filter that needs a broker was translated")
	}
}
