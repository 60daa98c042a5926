package policy

import (
	_ "embed"
	"strings"
)

// Two presets are roots: "default" is what holds without any file, and "none"
// grants nothing. A policy that extends nothing builds on "default".
const (
	presetDefault = "default"
	presetNone    = "none"
)

//go:embed presets/code.jsonc
var codePreset string

//go:embed presets/code-strict.jsonc
var codeStrictPreset string

//go:embed presets/locked.jsonc
var lockedPreset string

//go:embed presets/offline.jsonc
var offlinePreset string

// PresetNames lists the presets in alphabetical order.
func PresetNames() []string {
	return []string{"code", "code-strict", presetDefault, "locked", presetNone, "offline"}
}

// Preset returns a preset as a policy file.
func Preset(name string) ([]byte, bool) {
	switch name {
	case "code":
		return []byte(codePreset), true
	case "code-strict":
		return []byte(codeStrictPreset), true
	case "locked":
		return []byte(lockedPreset), true
	case "offline":
		return []byte(offlinePreset), true
	case presetDefault:
		const summary = "// default: what holds without any policy file; the project can be written, the network is closed\n"
		return append([]byte(summary), Marshal(Default(), "  ")...), true
	case presetNone:
		return []byte("// none: nothing at all, to build a policy from the ground\n{}\n"), true
	}
	return nil, false
}

// PresetSummary says in one line what a preset is, or "" if there is none of
// that name.
func PresetSummary(name string) string {
	data, _ := Preset(name)
	line, _, _ := strings.Cut(string(data), "\n")
	_, summary, _ := strings.Cut(line, ": ")
	return summary
}
