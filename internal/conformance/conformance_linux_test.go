package conformance

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

var update = flag.Bool("update", false, "write what was seen into docs/conformance.md")

func TestMain(m *testing.M) {
	if status, is := Role(); is {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// Kinds of users, as the page names them.
var users = []string{"root", "an ordinary user"}

func user() string {
	if os.Geteuid() == 0 {
		return users[0]
	}
	return users[1]
}

func TestRuntimesHoldOrRefuseEverything(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(6), testenv.Program("bwrap"), testenv.Program("git"))
	bailey := testenv.Binary(t, "bailey")
	seen := make(Seen)
	for _, name := range spec.Runtimes() {
		t.Run(name, func(t *testing.T) {
			r := Runtime{Name: name, Bailey: bailey}
			switch err := r.Works(t); {
			case err == nil:
				seen[name] = cells(name, Run(t, r))
			case slices.Contains([]string{spec.RuntimeNative, spec.RuntimeLandlock, spec.RuntimeBwrap}, name):
				t.Error(err)
			default:
				t.Logf("not here: %v", err)
			}
		})
	}
	checkPage(t, seen)
}

// cells are what the page shows of a runtime.
func cells(name string, seen map[string]Outcome) map[string]string {
	out := make(map[string]string)
	for property, outcome := range seen {
		out[property] = string(outcome)
		if outcome == NotHeld {
			out[property] = "not held: [why](" + Stated[name][property] + ")"
		}
	}
	return out
}

func checkPage(t *testing.T, seen Seen) {
	t.Helper()
	file := filepath.Join(testenv.ModuleRoot(t), "docs", "conformance.md")
	var names, depends []string
	for _, p := range Properties() {
		names = append(names, p.Name)
		if p.Machine {
			depends = append(depends, p.Name)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	page := ParsePage(string(text))
	if *update && t.Failed() {
		return // nothing to be proud of
	}
	if *update {
		page[user()] = seen
		if err := os.WriteFile(file, []byte(Page(users, spec.Runtimes(), names, page)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := Page(users, spec.Runtimes(), names, page); want != string(text) {
		t.Errorf("docs/conformance.md is not what its generator writes; run this test with -update")
	}
	for _, line := range Differ(page[user()], seen, depends) {
		t.Error(line)
	}
}
