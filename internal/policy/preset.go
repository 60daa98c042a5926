package policy

import (
	"embed"
	"slices"
	"strings"
)

// Two presets are roots: "default" is what holds without any file, and "none"
// grants nothing. A policy that extends nothing builds on "default".
const (
	presetDefault = "default"
	presetNone    = "none"
)

// presetFiles holds one file a preset, whose first line is a comment that says
// what it is.
//
//go:embed presets/*.jsonc
var presetFiles embed.FS

// taskPresets are for a kind of work, and agentPresets for the agents that can
// be started by their name.
var (
	taskPresets = []string{
		"browser", "code", "code-strict", "data", "git-readonly", "local-dev-server", "locked", "npm-install", "offline", "pip-install",
	}
	// rulePresets are path permissions and nothing else.
	rulePresets  = []string{"agent-safe", "development", "full-access", "read-only", "view-only"}
	agentPresets = []string{"aider", "amp", "claude", "codex", "copilot", "cursor-agent", "gemini", "opencode"}
)

// PresetNames lists the presets: those for a kind of work in alphabetical order,
// then those for agents.
func PresetNames() []string {
	work := slices.Concat([]string{presetDefault, presetNone}, taskPresets, rulePresets)
	slices.Sort(work)
	return append(work, agentPresets...)
}

// IsAgent says whether a preset is for an agent.
func IsAgent(name string) bool { return slices.Contains(agentPresets, name) }

// isPreset says whether there is a preset of that name, without making its file.
func isPreset(name string) bool {
	return name == presetDefault || name == presetNone || slices.Contains(taskPresets, name) || slices.Contains(rulePresets, name) || IsAgent(name)
}

// Preset returns a preset as a policy file.
func Preset(name string) ([]byte, bool) {
	switch name {
	case presetDefault:
		const summary = "// default: what holds without any policy file; the project can be written, the network is closed\n"
		return append([]byte(summary), Marshal(Default(), "  ")...), true
	case presetNone:
		return []byte("// none: nothing at all, to build a policy from the ground\n{}\n"), true
	}
	if !isPreset(name) {
		return nil, false
	}
	data, err := presetFiles.ReadFile("presets/" + name + ".jsonc")
	return data, err == nil
}

// DefaultOrigins says where the entries of the default policy are written, as the preset of that
// name shows them. Default itself does not know: every start would pay for it.
func DefaultOrigins() Origins {
	data, _ := Preset(presetDefault)
	p, err := Parse(presetDefault, data)
	if err != nil {
		return nil // which the tests of explain would see
	}
	return p.Origins
}

// PresetSummary says in one line what a preset is, or "" if there is none of
// that name.
func PresetSummary(name string) string {
	data, _ := Preset(name)
	line, _, _ := strings.Cut(string(data), "\n")
	_, summary, _ := strings.Cut(line, ": ")
	return summary
}
