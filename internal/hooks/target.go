package hooks

import (
	"encoding/json"
	"path/filepath"
	"strings"

	"github.com/tailscale/hujson"
)

// Target is an agent that can be told to use Bailey.
type Target string

// The agents.
const (
	Claude   Target = "claude"
	Codex    Target = "codex"
	Cursor   Target = "cursor"
	OpenCode Target = "opencode"
	Windsurf Target = "windsurf"
)

// Targets lists them.
func Targets() []Target { return []Target{Claude, Codex, Cursor, OpenCode, Windsurf} }

// File is where the agent keeps the user's own hooks.
func (t Target) File(home string, getenv func(string) string) string {
	switch t {
	case Claude:
		return filepath.Join(directory(getenv("CLAUDE_CONFIG_DIR"), home, ".claude"), "settings.json")
	case Codex:
		return filepath.Join(directory(getenv("CODEX_HOME"), home, ".codex"), "hooks.json")
	case Cursor:
		return filepath.Join(home, ".cursor/hooks.json")
	case OpenCode:
		return filepath.Join(directory(getenv("XDG_CONFIG_HOME"), home, ".config"), "opencode/plugins/bailey.js")
	}
	return filepath.Join(home, ".codeium/windsurf/hooks.json")
}

func directory(given, home, fallback string) string {
	if filepath.IsAbs(given) {
		return given
	}
	return filepath.Join(home, fallback)
}

// Note says what a person has to do or to know after the hook is installed, or
// is empty.
func (t Target) Note() string {
	switch t {
	case Codex:
		return "Codex skips hooks that were not reviewed: start it, type /hooks and trust this one; until then commands run without a sandbox"
	case Windsurf:
		return "Windsurf cannot rewrite commands: those that are not written as bailey -c '…' are refused, with how to write them"
	case Claude:
		return "Claude Code compares its own rules for Bash with the command as it is rewritten: what they deny by its words belongs into command.deny of a policy"
	case Cursor, OpenCode:
	}
	return ""
}

// command is what the agent runs for each call. A program that is missing or
// crashes leaves a status that agents take for consent; 2 is the one they all
// take for a refusal.
func (t Target) command(self string) string {
	return quote(self) + t.mark()
}

// mark is what a hook of ours ends with, wherever the program is.
func (t Target) mark() string { return " hooks run --" + string(t) + " || exit 2" }

func (t Target) isOurs(command string) bool { return strings.HasSuffix(command, t.mark()) }

// entry is one hook: the event it is for, and how it stands in the list of that
// event.
type entry struct {
	event string
	value any
}

type object = map[string]any

// entries are the hooks an agent needs.
func (t Target) entries(self string) []entry {
	command := t.command(self)
	switch t {
	case Claude, Codex:
		return []entry{{"PreToolUse", group{"Bash", []handler{{"command", command}}}}}
	case Cursor:
		// The first rewrites, the second refuses what was not rewritten.
		return []entry{
			{"preToolUse", cursorHook{command, "Shell", true}},
			{"beforeShellExecution", cursorHook{command, "", true}},
		}
	case OpenCode:
		return nil
	case Windsurf:
	}
	return []entry{{"pre_run_command", cascadeHook{command, true}}}
}

// group and handler are Claude Code's and Codex's form.
type group struct {
	Matcher string    `json:"matcher"`
	Hooks   []handler `json:"hooks"`
}

type handler struct {
	Type    string `json:"type"`
	Command string `json:"command"`
}

type cursorHook struct {
	Command    string `json:"command"`
	Matcher    string `json:"matcher,omitempty"`
	FailClosed bool   `json:"failClosed"`
}

type cascadeHook struct {
	Command    string `json:"command"`
	ShowOutput bool   `json:"show_output"`
}

// empty is the text of a file without hooks.
func (t Target) empty() string {
	if t == Cursor {
		return "{\n  \"version\": 1\n}\n"
	}
	return "{}\n"
}

// Snippet is what a file that holds nothing else looks like.
func (t Target) Snippet(self string) ([]byte, error) { return t.Install(nil, self) }

// plugin is opencode's hook: a module, since it has no hooks that are commands.
func plugin(self string) []byte {
	program, _ := json.Marshal(self) // a string always has a form
	return []byte(`// Made by "bailey hooks install --opencode": every command of the bash tool
// runs in a sandbox, or not at all.
import { spawnSync } from "node:child_process"

const bailey = ` + string(program) + `

export const Bailey = async () => ({
  "tool.execute.before": async (input, output) => {
    if (input.tool !== "bash") return
    const asked = JSON.stringify({ command: output.args.command })
    const answer = spawnSync(bailey, ["hooks", "run", "--opencode"], { input: asked, encoding: "utf8" })
    if (answer.status !== 0) throw new Error(answer.stderr || bailey + " cannot be run, so that no command can be")
    output.args.command = JSON.parse(answer.stdout).command
  },
})
`)
}

// isPlugin says whether a file is one that plugin made.
func isPlugin(data []byte) bool {
	first, _, _ := strings.Cut(string(data), "\n")
	return strings.HasPrefix(first, `// Made by "bailey hooks install --opencode"`)
}

// literal is a value as a tree, indented to stand at a depth of an edited file.
func literal(v any, indent string) (hujson.ValueTrimmed, error) {
	data, err := json.MarshalIndent(v, indent, "  ")
	if err != nil {
		return nil, err
	}
	// Not as in HTML: commands are read by people.
	for _, r := range [][2]string{{`\u003c`, "<"}, {`\u003e`, ">"}, {`\u0026`, "&"}} {
		data = []byte(strings.ReplaceAll(string(data), r[0], r[1]))
	}
	parsed, err := hujson.Parse(data)
	return parsed.Value, err
}
