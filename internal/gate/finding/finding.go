// Package finding is the answer to a question about a policy, whichever program
// gives it.
package finding

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// Finding says whether something is allowed, and why.
type Finding struct {
	Subject string `json:"subject"`
	Allowed bool   `json:"allowed"`
	Verdict string `json:"verdict"`
	// Rule is the line of the policy that decides, and Where the place it was
	// written at. A rule that no file says has no place.
	Rule  string `json:"rule,omitempty"`
	Where string `json:"where,omitempty"`
	// Fix is what would change it.
	Fix string `json:"fix,omitempty"`
}

// text is its form for people.
func (f *Finding) text() string {
	text := plain.Text(f.Subject) + " " + plain.Text(f.Verdict) + "\n  by  " + plain.Text(f.Rule)
	if f.Where != "" {
		text += "\n  at  " + plain.Text(f.Where)
	}
	switch {
	case strings.HasPrefix(f.Fix, "to "):
		text += "\n  " + plain.Text(f.Fix)
	case f.Fix != "":
		text += "\n  to change it: " + plain.Text(f.Fix)
	}
	return text + "\n"
}

// Format returns it as lines for people, or as a line of JSON for programs.
func (f *Finding) Format(asJSON bool) (string, error) {
	if !asJSON {
		return f.text(), nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(f)
	return b.String(), err
}
