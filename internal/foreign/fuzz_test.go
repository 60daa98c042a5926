package foreign

import (
	"bytes"
	"os"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// FuzzSettings reads anything as the settings of each tool. What can be read
// must be a policy that can be written and read again, and no entry of it may
// take another back.
func FuzzSettings(f *testing.F) {
	for _, file := range samples(f) {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"filesystem": {"denyRead": ["!x", "/", "~", {"path": "!*", "literal": true}]}}`))
	f.Add([]byte(`{"permissions": {"deny": ["Read(", "Bash()", "Read(!x)", "WebFetch(domain:)", "Bash(a\tb)"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, tool := range []Tool{Fence, SandboxRuntime, ClaudeCode, Greywall} {
			doc, err := policy.ReadDocument("settings.json", data)
			if err != nil {
				return
			}
			Recognise(doc)
			tr, err := Read(tool, doc, nowhere)
			if err != nil {
				continue
			}
			_ = tr.Summary("settings.json")
			p, err := policy.Parse("imported", tr.Render("settings.json"))
			if err != nil {
				t.Fatalf("%s: %v\n%s", tool, err, tr.Render("settings.json"))
			}
			p.Schema = ""
			if got, want := policy.Marshal(*p, ""), policy.Marshal(tr.Policy, ""); !bytes.Equal(got, want) {
				t.Fatalf("%s: read again\n%s\nwant\n%s", tool, got, want)
			}
			if base := (policy.Policy{}); len(tr.Policy.Filesystem.DenyRead) != len(policy.Merge(base, tr.Policy).Filesystem.DenyRead) {
				t.Fatalf("%s: an entry takes another back: %q", tool, tr.Policy.Filesystem.DenyRead)
			}
		}
	})
}
