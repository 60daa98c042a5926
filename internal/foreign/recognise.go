package foreign

import (
	"path/filepath"
	"reflect"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Recognise says which tool a settings file was made for, and is empty for a
// policy. The formats share most keys, so that it goes by what only one of them
// has; if there is no such thing, by the file's name; and without that, what
// sandbox-runtime demands of every file marks one of its own. In doubt a file is
// a policy, which grants less.
//
// Every start with --settings comes through here: it only looks, and what it
// looks at was parsed anyway.
func Recognise(doc *policy.Document) Tool {
	root := doc.Root()
	top, ok := root.Value.(*hujson.Object)
	if !ok || isOwnName(filepath.Base(doc.Name())) {
		return ""
	}
	var m marks
	for i := range top.Members {
		m.topLevel(&top.Members[i])
	}
	switch {
	case m.own:
		return ""
	case m.tool != "":
		return m.tool
	}
	if tool := byName(doc.Name()); tool != "" {
		if tool == ClaudeCode || fits(root, schemaOf(tool)) {
			return tool
		}
		return ""
	}
	if m.demanded == demandedKeys && root.IsStandard() && fits(root, schemaOf(SandboxRuntime)) {
		return SandboxRuntime
	}
	return ""
}

func isOwnName(base string) bool { return base == "bailey.json" || base == "bailey.jsonc" }

// marks are what keys and values tell about a file.
type marks struct {
	own  bool // it says that it is a policy
	tool Tool
	// demanded counts the keys that sandbox-runtime wants in every file.
	demanded int
}

const demandedKeys = 5

func (m *marks) is(tool Tool) {
	if m.tool == "" {
		m.tool = tool
	}
}

// literal is the bytes of a string in the file, or nil.
func literal(v *hujson.Value) []byte {
	if lit, ok := v.Value.(hujson.Literal); ok && lit.Kind() == '"' {
		return lit
	}
	return nil
}

func (m *marks) topLevel(o *hujson.ObjectMember) {
	switch string(literal(&o.Name)) {
	case `"$schema"`:
		m.schema(string(literal(&o.Value)))
	case `"extends"`:
		m.extends(&o.Value)
	case `"permissions"`, `"sandbox"`:
		m.is(ClaudeCode)
	case `"forceNewSession"`:
		m.is(Fence)
	case `"ignoreViolations"`, `"enableWeakerNestedSandbox"`, `"enableWeakerNetworkIsolation"`, `"allowAppleEvents"`, `"ripgrep"`,
		`"mandatoryDenySearchDepth"`, `"seccomp"`, `"bwrapPath"`, `"socatPath"`, `"javaAgentJarPath"`, `"windows"`, `"git"`:
		m.is(SandboxRuntime)
	case `"credentials"`, `"network"`, `"filesystem"`, `"macos"`:
		if section, ok := o.Value.Value.(*hujson.Object); ok {
			for i := range section.Members {
				m.inSection(&section.Members[i])
			}
		}
	}
}

func (m *marks) schema(address string) {
	switch {
	case strings.Contains(address, "bailey.schema"):
		m.own = true
	case strings.Contains(address, "fence.schema"):
		m.is(Fence)
	case strings.Contains(address, "claude-code-settings"):
		m.is(ClaudeCode)
	}
}

// extends of a policy may be a list; Fence has names that Bailey has not.
func (m *marks) extends(v *hujson.Value) {
	lit := literal(v)
	if lit == nil {
		m.own = true
		return
	}
	switch string(lit) {
	case `"@user"`:
		m.own = true
	case `"@base"`, `"code-relaxed"`, `"disable-telemetry"`, `"hermes"`, `"openclaw"`:
		m.is(Fence)
	}
}

func (m *marks) inSection(o *hujson.ObjectMember) {
	switch string(literal(&o.Name)) {
	case `"wslInterop"`, `"gpu"`:
		m.is(Fence)
	case `"disabled"`, `"mitmProxy"`, `"parentProxy"`, `"tlsTerminate"`, `"strictAllowlist"`, `"allowMachLookup"`, `"deniedDomainReasons"`,
		`"deniedResolvedAddresses"`, `"httpProxyDualStack"`, `"allowPlaintextHeaderSet"`, `"stripResponseHeaders"`, `"refuseOpaqueTunnels"`,
		`"requireHostMatch"`, `"files"`, `"envVars"`:
		m.is(SandboxRuntime)
	case `"proxyUrl"`, `"httpProxyUrl"`, `"dnsAddr"`, `"forwardPorts"`, `"secrets"`:
		m.is(Greywall)
	case `"allowedDomains"`, `"deniedDomains"`, `"denyRead"`, `"allowWrite"`, `"denyWrite"`:
		m.demanded++
	}
}

// byName goes by the words in a file's name, and by the directories that Fence's
// settings are kept in.
func byName(path string) Tool {
	for word := range strings.FieldsFuncSeq(strings.ToLower(filepath.Base(path)), func(r rune) bool { return r < 'a' || r > 'z' }) {
		switch word {
		case "fence":
			return Fence
		case "srt":
			return SandboxRuntime
		case "greywall":
			return Greywall
		}
	}
	if dir := filepath.Dir(path); dir == "/etc/fence" || strings.HasSuffix(dir, "/.config/fence") {
		return Fence
	}
	return ""
}

func schemaOf(tool Tool) reflect.Type {
	switch tool {
	case Fence:
		return reflect.TypeFor[fenceFile]()
	case Greywall:
		return reflect.TypeFor[greywallFile]()
	}
	return reflect.TypeFor[srtFile]()
}

// fits says whether a tool knows all keys of a file.
func fits(v *hujson.Value, schema reflect.Type) bool {
	object, ok := v.Value.(*hujson.Object)
	if !ok || schema.Kind() != reflect.Struct || schema == reflect.TypeFor[hujson.Value]() {
		return true
	}
	for i := range object.Members {
		o := &object.Members[i]
		field, known := fieldOf(schema, strings.Trim(string(literal(&o.Name)), `"`))
		if !known || !fits(&o.Value, field) {
			return false
		}
	}
	return true
}

func fieldOf(schema reflect.Type, key string) (reflect.Type, bool) {
	for i := range schema.NumField() {
		f := schema.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name == key {
			if f.Type.Kind() == reflect.Pointer {
				return f.Type.Elem(), true
			}
			return f.Type, true
		}
	}
	return nil, false
}
