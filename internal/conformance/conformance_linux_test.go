package conformance

import (
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

var update = flag.Bool("update", false, "write what was seen into docs/conformance.md")

func TestMain(m *testing.M) {
	if status, is := Role(); is {
		os.Exit(status)
	}
	if address := os.Getenv(servedBy); address != "" {
		os.Exit(serve(address, os.Args[1:]))
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
	testenv.Requires(t, testenv.NoRace, testenv.UserNamespaces, testenv.Landlock(6), testenv.Program("bwrap"), testenv.Program("git"))
	bailey := testenv.Binary(t, "bailey")
	seen := make(Seen)
	docker := sync.OnceValue(func() []string { return dockerEngine(t) })
	for _, name := range columns() {
		t.Run(name, func(t *testing.T) {
			r := Runtime{Name: name, Bailey: bailey}
			switch {
			case strings.HasPrefix(name, "docker"):
				r.Env, r.Parallel = docker(), true
			case name == onPtrace:
				testenv.Requires(t, testenv.Long, testenv.Program("runsc"))
				r.Name, r.Env = "gvisor", withoutSystrap(t)
			}
			mustWork(t, r)
			seen[name] = cells(name, Run(t, r))
		})
	}
	checkPage(t, seen)
}

// onPtrace is gVisor where its platform systrap does not work, which is tried in long runs.
const onPtrace = "gvisor (ptrace)"

// columns are the runtimes of the page.
func columns() []string {
	list := spec.Runtimes()
	return slices.Insert(slices.Clone(list), slices.Index(list, "gvisor")+1, onPtrace)
}

// withoutSystrap has gVisor found that does not start on systrap.
func withoutSystrap(t *testing.T) []string {
	t.Helper()
	real, err := exec.LookPath("runsc")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\nfor a; do [ \"$a\" != --platform=systrap ] || exit 1; done\nexec '" + real + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "runsc"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
}

// mustWork ends a test whose runtime does not carry a command: as skipped only where the
// machine or the user lacks what the runtime is, since one that is there and carries nothing
// is broken.
func mustWork(t testing.TB, r Runtime) {
	t.Helper()
	if err := r.Works(t); err != nil {
		testenv.Requires(t, requirements[r.Name]...)
		t.Fatal(err)
	}
}

// requirements are what a runtime is carried out by, besides Bailey.
var requirements = map[string][]testenv.Requirement{
	spec.RuntimeBwrap: {testenv.Program("bwrap")},
	"runc":            {testenv.Program("runc")},
	"crun":            {testenv.Program("crun")},
	"gvisor":          {testenv.Program("runsc")},
	"docker":          {testenv.Root, testenv.Program("dockerd")},
	"docker+runsc":    {testenv.Root, testenv.Program("dockerd"), testenv.Program("runsc")},
}

// dockerEngine says where an engine of the test's own is, if there can be one.
func dockerEngine(t *testing.T) []string {
	if _, err := exec.LookPath("dockerd"); err != nil || os.Geteuid() != 0 {
		return nil
	}
	return []string{"DOCKER_HOST=" + testenv.Dockerd(t)}
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
		if page[user()] == nil {
			page[user()] = make(Seen)
		}
		maps.Copy(page[user()], seen) // of runtimes that were not tried, what was seen last
		if err := os.WriteFile(file, []byte(Page(users, columns(), names, page)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := Page(users, columns(), names, page); want != string(text) {
		t.Errorf("docs/conformance.md is not what its generator writes; run this test with -update")
	}
	for _, line := range Differ(page[user()], seen, depends) {
		t.Error(line)
	}
}
