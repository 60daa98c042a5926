// Package foreign reads the settings of other tools that confine commands, and
// says what they mean as a policy of Bailey's own.
//
// A translation keeps to the defaults of the tool that the file was made for:
// what that tool lets a command do without being told is granted, as far as
// Bailey grants it to anybody. It never grants more than the file and those
// defaults do. What the file forbids and Bailey cannot hold is a loss, which
// Translate refuses and an import lists.
package foreign

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Tool is what a settings file was made for.
type Tool string

const (
	Fence          Tool = "Fence"
	SandboxRuntime Tool = "sandbox-runtime"
	ClaudeCode     Tool = "Claude Code"
	Greywall       Tool = "Greywall"
)

// Flag is how "bailey import" calls a tool.
func (t Tool) Flag() string {
	switch t {
	case Fence:
		return "--fence"
	case SandboxRuntime:
		return "--srt"
	case ClaudeCode:
		return "--claude"
	}
	return "--greywall"
}

// Options say where a file is read, and what for. Paths are absolute.
type Options struct {
	Home       string // what ~/ stands for
	Dir        string // what relative paths are relative to
	ConfigHome string // where Fence's own settings are, in fence/
	// Lasting says that the policy is kept in a file: then it also hides what
	// does not exist yet.
	Lasting bool
}

// Translation is what a settings file means.
type Translation struct {
	Tool   Tool
	Policy policy.Policy // whole: it extends nothing
	// Reasons say why an entry is there that stands in no file.
	Reasons map[policy.Origin]string
	// Stricter is what Bailey does more strictly than the tool.
	Stricter []string
	// Idle are keys that have no effect here, and none that is missed.
	Idle []Note
	// Lost are rules that could not be carried.
	Lost  []Note
	Files []string // further files that were read
}

// Note is about one rule or key of a file.
type Note struct {
	Pos  policy.Pos
	What string
	Why  string
	// Restricts says that the rule forbids something, which nothing else holds.
	Restricts bool
}

func (n Note) String() string {
	text := n.What + ": " + n.Why
	if n.Pos.File != "" {
		text = n.Pos.String() + ": " + text
	}
	return plain.Text(text)
}

// Read translates a file that was made for a tool.
func Read(tool Tool, doc *policy.Document, o Options) (*Translation, error) {
	if real, err := filepath.EvalSymlinks(o.Dir); err == nil {
		o.Dir = real
	}
	t := &translator{
		Options: o,
		Translation: &Translation{
			Tool: tool, Policy: policy.Policy{Origins: policy.Origins{}}, Reasons: map[policy.Origin]string{},
		},
	}
	read := map[Tool]func(*policy.Document) error{
		Fence: t.fence, SandboxRuntime: t.sandboxRuntime, ClaudeCode: t.claude, Greywall: t.greywall,
	}[tool]
	if err := read(doc); err != nil {
		return nil, err
	}
	if t.err != nil {
		return nil, t.err
	}
	t.Policy.Extends = policy.StringList{"none"}
	return t.Translation, nil
}

// Translator returns what policy.Load asks about a settings file that a person
// named. A file of Fence's or sandbox-runtime's is run as it is; one of a tool
// whose settings are about more than a command is an error that says how to
// make a policy of it.
func Translator(o Options) func(*policy.Document) (*policy.Translated, error) {
	return func(doc *policy.Document) (*policy.Translated, error) {
		tool := Recognise(doc)
		switch tool {
		case "":
			return nil, nil
		case ClaudeCode, Greywall:
			return nil, &policy.Error{
				File: doc.Name(), Msg: "these are settings of " + string(tool),
				Hint: "make a policy of them with: bailey import " + tool.Flag() + " " + plain.Word(doc.Name()),
			}
		}
		t, err := Read(tool, doc, o)
		if err != nil {
			return nil, err
		}
		if err := t.refuse(); err != nil {
			return nil, err
		}
		return &policy.Translated{Tool: string(tool), Policy: t.Policy, Note: t.Summary(doc.Name()), Files: t.Files}, nil
	}
}

// refuse returns the restrictions that nothing here holds.
func (t *Translation) refuse() error {
	var errs []error
	for _, n := range t.Lost {
		if n.Restricts {
			errs = append(errs, n.Pos.Errorf("%s: %s", n.What, n.Why))
		}
	}
	return errors.Join(errs...)
}

// Summary says in one line what whoever runs a command under a file's settings
// should know.
func (t *Translation) Summary(file string) string {
	var b strings.Builder
	b.WriteString(plain.Text(filepath.Base(file)) + ": settings of " + string(t.Tool) + ", held to its defaults")
	if len(t.Stricter) > 0 {
		b.WriteString("; stricter here: " + strings.Join(t.Stricter, ", "))
	}
	if names := named(t.Lost); names != "" {
		b.WriteString("; not granted: " + names)
	}
	if names := named(t.Idle); names != "" {
		b.WriteString("; no effect: " + names)
	}
	return b.String()
}

// named lists what notes are about, each once. What stands in no file of the
// user's, such as a template of the tool's, is not worth a word.
func named(notes []Note) string {
	var names []string
	for _, n := range notes {
		if n.Pos.Line > 0 && !isTemplate(n.Pos.File) && !slices.Contains(names, n.What) {
			names = append(names, plain.Text(n.What))
		}
	}
	return strings.Join(names, ", ")
}

// Places are where a tool looks for its settings, the first that exists counts.
func Places(tool Tool, o Options) []string {
	switch tool {
	case Fence:
		return append(upwards(o.Dir, "fence.jsonc", "fence.json"), fencePlaces(o)...)
	case SandboxRuntime:
		return []string{filepath.Join(o.Home, ".srt-settings.json")}
	case ClaudeCode:
		return []string{
			filepath.Join(o.Dir, ".claude", "settings.local.json"), filepath.Join(o.Dir, ".claude", "settings.json"),
			filepath.Join(o.Home, ".claude", "settings.json"),
		}
	case Greywall:
		return []string{filepath.Join(o.ConfigHome, "greywall", "greywall.json"), filepath.Join(o.Home, ".greywall.json")}
	}
	return nil
}

// upwards lists names in a directory and all above it.
func upwards(dir string, names ...string) []string {
	var out []string
	for {
		for _, name := range names {
			out = append(out, filepath.Join(dir, name))
		}
		if filepath.Dir(dir) == dir {
			return out
		}
		dir = filepath.Dir(dir)
	}
}
