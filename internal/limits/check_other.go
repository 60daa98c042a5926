//go:build !linux

package limits

import "github.com/bailey-sandbox/bailey/internal/spec"

// Check says which limits this machine cannot hold for this user.
func Check(l *spec.Limits) error {
	if !l.NeedGroup() {
		return nil
	}
	var refused spec.Refused
	l.Each(func(key, value string) {
		if key != "resources.disk" {
			refused.Reasons = append(refused.Reasons, &spec.Unsupported{Key: key, Value: value, Reason: "needs control groups, which only Linux has", Fix: "remove it"})
		}
	})
	return &refused
}
