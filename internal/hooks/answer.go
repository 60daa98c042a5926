package hooks

import (
	"encoding/json"
	"errors"
	"strings"
)

// Caller is what an answer depends on besides the call itself.
type Caller struct {
	Self   string // the bailey executable
	Inside bool   // the agent itself runs in a sandbox already
}

// A Refusal is an answer by which the command is not run. Its text is for the
// agent, which can act on it.
type Refusal struct{ Text string }

func (r *Refusal) Error() string { return r.Text }

// call is what the agents say about a tool that is about to be used. Codex and
// Cursor's preToolUse have Claude Code's form.
type call struct {
	Event   string                     `json:"hook_event_name"`
	Tool    string                     `json:"tool_name"`
	Input   map[string]json.RawMessage `json:"tool_input"`
	Command *string                    `json:"command"` // Cursor's beforeShellExecution, opencode
	Info    struct {
		CommandLine *string `json:"command_line"`
	} `json:"tool_info"` // Windsurf
}

var errCall = errors.New("there is no command in what the agent says, so that none can be run; is Bailey older than the agent?")

// Answer says what to print for a call, as the agent gives it. An error means
// that the command must not run.
func (t Target) Answer(said []byte, c Caller) ([]byte, error) {
	var asked call
	if err := json.Unmarshal(said, &asked); err != nil {
		return nil, errors.New("what the agent says cannot be read: " + err.Error())
	}
	command, err := t.asked(&asked)
	if err != nil {
		return nil, err
	}
	if t == Windsurf {
		return nil, c.permit(command)
	}
	if t == Cursor && asked.Event != "preToolUse" {
		if err := c.permit(command); err != nil {
			return json.Marshal(object{"permission": "deny", "agent_message": err.Error(), "user_message": err.Error()})
		}
		return json.Marshal(object{"permission": "allow"})
	}
	wrapped := command
	if !c.Inside && !c.isWrapped(command) {
		wrapped = c.wrap(command)
	}
	if wrapped == command && (t == Claude || t == Codex) {
		return nil, nil // no opinion
	}
	return t.rewritten(&asked, wrapped)
}

// asked is the command of a call.
func (t Target) asked(a *call) (string, error) {
	var command *string
	switch {
	case t == Windsurf:
		command = a.Info.CommandLine
	case t == OpenCode || t == Cursor && a.Event != "preToolUse":
		command = a.Command
	default:
		if err := json.Unmarshal(a.Input["command"], &command); err != nil {
			return "", errCall
		}
	}
	if command == nil {
		return "", errCall
	}
	return *command, nil
}

// rewritten is the answer by which another command is run. What else the call
// says stays.
func (t Target) rewritten(a *call, command string) ([]byte, error) {
	if t == OpenCode {
		return json.Marshal(object{"command": command})
	}
	text, err := json.Marshal(command)
	if err != nil {
		return nil, err
	}
	a.Input["command"] = text
	if t == Cursor {
		return json.Marshal(object{"permission": "allow", "updated_input": a.Input})
	}
	specific := object{"hookEventName": "PreToolUse", "updatedInput": a.Input}
	if t == Codex {
		// Without it Codex takes the answer for a mistake, and runs the original.
		specific["permissionDecision"] = "allow"
	}
	return json.Marshal(object{"hookSpecificOutput": specific})
}

// wrap is a line of shell that runs another one in a sandbox.
func (c Caller) wrap(command string) string { return quote(c.Self) + " -c " + quote(command) }

// permit refuses a command that is not one of wrap's.
func (c Caller) permit(command string) error {
	if c.Inside || c.isWrapped(command) {
		return nil
	}
	return &Refusal{"commands run in a sandbox here; write it as: " + c.wrap(command)}
}

// isWrapped says whether a command is what wrap returns, to the letter: with a
// flag more it could be granted more. The bare word "bailey" is not enough,
// whatever it means here: the agent's terminal may look in a directory of the
// project first, .venv/bin for one, and a sandbox can put a program there.
func (c Caller) isWrapped(command string) bool {
	program, line, ok := strings.Cut(strings.TrimSpace(command), " -c ")
	if !ok || program != quote(c.Self) {
		return false
	}
	inner, ok := unquote(line)
	return ok && quote(inner) == line
}

// quote makes a word of any text, for a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// unquote reads what quote wrote.
func unquote(s string) (string, bool) {
	if len(s) < 2 || s[0] != '\'' || s[len(s)-1] != '\'' {
		return "", false
	}
	return strings.ReplaceAll(s[1:len(s)-1], `'\''`, "'"), true
}
