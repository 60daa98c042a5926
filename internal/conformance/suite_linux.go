package conformance

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Property is something that a sandbox must do.
type Property struct {
	// Name says what holds.
	Name string
	// Key is the part of the policy that asks for it, by which a runtime may
	// refuse; empty if every runtime must hold it.
	Key string
	// Machine says that whether it can be held is the machine's doing, too.
	Machine bool
	// Try tries it.
	Try func(p *Place)
}

// Stated are properties that a runtime does not hold, and the document that says
// so.
var Stated = map[string]map[string]string{
	"landlock": {
		"what is left in the background ends when bailey is killed": "restricted-hosts.md#what-is-not-held",
		"only its own processes are seen":                           "restricted-hosts.md#what-is-not-held",
	},
}

// Runtime is one to be tried.
type Runtime struct {
	Name   string // for --runtime
	Bailey string // the command
	// Env is what it needs to know besides.
	Env []string
	// Parallel has properties tried beside each other, for a runtime that waits for
	// others most of the time.
	Parallel bool
}

// Works is nil if the runtime carries a command on this machine, and otherwise says
// what it said.
func (r Runtime) Works(t testing.TB) error {
	p := newPlace(t, r)
	if got := p.run(base, "true"); got.status != 0 {
		return fmt.Errorf("%s", strings.TrimSpace(got.stderr))
	}
	return nil
}

// refusal ends a property that a runtime refuses.
type refusal struct{}

// Run tries every property and returns what was seen of each, by name.
func Run(t *testing.T, r Runtime) map[string]Outcome {
	var mu sync.Mutex
	seen := make(map[string]Outcome)
	t.Run("holds", func(t *testing.T) {
		for _, property := range Properties() {
			seen[property.Name] = Failed
		}
		for _, property := range Properties() {
			t.Run(strings.ReplaceAll(property.Name, " ", "-"), func(t *testing.T) {
				if r.Parallel {
					t.Parallel()
				}
				outcome := try(t, r, property)
				mu.Lock()
				defer mu.Unlock()
				seen[property.Name] = outcome
			})
		}
	})
	return seen
}

func try(t testing.TB, r Runtime, property Property) (outcome Outcome) {
	if at := Stated[r.Name][property.Name]; at != "" {
		t.Logf("%s does not hold this, as docs/%s says", r.Name, at)
		return NotHeld
	}
	p := newPlace(t, r)
	p.key = property.Key
	defer func() {
		if v := recover(); v != nil {
			if _, ok := v.(refusal); !ok {
				panic(v)
			}
			outcome = Refused
		}
		if t.Failed() {
			outcome = Failed
		}
	}()
	property.Try(p)
	return Held
}
