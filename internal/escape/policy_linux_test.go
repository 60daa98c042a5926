package escape

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

// found runs a command with the policy that is found from the project upwards,
// as someone does who just types the command.
func (b *box) found(argv ...string) (string, error) {
	b.t.Helper()
	m := bailey.New(bailey.Config{Dir: b.project})
	if err := m.Initialize(); err != nil {
		return "", err
	}
	out, err := m.Command(argv[0], argv[1:]...).CombinedOutput()
	b.t.Logf("with the found policy (%v):\n%s", err, out)
	return string(out), err
}

// greedy grants more than the default.
func (b *box) greedy() string {
	return fmt.Sprintf(`{"filesystem": {"allowRead": ["~/.ssh", %q], "allowWrite": [%q, "~/.config"], "defaultDenyRead": false}, "env": {"allow": ["GREEDY_TOKEN"]}}`,
		b.outside, b.outside)
}

const greedyLine = `cat ~/.ssh/id_ed25519 > loot/key; echo evil > "$1/file"; echo evil > ~/.config/evil; echo "$GREEDY_TOKEN" > loot/token; true`

func newGreedyBox(t *testing.T) *box {
	b := newBox(t)
	b.write(b.home+"/.ssh/id_ed25519", "BEGIN SECRET")
	b.write(b.outside+"/file", "original")
	must(t, os.MkdirAll(b.home+"/.config/bailey", 0o755))
	t.Setenv("GREEDY_TOKEN", "BEGIN SECRET")
	return b
}

func (b *box) runGreedy() {
	b.t.Helper()
	unchanged(b.t, func() { _, _ = b.found("sh", "-c", greedyLine, "sh", b.outside) }, b.outside, b.home+"/.config", b.home+"/.ssh")
	b.expectNothingRead("SECRET")
}

func TestPolicyOfTheRepositoryGrantsNothing(t *testing.T) {
	b := newGreedyBox(t)
	for _, dir := range []string{b.project, filepath.Dir(b.project)} {
		b.write(dir+"/bailey.jsonc", b.greedy())
		b.runGreedy()
		must(t, os.Remove(dir+"/bailey.jsonc"))
	}
	// The same, when the user names it.
	b.policy = b.greedy()
	b.run("sh", "-c", greedyLine, "sh", b.outside)
	if got := b.looted(); !strings.Contains(got["key"], "SECRET") || !strings.Contains(got["token"], "SECRET") {
		t.Errorf("control: got %q", got)
	}
	if got, _ := os.ReadFile(b.outside + "/file"); string(got) != "evil\n" {
		t.Errorf("control: the file is %q", got)
	}
}

func TestPolicyOfTheRepositoryTakesAway(t *testing.T) {
	b := newGreedyBox(t)
	b.write(b.project+"/kept", "original")
	b.write(b.project+"/bailey.jsonc", `{"filesystem": {"denyWrite": ["kept"]}}`)
	unchanged(t, func() { _, _ = b.found("sh", "-c", "echo evil > kept") }, b.project+"/kept")
	must(t, os.Remove(b.project+"/bailey.jsonc"))
	_, _ = b.found("sh", "-c", "echo evil > kept")
	if got, _ := os.ReadFile(b.project + "/kept"); string(got) != "evil\n" {
		t.Errorf("control: the file is %q", got)
	}
}

func TestPolicyWrittenInsideGrantsNothingNextTime(t *testing.T) {
	for _, name := range []string{"bailey.jsonc", "bailey.json"} {
		b := newGreedyBox(t)
		_, _ = b.found("sh", "-c", `printf %s "$2" > "$1"`, "sh", name, b.greedy())
		if got, err := os.ReadFile(filepath.Join(b.project, name)); err == nil {
			t.Errorf("the policy of the next run was written: %q", got)
		}
		// Should one appear all the same, it is not believed.
		b.write(filepath.Join(b.project, name), b.greedy())
		b.runGreedy()
	}
}

func TestSettingsOfTheProcessNeedTrust(t *testing.T) {
	for _, text := range []string{
		`{"env": {"set": {"LD_PRELOAD": "/tmp/evil.so"}}}`, `{"runtime": "native"}`, `{"network": {"httpProxyPort": 8080}}`,
		`{"extends": "/etc/hostname"}`, `{"extends": "../../../outside/policy.jsonc"}`,
	} {
		b := newGreedyBox(t)
		b.write(b.outside+"/policy.jsonc", "{}")
		b.write(b.project+"/bailey.jsonc", text)
		if _, err := b.found("sh", "-c", "echo ran > loot/ran"); err == nil {
			t.Errorf("%s: nothing was refused", text)
		}
		b.expectNoLoot()
		must(t, os.Remove(b.project+"/bailey.jsonc"))
		_, _ = b.found("sh", "-c", "echo ran > loot/ran")
		b.expectLoot("ran")
	}
}

// A policy names a path through a link that the sandbox can point elsewhere
// between two runs.
func TestLinkInAPolicyIsNotFollowedElsewhere(t *testing.T) {
	for _, policy := range []string{
		`{"filesystem": {"allowWrite": ["out"]}}`, `{"filesystem": {"allowRead": ["out"]}}`, `{"filesystem": {"allowWrite": ["out/sub"]}}`,
		`{"filesystem": {"privateWrite": ["out"]}}`, `{"filesystem": {"allowWrite": ["./deep/out"]}}`,
	} {
		b := newBox(t)
		for _, dir := range []string{b.project + "/real/sub", b.project + "/deep", b.home + "/.ssh/sub"} {
			must(t, os.MkdirAll(dir, 0o755))
		}
		b.write(b.home+"/.ssh/id_ed25519", "BEGIN SECRET")
		b.run("sh", "-c", "ln -sfn ~/.ssh out; ln -sfn ~/.ssh deep/out")
		if _, err := os.Readlink(b.project + "/out"); err != nil {
			t.Fatalf("control: the link was not planted: %v", err)
		}
		b.policy = policy
		unchanged(t, func() {
			m, err := b.manager()
			if err == nil {
				err = m.Command("sh", "-c", "cat out/id_ed25519 > loot/key; echo evil > out/authorized_keys; echo evil > deep/out/x; echo evil > out/sub/x").Run()
			}
			t.Logf("%s: %v", policy, err)
		}, b.home+"/.ssh")
		b.expectNothingRead("SECRET")
	}
}

func TestDenialThroughALinkHoldsNextTime(t *testing.T) {
	b := newBox(t)
	b.write(b.project+"/real.env", "BEGIN SECRET")
	must(t, os.Symlink("real.env", b.project+"/secret.env"))
	b.policy = `{"filesystem": {"denyRead": ["secret.env"]}}`
	for range 2 {
		m, err := b.manager()
		if err == nil {
			err = m.Command("sh", "-c", "cat real.env > loot/real; rm -f secret.env; ln -s attacker secret.env").Run()
		}
		t.Log(err)
		b.expectNothingRead("SECRET")
	}
	b.policy = ""
	b.run("sh", "-c", "cat real.env > loot/real")
	b.expectLoot("real")
}

func TestNestedSandboxGrantsNothing(t *testing.T) {
	b := newGreedyBox(t)
	const lax = `{"filesystem": {"defaultDenyRead": false, "allowWrite": ["/etc", "/usr"]}}`
	args := []string{b.project, lax, "sh", "-c", greedyLine, "sh", b.outside}
	unchanged(t, func() {
		b.attack("launch", args...)
		b.attack("launch", append([]string{b.project, "{}"}, args[2:]...)...)
	}, b.outside, b.home+"/.config", b.home+"/.ssh")
	b.expectNothingRead("SECRET")

	args[1] = b.greedy()
	b.free("launch", args...)
	if got := b.looted(); !strings.Contains(got["key"], "SECRET") {
		t.Errorf("control: a sandbox that is not nested got %q", got)
	}
}

// mistakes are policies that do not say what their author meant. Each is
// refused with its place, and nothing runs.
var mistakes = []struct{ name, text, place, word string }{
	{"typo in a key", "{\n  \"filesytem\": {}\n}", ":2:3", "filesystem"},
	{"typo in an inner key", "{\n  \"filesystem\": {\n    \"denyReed\": []\n  }\n}", ":3:5", "denyRead"},
	{"wrong type", "{\n  \"filesystem\": {\"denyRead\": \"secrets\"}\n}", ":2:", "denyRead"},
	{"wrong element", "{\n  \"filesystem\": {\"denyRead\": [1]}\n}", ":2:", "denyRead"},
	{"empty pattern", "{\n  \"filesystem\": {\"denyRead\": [\"\"]}\n}", ":2:", "denyRead"},
	{"NUL byte", "{\n  \"filesystem\": {\"denyRead\": [\"a\\u0000b\"]}\n}", ":2:", "denyRead"},
	{"key twice", "{\n  \"network\": {},\n  \"network\": {\"allowedDomains\": [\"*\"]}\n}", ":3:", "network"},
	{"key in other letters", "{\n  \"Network\": {}\n}", ":2:3", "network"},
	{"unfinished", "{\n  \"network\": {", ":2:", ""},
	{"more after the end", "{}\n{}", ":2:", ""},
	{"unknown preset", "{\n  \"extends\": \"ofline\"\n}", ":2:", "offline"},
	{"nothing to remove", "{\n  \"filesystem\": {\"allowRead\": [\"!/usrr\"]}\n}", ":2:", "allowRead"},
	{"unknown value", "{\n  \"runtime\": \"nativ\"\n}", ":2:", "native"},
	{"null", "{\n  \"filesystem\": null\n}", ":2:", ""},
}

func TestMistakeInAPolicyIsRefusedWithItsPlace(t *testing.T) {
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			b := newBox(t)
			file := b.outside + "/policy.jsonc"
			b.write(file, m.text)
			for _, config := range []bailey.Config{{Dir: b.project, Settings: file}, {Dir: b.project, Policy: m.text}} {
				manager := bailey.New(config)
				err := manager.Initialize()
				if err == nil {
					err = manager.Command("sh", "-c", "echo ran > loot/ran").Run()
				}
				if err == nil || !strings.Contains(err.Error(), m.place) || !strings.Contains(err.Error(), m.word) {
					t.Errorf("got %v, want an error at %s about %q", err, m.place, m.word)
				}
			}
			b.expectNoLoot()
			b.expectRuns()
		})
	}
}

func TestRelativeDenialHoldsWhereverTheCommandStarts(t *testing.T) {
	b := newBox(t)
	b.write(b.project+"/secrets/token", "BEGIN SECRET")
	must(t, os.Mkdir(b.project+"/sub", 0o755))
	for _, dir := range []string{b.project, b.project + "/sub"} {
		m := bailey.New(bailey.Config{Dir: dir, Policy: `{"filesystem": {"denyRead": ["secrets"]}}`})
		err := m.Initialize()
		if err == nil {
			err = m.Command("sh", "-c", "cat "+b.project+"/secrets/token > "+b.project+"/loot/token").Run()
		}
		t.Log(err)
		b.expectNothingRead("SECRET")
	}
	b.run("sh", "-c", "cat secrets/token > loot/token")
	b.expectLoot("token")
}
