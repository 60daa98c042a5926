package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestPostureIsWhatTheSuiteSaw(t *testing.T) {
	docs := filepath.Join(testenv.ModuleRoot(t), "docs")
	text, err := os.ReadFile(filepath.Join(docs, "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := Posture(Invariants(), spec.Runtimes(), ParsePage(string(text)))
	file := filepath.Join(docs, "security-posture.md")
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/security-posture.md is not what its generator writes; run: go test ./internal/conformance -run TestPosture -update")
	}
}

// others are properties that are promises to the command, not walls.
var others = []string{
	"the default policy", "streams carry bytes as they are", "the exit status is the command's",
	"a program that is missing or cannot be run is told apart", "signals reach the command", "an open network is the host's",
	"rules about commands hold at every exec",
	"what the command asks for and does not get is told", "what the command used is told",
}

func TestEveryPropertyBelongsToAnInvariant(t *testing.T) {
	var claimed []string
	for _, inv := range Invariants() {
		claimed = append(claimed, inv.Properties...)
	}
	for _, p := range Properties() {
		if slices.Contains(claimed, p.Name) == slices.Contains(others, p.Name) {
			t.Errorf("%q must belong to an invariant, or be among the others", p.Name)
		}
	}
	for _, name := range slices.Concat(claimed, others) {
		if !slices.ContainsFunc(Properties(), func(p Property) bool { return p.Name == name }) {
			t.Errorf("there is no property %q", name)
		}
	}
}

func TestEveryRuntimeHasAWallForEveryInvariant(t *testing.T) {
	for _, inv := range Invariants() {
		for _, runtime := range spec.Runtimes() {
			if inv.wall(runtime) == "" {
				t.Errorf("%s: nothing is said of %s", inv.Name, runtime)
			}
		}
	}
}

// An engine has no bundle, no guard that is process 1, and no user namespace: what is said of
// runtimes that Bailey calls itself is not true of it.
func TestNoWallOfABundleIsSaidOfAnEngine(t *testing.T) {
	for _, inv := range Invariants() {
		for _, runtime := range []string{"docker", "docker+runsc"} {
			for _, foreign := range []string{"bundle", "`Check`", "two process namespaces", "guard is process 1", "root inside", "dies with its parent", "`--network=none`", "`--host-uds=none`"} {
				if strings.Contains(inv.wall(runtime), foreign) {
					t.Errorf("%s: of %s it is said: %s", inv.Name, runtime, inv.wall(runtime))
				}
			}
		}
	}
}

func TestEveryTestThatIsNamedExists(t *testing.T) {
	known := map[string][]string{}
	for _, inv := range Invariants() {
		if len(inv.Tests) == 0 {
			t.Errorf("%s: no test proves it", inv.Name)
		}
		for _, test := range inv.Tests {
			dir, name, _ := strings.Cut(test, ".")
			if known[dir] == nil {
				known[dir] = testsIn(t, dir)
			}
			if !slices.Contains(known[dir], name) {
				t.Errorf("%s: there is no test %s in internal/%s", inv.Name, name, dir)
			}
		}
	}
}

// testsIn are the tests of a package, whatever system they are for.
func testsIn(t *testing.T, dir string) (list []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testenv.ModuleRoot(t), "internal", dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("internal/%s has no tests: %v", dir, err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				list = append(list, f.Name.Name)
			}
		}
	}
	return list
}

func TestOutcomesAreSummedUp(t *testing.T) {
	inv := &Invariant{Properties: []string{"a", "b"}}
	for _, c := range []struct {
		name string
		page map[string]Seen
		want string
	}{
		{"all held", map[string]Seen{"root": {"x": {"a": "held", "b": "held"}}, "user": {"x": {"a": "held", "b": "held"}}}, "held"},
		{"one user refuses", map[string]Seen{"root": {"x": {"a": "held", "b": "held"}}, "user": {"x": {"a": "held", "b": "refused"}}}, "held or refused"},
		{"one is not", map[string]Seen{"root": {"x": {"a": "held", "b": "not held: [why](y.md)"}}}, "not held"},
		{"all refused", map[string]Seen{"root": {"x": {"a": "refused", "b": "refused"}}}, "refused"},
		{"not here", map[string]Seen{"root": {"y": {"a": "held"}}}, "not here"},
	} {
		if got := inv.outcome("x", c.page); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
