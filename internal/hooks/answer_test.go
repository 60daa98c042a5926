package hooks

import (
	"encoding/json"
	"errors"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

func TestCommandsAreRewritten(t *testing.T) {
	for _, command := range []string{"ls", "", "echo 'it''s' \"$HOME\" `x` \\", "a\nb\n", "cat <<'E'\nx\nE", "--allow-network", "é\x01"} {
		wrapped := "'" + self + "' -c " + quote(command)
		for _, test := range []struct {
			target   Target
			ask, get object
		}{
			{Claude, object{"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": object{"command": command, "timeout": 5.0}}, object{"hookSpecificOutput": object{
				"hookEventName": "PreToolUse", "updatedInput": object{"command": wrapped, "timeout": 5.0},
			}}},
			{Codex, object{"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": object{"command": command}}, object{"hookSpecificOutput": object{
				"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": object{"command": wrapped},
			}}},
			{Cursor, object{"hook_event_name": "preToolUse", "tool_name": "Shell", "tool_input": object{"command": command, "working_directory": "/x"}}, object{
				"permission": "allow", "updated_input": object{"command": wrapped, "working_directory": "/x"},
			}},
			{OpenCode, object{"command": command}, object{"command": wrapped}},
		} {
			said, _ := json.Marshal(test.ask)
			got, err := test.target.Answer(said, Caller{Self: self})
			var answer object
			if err == nil {
				err = json.Unmarshal(got, &answer)
			}
			if err != nil || !reflect.DeepEqual(answer, test.get) {
				t.Errorf("%s %q: %s, %v", test.target, command, got, err)
			}
		}
	}
}

// The shell must see one word, whatever is in it.
func TestTheWrappedCommandIsOneWord(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("requires: program sh")
	}
	for _, command := range []string{"a b", "'", "''", `\`, `'\''`, "$(x)", "a\nb", "!x", "*"} {
		out, err := exec.Command(sh, "-c", `printf '%s|' "$@"`, "sh").CombinedOutput()
		if err != nil || string(out) != "|" {
			t.Fatalf("%q, %v", out, err)
		}
		out, err = exec.Command(sh, "-c", "printf '%s|' "+strings.TrimPrefix(Caller{Self: "x"}.wrap(command), "'x' ")).CombinedOutput()
		if err != nil || string(out) != "-c|"+command+"|" {
			t.Errorf("%q became %q, %v", command, out, err)
		}
	}
}

func TestOnlyTheExactFormCountsAsWrapped(t *testing.T) {
	c := Caller{Self: self}
	own := quote(self)
	for command, want := range map[string]bool{
		c.wrap("ls; it's"):                true,
		own + " -c 'ls'":                  true,
		self + " -c 'ls'":                 false,
		"bailey -c 'ls'":                  false,
		"'bailey' -c 'ls'":                false,
		"ls":                              false,
		own + " -- ls":                    false,
		own + " -c ls":                    false,
		own + " --allow-network -c 'ls'":  false,
		own + " -c 'ls' ; ls":             false,
		own + " -c 'ls'; ls 'x'":          false,
		own + " -c 'ls' 'x'":              false,
		own + " -c 'ls'\nls 'x'":          false,
		"x=1 " + own + " -c 'ls'":         false,
		"'/tmp/bailey' -c 'ls'":           false,
		own + " -c '":                     false,
		own + " -c 'a'\\'' ; ls '\\''b'":  true,
		own + " -c 'a'\\''b' '\\'' ; ls'": false,
	} {
		if got := c.isWrapped(command); got != want {
			t.Errorf("%s: %v", command, got)
		}
	}
}

func TestWhatCannotBeRewrittenIsRefusedWithTheWayToWriteIt(t *testing.T) {
	c := Caller{Self: self}
	_, err := Windsurf.Answer([]byte(`{"agent_action_name": "pre_run_command", "tool_info": {"command_line": "ls", "cwd": "/x"}}`), c)
	var refusal *Refusal
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Text, c.wrap("ls")) {
		t.Errorf("%v", err)
	}
	said, _ := json.Marshal(object{"tool_info": object{"command_line": c.wrap("ls")}})
	if got, err := Windsurf.Answer(said, c); err != nil || got != nil {
		t.Errorf("%s, %v", got, err)
	}
	for command, want := range map[string]string{"ls": "deny", c.wrap("ls"): "allow"} {
		said, _ := json.Marshal(object{"hook_event_name": "beforeShellExecution", "command": command})
		got, err := Cursor.Answer(said, c)
		if err != nil || !strings.Contains(string(got), `"permission":"`+want+`"`) {
			t.Errorf("Cursor %s: %s, %v", command, got, err)
		}
	}
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	for _, target := range Targets() {
		for _, said := range []string{"", "{", "null", "{}", "[]", `{"tool_input": {}}`, `{"tool_input": {"command": 1}}`, `{"tool_input": {"command": null}}`, `{"tool_info": {}}`, `{"command": null}`} {
			if got, err := target.Answer([]byte(said), Caller{Self: self}); err == nil {
				t.Errorf("%s: %q is answered with %q", target, said, got)
			}
		}
	}
}

func TestInsideASandboxCommandsStay(t *testing.T) {
	inside := Caller{Self: self, Inside: true}
	for target, said := range map[Target]string{
		Claude: `{"tool_input": {"command": "ls"}}`, Codex: `{"tool_input": {"command": "ls"}}`,
		Windsurf: `{"tool_info": {"command_line": "ls"}}`,
	} {
		if got, err := target.Answer([]byte(said), inside); err != nil || got != nil {
			t.Errorf("%s: %s, %v", target, got, err)
		}
	}
	if got, err := OpenCode.Answer([]byte(`{"command": "ls"}`), inside); err != nil || string(got) != `{"command":"ls"}` {
		t.Errorf("opencode: %s, %v", got, err)
	}
}
