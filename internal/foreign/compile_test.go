package foreign

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// machine is a home and a project on this machine.
type machine struct{ home, project string }

func newMachine(t testing.TB) machine {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := machine{filepath.Join(base, "home"), filepath.Join(base, "project")}
	for _, dir := range []string{".ssh", ".aws", ".config/app", ".config/bailey", ".local/state/bailey"} {
		if err := os.MkdirAll(filepath.Join(p.home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(p.project, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{p.home + "/notes", p.home + "/.ssh/id_rsa", p.home + "/.aws/credentials", p.project + "/.env"} {
		if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p machine) options(lasting bool) Options {
	return Options{Home: p.home, ConfigHome: p.home + "/.config", Dir: p.project, Lasting: lasting}
}

// compile loads a settings file as the command does.
func (p machine) compile(t testing.TB, file string, lasting bool) (*spec.Spec, error) {
	t.Helper()
	loaded, err := policy.Load(policy.Options{
		Dir: p.project, Home: p.home, ConfigHome: p.home + "/.config", StateHome: p.home + "/.local/state",
		Settings: file, Translate: Translator(p.options(lasting)),
	})
	if err != nil {
		return nil, err
	}
	facts, err := host.New()
	if err != nil {
		t.Fatal(err)
	}
	facts.Caller.Dir, facts.Caller.Home, facts.Caller.Root = p.project, p.home, loaded.Root
	facts.Caller.Environ = []string{"HOME=" + p.home, "PATH=/usr/bin:/bin", "MY_TOKEN=x", "PLAIN=x", "OTHER=x"}
	loaded.Policy.Origins = nil // the files differ, what they say must not
	return spec.Compile(loaded.Policy, facts, spec.Command{Argv: []string{"true"}})
}

// What a policy that was imported decides is what the settings decide when they
// are run as they are; and where they are refused, so is it.
func TestImportedAndForeignSettingsCompileToTheSame(t *testing.T) {
	compiled := 0
	for _, file := range samples(t) {
		tool := toolOf(t, file)
		if tool != Fence && tool != SandboxRuntime {
			continue
		}
		p := newMachine(t)
		abs, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := Read(tool, open(t, abs), p.options(true))
		if err != nil {
			t.Fatal(err)
		}
		written := filepath.Join(p.home, "imported.jsonc")
		if err := os.WriteFile(written, tr.Render(abs), 0o644); err != nil {
			t.Fatal(err)
		}
		direct, directErr := p.compile(t, abs, true)
		imported, importedErr := p.compile(t, written, true)
		// Mounts of the machine, which both show, come and go.
		for again, err := p.compile(t, abs, true); err == nil && directErr == nil && asJSON(t, again) != asJSON(t, direct); again, err = p.compile(t, abs, true) {
			direct = again
			imported, importedErr = p.compile(t, written, true)
		}
		if directErr == nil {
			compiled++
		}
		if (directErr == nil) != (importedErr == nil) || directErr != nil && directErr.Error() != importedErr.Error() {
			t.Errorf("%s: direct %v, imported %v", file, directErr, importedErr)
			continue
		}
		if got, want := asJSON(t, imported), asJSON(t, direct); got != want {
			t.Errorf("%s: imported\n%s\ndirect\n%s", file, got, want)
		}
		if directErr == nil {
			p.sameAccess(t, file, abs, imported)
		}
	}
	if compiled < 6 {
		t.Errorf("only %d samples compile here", compiled)
	}
}

// sameAccess compares what is on this machine with what a file decides when it is
// run, where paths are written from the root.
func (p machine) sameAccess(t *testing.T, name, file string, imported *spec.Spec) {
	t.Helper()
	run, err := p.compile(t, file, false)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	for _, path := range []string{
		p.home, p.home + "/notes", p.home + "/.ssh", p.home + "/.ssh/id_rsa", p.home + "/.aws/credentials", p.home + "/.config/app",
		p.project, p.project + "/src", p.project + "/.env", "/usr/bin", "/etc/passwd", "/etc/hostname", "/tmp", "/run",
	} {
		got, _ := run.Access(path)
		if want, _ := imported.Access(path); got != want {
			t.Errorf("%s: %s is %v, imported %v", name, path, got, want)
		}
	}
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Reads are open but for secrets, writes closed but for what is named.
func TestToolsDefaultsForFiles(t *testing.T) {
	p := newMachine(t)
	for _, c := range []struct{ name, text string }{
		{"srt-a.json", `{"network": {}, "filesystem": {"denyRead": ["~/.config"], "allowRead": ["~/.config/app"], "allowWrite": ["src"], "denyWrite": []}}`},
		{"fence-a.json", `{"network": {}, "filesystem": {"denyRead": ["~/.config"], "allowRead": ["~/.config/app"], "allowWrite": ["src"], "denyWrite": []}}`},
	} {
		file := filepath.Join(p.home, c.name)
		if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := p.compile(t, file, false)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		// In sandbox-runtime what is allowed inside of what is denied wins, in
		// Fence what is denied does.
		inside := spec.AccessRead
		if strings.HasPrefix(c.name, "fence") {
			inside = spec.AccessNone
		}
		for path, want := range map[string]spec.Access{
			p.home + "/notes": spec.AccessRead, "/usr/bin": spec.AccessRead, "/etc/hostname": spec.AccessRead,
			p.home + "/.ssh/id_rsa": spec.AccessNone, p.home + "/.aws": spec.AccessNone,
			p.home + "/.config/bailey": spec.AccessNone, p.home + "/.config/app": inside,
			p.project: spec.AccessRead, p.project + "/src": spec.AccessWrite,
		} {
			got, m := s.Access(path)
			if m != nil && m.Kind == spec.Tmpfs {
				got = spec.AccessNone // nothing of the host
			}
			if got != want {
				t.Errorf("%s: %s is %v, want %v", c.name, path, got, want)
			}
		}
		if env := strings.Join(s.Env, " "); strings.Contains(env, "MY_TOKEN") || !strings.Contains(env, "OTHER=x") {
			t.Errorf("%s: environment %s", c.name, env)
		}
	}
}

// A policy of Bailey's own must not pay for other tools' files: it is looked at
// after it was parsed, which happens once, and nothing is allocated for that.
func TestAPolicyPaysNothingForOtherTools(t *testing.T) {
	for _, name := range policy.PresetNames() {
		data, _ := policy.Preset(name)
		doc, err := policy.ReadDocument(name+".jsonc", data)
		if err != nil {
			t.Fatal(err)
		}
		if tool := Recognise(doc); tool != "" {
			t.Errorf("%s is taken for settings of %s", name, tool)
		}
		if n := testing.AllocsPerRun(20, func() { Recognise(doc) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkRecogniseAPolicy(b *testing.B) {
	data, _ := policy.Preset("code-strict")
	doc, err := policy.ReadDocument("own.jsonc", data)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		Recognise(doc)
	}
}

func BenchmarkReadAPolicy(b *testing.B) {
	data, _ := policy.Preset("code-strict")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := policy.Parse("own.jsonc", data); err != nil {
			b.Fatal(err)
		}
	}
}
