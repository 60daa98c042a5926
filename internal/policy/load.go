package policy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// Options say where to look for policies. Every path but Settings is absolute.
type Options struct {
	Dir        string // where the command runs; the search goes upwards from here
	Home       string // what ~/ means in extends
	ConfigHome string // the user's own policy is bailey/bailey.jsonc below it
	StateHome  string // the trust store is bailey/ below it

	// Agent, if not empty, is the preset of an agent. What it says itself holds
	// besides the policy, as what flags say does, and what it extends holds for
	// a user who has no policy.
	Agent string

	Settings  string // a policy file the user named; nothing is searched
	Preset    string // a preset the user named; nothing is searched
	Overrides Policy // what flags say; applied last

	// Translate, if not nil, is asked about the file that Settings names: what
	// it means if it was made for another tool, nil if it is a policy.
	Translate func(*Document) (*Translated, error)
}

// Translated is what a settings file of another tool means here.
type Translated struct {
	Tool   string
	Policy Policy
	Note   string   // what whoever runs a command with it should know, in one line
	Files  []string // further files that were read
}

// Kind says what a Link is.
type Kind string

const (
	KindPreset Kind = "preset"
	KindFile   Kind = "file"
	KindUser   Kind = "user" // the user's own policy file
	KindFlags  Kind = "flags"
)

// Link is one part of the effective policy.
type Link struct {
	Kind Kind
	Name string // a preset's name or a file's path
	// Trusted is false for a file that was found and is not pinned, and for
	// what it extends: together these only take away.
	Trusted bool
}

// Loaded is the effective policy and where it came from.
type Loaded struct {
	Policy Policy
	Chain  []Link   // in the order they were applied
	Files  []string // every file that was read, and every link that led to one
	// Root is what relative paths in the policy are relative to: the directory
	// of a trusted file that was found, and otherwise Dir. A file that is not
	// trusted cannot move it upwards, and with it what "." grants.
	Root string
	// Project is the file that was found in the working tree, if any, and
	// Status whether it is trusted.
	Project string
	Status  Status
	// Tool is the tool that the named file was made for, if not for Bailey, and
	// Note what Bailey does otherwise.
	Tool string
	Note string
}

// Load finds, reads and combines policies. The first of these is used: the
// named file, the named preset, the nearest bailey.jsonc or bailey.json from
// Dir upwards, the user's own file, the default.
//
// A file that was found, rather than named, came with the code. Unless it is
// pinned in the trust store the effective policy is the intersection of what
// would hold without it and what it says.
func Load(o Options) (*Loaded, error) {
	l, err := newLoader(o)
	if err != nil {
		return nil, err
	}
	out := &Loaded{Root: o.Dir}
	switch {
	case o.Settings != "":
		path := o.Settings
		if !filepath.IsAbs(path) {
			path = filepath.Join(o.Dir, path)
		}
		l.settings = path
		out.Chain, out.Policy, err = l.effective(source{kind: KindFile, name: path})
		out.Tool, out.Note = l.translated.Tool, l.translated.Note
	case o.Preset != "":
		if !isPreset(o.Preset) {
			return nil, unknownPreset(o.Preset)
		}
		out.Chain, out.Policy, err = l.effective(source{kind: KindPreset, name: o.Preset})
		if err == nil && slices.Contains(rulePresets, o.Preset) {
			// By itself it grants nothing that its rules could be about.
			out.Chain = append([]Link{{KindPreset, presetDefault, true}}, out.Chain...)
			out.Policy = Merge(Default(), out.Policy)
		}
	default:
		err = l.search(out)
	}
	if err != nil {
		return nil, err
	}
	if o.Agent != "" {
		out.Chain = append(out.Chain, Link{KindPreset, o.Agent, true})
	}
	if !reflect.ValueOf(o.Overrides).IsZero() {
		out.Chain = append(out.Chain, Link{KindFlags, commandLine, true})
	}
	out.Files = l.files
	return out, nil
}

// commandLine stands for the file of what flags say.
const commandLine = "command line"

func unknownPreset(name string) error {
	hint := didYouMean(name, PresetNames())
	if hint == "" {
		hint = "there are " + strings.Join(PresetNames(), ", ")
	}
	return fmt.Errorf("unknown preset %s; %s", quote(name), hint)
}

func (l *loader) search(out *Loaded) error {
	found, err := FindProject(l.Dir)
	if err != nil {
		return err
	}
	if found == "" || found == l.userFile() {
		out.Chain, out.Policy, err = l.effective(source{kind: KindUser})
		return err
	}
	p, err := l.inspect(found, false)
	if err != nil {
		return err
	}
	out.Project, out.Status = found, p.Status
	if p.Status == Trusted {
		out.Root = filepath.Dir(found)
		out.Chain = p.chain
		out.Policy = l.override(p.Policy)
		return idle(p.Policy, l.Overrides, commandLine)
	}
	if err := p.refuse(); err != nil {
		return err
	}
	chain, user, err := l.effective(source{kind: KindUser})
	if err != nil {
		return err
	}
	out.Chain = append(chain, p.chain...)
	// What flags grant the user granted a moment ago, knowing the project:
	// they hold on both sides.
	out.Policy = Intersect(user, l.override(p.Policy))
	return nil
}

// FindProject returns the nearest policy file in dir or above it, or "".
func FindProject(dir string) (string, error) {
	for {
		var found []string
		for _, name := range []string{"bailey.jsonc", "bailey.json"} {
			path := filepath.Join(dir, name)
			_, err := os.Lstat(path)
			switch {
			case err == nil:
				found = append(found, path)
			case !errors.Is(err, fs.ErrNotExist):
				return "", fmt.Errorf("looking for a policy: %w", err)
			}
		}
		if len(found) == 2 {
			return "", fmt.Errorf("%s: both bailey.jsonc and bailey.json are there; remove one", plain.Text(dir))
		}
		if len(found) == 1 {
			return found[0], nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", nil
		}
		dir = parent
	}
}

// source is something a policy can extend.
type source struct {
	kind Kind
	name string // a preset's name or an absolute path; unused for the user's file
}

// layer is one policy of a chain, before it is merged.
type layer struct {
	source
	real   string // a file's path without symbolic links
	policy Policy
	data   []byte
	found  bool // came with the code: reached from a found file, not through @user
}

type loader struct {
	Options
	files    []string
	fallback string // the preset for a user who has no policy, if not the default

	// settings is the file that was named, and translated what it was if it was
	// made for another tool.
	settings   string
	translated Translated
}

func newLoader(o Options) (*loader, error) {
	if !reflect.ValueOf(o.Overrides).IsZero() {
		o.Overrides.Origins = Origins{}
		o.Overrides.Origins.add(reflect.ValueOf(o.Overrides), "", Pos{File: commandLine})
	}
	l := &loader{Options: o}
	if o.Agent == "" {
		return l, nil
	}
	data, ok := Preset(o.Agent)
	if !ok {
		return nil, unknownPreset(o.Agent)
	}
	own, err := Parse(o.Agent, data)
	if err != nil {
		return nil, err
	}
	if len(own.Extends) > 0 {
		l.fallback = own.Extends[0]
	}
	l.Overrides = Merge(*own, o.Overrides)
	return l, nil
}

func (l *loader) userFile() string { return UserFile(l.ConfigHome) }

// UserFile is where the user's own policy is.
func UserFile(configHome string) string {
	return filepath.Join(configHome, "bailey", "bailey.jsonc")
}

// effective resolves a source that the user stands behind, flags included.
func (l *loader) effective(s source) ([]Link, Policy, error) {
	w := &walk{loader: l}
	if err := w.visit(s, nil, Pos{}); err != nil {
		return nil, Policy{}, err
	}
	chain, p, err := w.fold()
	if err != nil {
		return nil, p, err
	}
	return chain, l.override(p), idle(p, l.Overrides, commandLine)
}

// override applies the flags. Most commands have none.
func (l *loader) override(p Policy) Policy {
	if reflect.ValueOf(l.Overrides).IsZero() {
		return p
	}
	return Merge(p, l.Overrides)
}

// walk collects the layers below one policy: what it extends before itself,
// each once, in the order they are merged.
type walk struct {
	*loader
	layers []layer

	// For a file that was found: the directory it and its files must be in,
	// and the first extends that leads out, which is not followed.
	tree    string
	outside *Error
}

const maxChain = 16

func (w *walk) visit(s source, stack []layer, from Pos) error {
	found := w.tree != "" && s.kind == KindFile && !slices.ContainsFunc(stack, func(l layer) bool { return l.kind == KindUser })
	s, real, err := w.locate(s)
	if err != nil {
		return placed(from, err)
	}
	// The same file by another name is the same file.
	same := func(l layer) bool { return l.source == s || real != "" && l.real == real }
	if slices.ContainsFunc(w.layers, same) {
		return nil
	}
	if i := slices.IndexFunc(stack, same); i >= 0 {
		return placed(from, fmt.Errorf("extends itself: %s", describeCycle(stack[i:], s)))
	}
	if len(stack) >= maxChain {
		return placed(from, fmt.Errorf("extends more than %d deep", maxChain))
	}
	if found && !within(w.tree, real) {
		if w.outside == nil {
			w.outside = placed(from, fmt.Errorf("extends %s, outside its own directory", quote(s.name)))
		}
		return nil
	}
	this := layer{source: s, real: real, found: found}
	if err := w.read(&this); err != nil {
		return placed(from, err)
	}
	for _, next := range this.extends() {
		pos := this.policy.Origins[Origin{"extends", next}]
		below, err := w.resolve(next, filepath.Dir(real))
		if err != nil {
			return placed(pos, err)
		}
		if err := w.visit(below, append(stack, this), pos); err != nil {
			return err
		}
	}
	w.layers = append(w.layers, this)
	return nil
}

// locate gives a source the name it is known by, and the real path of a file.
// A user without a policy file has the default.
func (w *walk) locate(s source) (source, string, error) {
	if s.kind == KindPreset {
		return s, "", nil
	}
	if s.kind == KindUser {
		s.name = w.userFile()
	}
	if _, err := os.Lstat(s.name); s.kind == KindUser && errors.Is(err, fs.ErrNotExist) {
		return source{KindPreset, cmp.Or(w.fallback, presetDefault)}, "", nil
	}
	real, err := realPath(s.name)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; %s", err, w.insteadOf(s.name))
	}
	if s.name == w.userFile() {
		s.kind = KindUser
	}
	return s, real, err
}

// insteadOf is what was meant by the name of a policy file that does not exist.
func (w *walk) insteadOf(name string) string {
	base := filepath.Base(name)
	switch {
	case name != w.settings:
		return "name a file that exists"
	case slices.Contains(PresetNames(), base):
		return "for the preset of that name: -t " + base
	}
	return "name a file that exists, or make one here: bailey config init"
}

func (w *walk) read(this *layer) error {
	switch {
	case this.kind == KindPreset && this.name == presetDefault:
		this.policy = Default()
		return nil
	case this.kind == KindPreset:
		this.data, _ = Preset(this.name)
	default:
		data, info, err := readFile(this.real)
		if err != nil {
			return err
		}
		if this.found {
			if err := checkOwner(this.real, info); err != nil {
				return err
			}
		}
		this.data = data
		for _, path := range []string{this.name, this.real} {
			if !slices.Contains(w.files, path) {
				w.files = append(w.files, path)
			}
		}
	}
	doc, err := ReadDocument(this.name, this.data)
	if err != nil {
		return err
	}
	if w.Translate != nil && this.kind == KindFile && this.name == w.settings {
		if done, err := w.translate(this, doc); done || err != nil {
			return err
		}
	}
	p, err := doc.policy()
	if err == nil {
		err = p.checkAlone()
	}
	if err != nil {
		return err
	}
	this.policy = *p
	return nil
}

// translate reads a file of another tool, which stands for itself: nothing of
// Bailey's own default is below it.
func (w *walk) translate(this *layer, doc *Document) (bool, error) {
	t, err := w.Translate(doc)
	if t == nil || err != nil {
		return false, err
	}
	w.translated = *t
	w.files = append(w.files, t.Files...)
	this.policy = t.Policy
	this.policy.Extends = StringList{presetNone}
	return true, nil
}

func (l layer) extends() []string {
	root := l.kind == KindPreset && (l.name == presetDefault || l.name == presetNone)
	if len(l.policy.Extends) == 0 && !root {
		return []string{presetDefault}
	}
	return l.policy.Extends
}

// resolve says what an entry of extends in a file of dir means.
func (w *walk) resolve(entry, dir string) (source, error) {
	switch {
	case entry == "@user":
		return source{kind: KindUser}, nil
	case strings.HasPrefix(entry, "@"):
		return source{}, fmt.Errorf("unknown name %s in extends; @user is the only one", quote(entry))
	case strings.HasPrefix(entry, "~/"):
		return source{KindFile, filepath.Join(w.Home, entry[2:])}, nil
	case filepath.IsAbs(entry):
		return source{KindFile, filepath.Clean(entry)}, nil
	case strings.Contains(entry, "/") || strings.HasPrefix(entry, ".") ||
		strings.HasSuffix(entry, ".json") || strings.HasSuffix(entry, ".jsonc"):
		return source{KindFile, filepath.Join(dir, entry)}, nil
	}
	if !isPreset(entry) {
		return source{}, fmt.Errorf("%w; a file is written with ./ before it", unknownPreset(entry))
	}
	return source{KindPreset, entry}, nil
}

// fold merges the layers.
func (w *walk) fold() ([]Link, Policy, error) {
	var chain []Link
	var out Policy
	for i, l := range w.layers {
		if i == 0 && l.source == (source{KindPreset, presetDefault}) {
			// Nothing to merge with: the usual start without any file.
			out = l.policy
		} else {
			if err := idle(out, l.policy, l.name); err != nil {
				return nil, out, err
			}
			out = Merge(out, l.policy)
		}
		chain = append(chain, Link{l.kind, l.name, true})
	}
	return chain, out, nil
}

// idle refuses an entry that takes back what nobody granted: most likely it is
// misspelled, and what it meant to take back is still granted.
func idle(base, child Policy, name string) error {
	if reflect.ValueOf(child).IsZero() {
		return nil
	}
	idle := idleRemovals(base, child)
	if len(idle) == 0 {
		return nil
	}
	r := idle[0]
	pos, ok := child.Origins[Origin{r.key, "!" + r.entry}]
	if !ok {
		pos = Pos{File: name}
	}
	return placed(pos, fmt.Errorf("%s: nothing to remove: %s is not inherited", r.key, quote(r.entry)))
}

// placed gives an error the place of the entry that led to it. An error that
// has a place of its own keeps it.
func placed(pos Pos, err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{File: pos.File, Line: pos.Line, Column: pos.Column, Msg: err.Error()}
}

func describeCycle(stack []layer, s source) string {
	var b strings.Builder
	for _, l := range stack {
		b.WriteString(plain.Text(l.name) + " extends ")
	}
	return b.String() + plain.Text(s.name)
}

func within(tree, path string) bool {
	return path == tree || strings.HasPrefix(path, strings.TrimSuffix(tree, "/")+"/")
}

// readFile reads a policy file. Anything but a regular file is refused before
// it is opened: opening a FIFO waits for whoever made it.
func readFile(path string) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a regular file", plain.Text(path))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !os.SameFile(info, opened) {
		return nil, nil, fmt.Errorf("%s was replaced while it was opened", plain.Text(path))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	return data, opened, err
}

// checkOwner refuses a file that someone else could have written or could
// still write. Pinning does not help there: the person who wrote it chose what
// would be pinned.
func checkOwner(path string, info fs.FileInfo) error {
	if uid, ok := fileOwner(info); ok && uid != os.Geteuid() && uid != 0 {
		return fmt.Errorf("%s belongs to another user (uid %d) and is not used; name it with --settings if you mean it", plain.Text(path), uid)
	}
	if info.Mode().Perm()&0o002 != 0 {
		return fmt.Errorf("%s can be written by everyone and is not used; run: chmod o-w %s", plain.Text(path), plain.Word(path))
	}
	return nil
}
