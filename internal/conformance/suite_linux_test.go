package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// The suite is worth something only if it fails where it should. These runtimes
// are no runtimes.
const (
	// unconfined runs everything without any wall.
	unconfined = "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done; shift\nexec \"$@\"\n"
	// dead runs nothing and says nothing.
	dead = "#!/bin/sh\nexit 1\n"
	// mute refuses everything without saying what.
	mute = "#!/bin/sh\necho 'bailey: it cannot be done' >&2\nexit 125\n"
)

// passUnconfined are properties that a command without a sandbox has as well.
var passUnconfined = []string{
	"streams carry bytes as they are",
	"a program that is missing or cannot be run is told apart", "signals reach the command", "an open network is the host's",
}

// hasConsequences are properties that cannot be tried without a sandbox: something
// would be left, or waited for, or it is the machine that decides.
var hasConsequences = []string{
	"what is left in the background ends with the command", "the command ends when bailey is killed",
	"what is left in the background ends when bailey is killed", "a limit of time",
	"a terminal is a terminal, and nothing is typed into the caller's", "a limit of memory", "process 1 is not looked into",
	"nothing is mounted, and no namespace made", "no device node is made", "the machine is not configured",
}

func TestSuiteFailsWithoutASandbox(t *testing.T) {
	testenv.Requires(t, testenv.NoRace)
	r := fakeRuntime(t, unconfined)
	for _, p := range Properties() {
		if slices.Contains(hasConsequences, p.Name) {
			continue
		}
		want := Failed
		if slices.Contains(passUnconfined, p.Name) {
			want = Held
		}
		expectOutcome(t, r, p, want)
	}
}

func TestSuiteFailsWhereNothingRuns(t *testing.T) {
	for name, script := range map[string]string{"dead": dead, "mute": mute} {
		t.Run(name, func(t *testing.T) {
			r := fakeRuntime(t, script)
			for _, p := range Properties() {
				expectOutcome(t, r, p, Failed)
			}
		})
	}
}

func TestSuiteTakesOnlyRefusalsByName(t *testing.T) {
	for _, p := range Properties() {
		want := Refused
		key := p.Key
		if key == "" {
			want, key = Failed, "filesystem"
		}
		r := fakeRuntime(t, "#!/bin/sh\necho 'bailey: "+key+": this runtime cannot; use another' >&2\nexit 125\n")
		expectOutcome(t, r, p, want)
	}
}

func TestARuntimeThatIsThereMustWork(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for _, name := range []string{"crun", "runsc"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(dead), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name, script string
		want         any // what ends it
	}{
		{"native", dead, fatal{}},
		{"crun", dead, fatal{}},
		{"crun", "#!/bin/sh\n", nil},
		{"gvisor", mute, fatal{}},
		{"runc", dead, skip("requires: program runc")},
		{"runc", "#!/bin/sh\n", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := fakeRuntime(t, test.script)
			r.Name = test.name
			defer func() {
				if got := recover(); got != test.want {
					t.Errorf("%q ended with %#v, want %#v", test.script, got, test.want)
				}
			}()
			mustWork(&recorder{TB: t}, r)
		})
	}
}

func TestEveryRuntimeSaysWhatItRequires(t *testing.T) {
	for _, name := range spec.Runtimes() {
		if name != spec.RuntimeNative && name != spec.RuntimeLandlock && requirements[name] == nil {
			t.Errorf("%s has no requirements", name)
		}
	}
}

func TestStatedExceptionsAreProperties(t *testing.T) {
	for runtime, list := range Stated {
		for name := range list {
			if !slices.ContainsFunc(Properties(), func(p Property) bool { return p.Name == name }) {
				t.Errorf("%s: there is no property %q", runtime, name)
			}
		}
	}
}

func fakeRuntime(t *testing.T, script string) Runtime {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bailey")
	if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return Runtime{Name: "fake", Bailey: file}
}

func expectOutcome(t *testing.T, r Runtime, p Property, want Outcome) {
	t.Helper()
	rec := &recorder{TB: t}
	if got := rec.try(r, p); got != want {
		t.Errorf("%s: %s, want %s\n%s", p.Name, got, want, rec.log)
	}
}

// recorder takes what a property says about a runtime.
type recorder struct {
	testing.TB
	failed bool
	log    string
}

// fatal ends a property.
type fatal struct{}

// skip skips a test, and says why.
type skip string

func (r *recorder) try(runtime Runtime, p Property) (outcome Outcome) {
	defer func() {
		switch v := recover(); v.(type) {
		case nil:
		case fatal:
			outcome = Failed
		default:
			panic(v)
		}
	}()
	return try(r, runtime, p)
}

func (r *recorder) Failed() bool { return r.failed }

func (r *recorder) Logf(format string, args ...any) { r.log += fmt.Sprintf(format, args...) + "\n" }

func (r *recorder) Error(args ...any) { r.failed = true; r.log += fmt.Sprintln(args...) }

func (r *recorder) Errorf(format string, args ...any) { r.failed = true; r.Logf(format, args...) }

func (r *recorder) Fatal(args ...any) { r.Error(args...); panic(fatal{}) }

func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); panic(fatal{}) }

func (r *recorder) Skip(args ...any) { panic(skip(fmt.Sprint(args...))) }
