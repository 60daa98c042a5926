package hooks

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/tailscale/hujson"
)

const self = "/usr/local/bin/bailey"

// edited are the agents whose file is shared with others.
var edited = []Target{Claude, Codex, Cursor, Windsurf}

// files are what people may have, with EVENT for a name of the agent's.
var files = map[string]string{
	"empty object":     "{}\n",
	"on one line":      `{"model": "x"}`,
	"other settings":   "{\n\t\"model\": \"x\",\n\t\"permissions\": {\"allow\": [\"Read\"]}\n}\n",
	"empty hooks":      "{\n  \"hooks\": {}\n}\n",
	"an empty list":    "{\"hooks\": {\"EVENT\": []}}",
	"another hook":     "{\n  \"hooks\": {\n    \"EVENT\": [\n      {\"matcher\": \"Bash\", \"command\": \"x\", \"hooks\": [{\"type\": \"command\", \"command\": \"x\"}]}\n    ]\n  }\n}\n",
	"comments":         "// mine\n{\n  // about the model\n  \"model\": \"x\", // behind it\n  \"hooks\": { // hooks\n    /* event */ \"EVENT\": [ // list\n      // the first\n      {\"command\": \"x\"}, // behind the first\n      {\"command\": \"y\"} // the last\n      // nothing more\n    ]\n  }\n  // the end\n}\n// after it\n",
	"trailing commas":  "{\n  \"hooks\": {\n    \"EVENT\": [\n      {\"command\": \"x\",},\n    ],\n  },\n}\n",
	"carriage returns": "{\r\n  \"model\": \"x\"\r\n}\r\n",
	"only comments":    "{\n  // nothing yet\n}\n",
}

func (t Target) first() string { return t.entries(self)[0].event }

func TestInstalledAndRemovedAFileIsWhatItWas(t *testing.T) {
	for _, target := range edited {
		for name, text := range files {
			text := strings.ReplaceAll(text, "EVENT", target.first())
			with, err := target.Install([]byte(text), self)
			if err != nil {
				t.Fatalf("%s, %s: %v", target, name, err)
			}
			if n := strings.Count(string(with), target.mark()); n != len(target.entries(self)) {
				t.Errorf("%s, %s: %d hooks in\n%s", target, name, n, with)
			}
			again, err := target.Install(with, self)
			if err != nil || string(again) != string(with) {
				t.Errorf("%s, %s: installed twice: %v\n%s", target, name, err, again)
			}
			without, err := target.Uninstall(with)
			if err != nil {
				t.Fatalf("%s, %s: %v", target, name, err)
			}
			if strings.Contains(name, "empty") || name == "only comments" {
				// A list or an object that is left empty is taken away too.
				continue
			}
			if string(without) != text {
				t.Errorf("%s, %s: it was\n%s\nand became\n%s", target, name, text, without)
			}
		}
	}
}

func TestNothingElseInAFileChanges(t *testing.T) {
	for _, target := range edited {
		for name, text := range files {
			text := strings.ReplaceAll(text, "EVENT", target.first())
			with, err := target.Install([]byte(text), self)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(text, "//") && !strings.Contains(name, "trailing") && !json.Valid(with) {
				t.Errorf("%s, %s: JSON became something else:\n%s", target, name, with)
			}
			for line := range strings.Lines(text) {
				if _, comment, ok := strings.Cut(line, "//"); ok && !strings.Contains(string(with), "//"+comment) {
					t.Errorf("%s, %s: the comment %q is gone:\n%s", target, name, comment, with)
				}
			}
			left, err := target.Uninstall(with)
			if err != nil {
				t.Fatal(err)
			}
			if had, has := values(t, text), values(t, string(left)); !reflect.DeepEqual(had, has) {
				t.Errorf("%s, %s: %v became %v", target, name, had, has)
			}
			if strings.Contains(text, "nothing yet") && !strings.Contains(string(left), "nothing yet") {
				t.Errorf("%s: a comment is gone: %s", target, left)
			}
		}
	}
}

// values are what a file says, without hooks that are empty.
func values(t *testing.T, text string) object {
	t.Helper()
	if text == "" {
		return object{}
	}
	plain, err := hujson.Standardize([]byte(text))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	var v object
	if err := json.Unmarshal(plain, &v); err != nil {
		t.Fatal(err)
	}
	if hooks, ok := v["hooks"].(object); ok {
		for event, list := range hooks {
			if len(list.([]any)) == 0 {
				delete(hooks, event)
			}
		}
		if len(hooks) == 0 {
			delete(v, "hooks")
		}
	}
	return v
}

func TestAHookOfAnotherPlaceIsRenewed(t *testing.T) {
	for _, target := range edited {
		old, err := target.Install(nil, "/old place/bailey")
		if err != nil {
			t.Fatal(err)
		}
		renewed, err := target.Install(old, self)
		if err != nil {
			t.Fatal(err)
		}
		if want, _ := target.Install(nil, self); string(renewed) != string(want) {
			t.Errorf("%s:\n%s", target, renewed)
		}
	}
}

func TestOurHookIsTakenOutOfAGroupOfOthers(t *testing.T) {
	const text = `{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "mine"}, {"type": "command", "command": "'/x' hooks run --claude || exit 2"}]}]}}`
	got, err := Claude.Uninstall([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "mine"}]}]}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestFilesOfAnotherShapeAreLeft(t *testing.T) {
	for _, text := range []string{"[]", "{", `{"hooks": []}`, `{"hooks": {"PreToolUse": {}}}`, `"x"`, "\xef\xbb\xbf{}"} {
		if got, err := Claude.Install([]byte(text), self); err == nil {
			t.Errorf("%q became %s", text, got)
		}
	}
	if _, err := OpenCode.Install([]byte("export const Mine = 1\n"), self); err == nil {
		t.Error("a plugin of another's was replaced")
	}
	if _, err := OpenCode.Uninstall([]byte("export const Mine = 1\n")); err == nil {
		t.Error("a plugin of another's was removed")
	}
}

// The forms that the agents publish.
func TestHooksHaveThePublishedForm(t *testing.T) {
	command := func(t Target) string { return "'" + self + "' hooks run --" + string(t) + " || exit 2" }
	for target, want := range map[Target]object{
		Claude: {"hooks": object{"PreToolUse": []any{object{"matcher": "Bash", "hooks": []any{object{"type": "command", "command": command(Claude)}}}}}},
		Codex:  {"hooks": object{"PreToolUse": []any{object{"matcher": "Bash", "hooks": []any{object{"type": "command", "command": command(Codex)}}}}}},
		Cursor: {"version": 1.0, "hooks": object{
			"preToolUse":           []any{object{"command": command(Cursor), "matcher": "Shell", "failClosed": true}},
			"beforeShellExecution": []any{object{"command": command(Cursor), "failClosed": true}},
		}},
		Windsurf: {"hooks": object{"pre_run_command": []any{object{"command": command(Windsurf), "show_output": true}}}},
	} {
		text, err := target.Snippet(self)
		if err != nil {
			t.Fatal(err)
		}
		var got object
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%s", target, text)
		}
		if left, err := target.Uninstall(text); err != nil || left != nil {
			t.Errorf("%s: a file that held nothing else is left: %s, %v", target, left, err)
		}
	}
}

func decode(text string, to any) error {
	plain, err := hujson.Standardize([]byte(text))
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, to)
}

func FuzzInstall(f *testing.F) {
	for _, text := range files {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, target := range edited {
			with, err := target.Install([]byte(text), self)
			if err != nil {
				continue
			}
			if again, err := target.Install(with, self); err != nil || string(again) != string(with) {
				t.Errorf("%s: installed twice: %v\n%q\n%q", target, err, with, again)
			}
			left, err := target.Uninstall(with)
			if err != nil {
				t.Errorf("%s: %v", target, err)
				continue
			}
			var had, has any
			if decode(text, &had) != nil || strings.Contains(text, "hooks") {
				continue
			}
			if left == nil { // the file is removed
				continue
			}
			if err := decode(string(left), &has); err != nil || !reflect.DeepEqual(had, has) {
				t.Errorf("%s: %q became %q, %v", target, text, left, err)
			}
		}
	})
}
