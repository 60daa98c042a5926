package seatbelt

import (
	"testing"

	"github.com/bailey-sandbox/bailey/internal/conformance"
)

func TestEveryPropertyOfTheSuiteHasItsPolicies(t *testing.T) {
	seen := make(map[string]bool)
	for _, p := range conformance.Properties() {
		seen[p.Name] = true
		names, ok := tried[p.Name]
		if !ok {
			t.Errorf("%q has no policies here", p.Name)
		}
		for _, name := range names {
			if policies[name] == "" {
				t.Errorf("%q: there is no policy %q", p.Name, name)
			}
		}
	}
	for name := range tried {
		if !seen[name] {
			t.Errorf("the suite has no property %q", name)
		}
	}
}
