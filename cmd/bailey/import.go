package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/foreign"
	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

// importRequest is what the flags of "bailey import" ask for.
type importRequest struct {
	tool    foreign.Tool
	save    bool
	project bool
}

func importVerb() verb {
	tool := func(name string, t foreign.Tool) flag {
		return flag{name, "", "", "the file has settings of " + string(t), hintNone, func(r *request, _ string) error {
			if r.imports.tool != "" {
				return errors.New("one file is of one tool; leave out the others")
			}
			r.imports.tool = t
			return nil
		}}
	}
	return verb{
		name: "import", args: "[--claude | --fence | --srt | --greywall] [FILE] [--save [--project]]",
		text: "make a policy of another tool's settings", run: runImport,
		flags: []flag{
			tool("claude", foreign.ClaudeCode), tool("fence", foreign.Fence), tool("srt", foreign.SandboxRuntime), tool("greywall", foreign.Greywall),
			{"save", "", "", "write it to your own policy, which must not exist yet", hintNone, func(r *request, _ string) error { r.imports.save = true; return nil }},
			{"project", "", "", "with --save: write it to bailey.jsonc here", hintNone, func(r *request, _ string) error { r.imports.project = true; return nil }},
		},
	}
}

// runImport prints a policy that means what another tool's settings mean, and
// says on stderr what of them it could not carry.
func runImport(r *request) int {
	if len(r.args) > 1 || len(r.args) == 0 && r.imports.tool == "" || r.imports.project && !r.imports.save {
		return fail(r.usage())
	}
	facts, err := host.New()
	if err != nil {
		return fail(err)
	}
	o := foreign.Options{
		Home: facts.Caller.Home, Dir: facts.Caller.Dir, ConfigHome: sandbox.ConfigHome(facts.Caller.Home), Lasting: true,
	}
	doc, err := openSettings(r, o)
	if err != nil {
		return fail(err)
	}
	t, err := foreign.Read(r.imports.tool, doc, o)
	if err != nil {
		return fail(err)
	}
	text := t.Render(doc.Name())
	if _, err := policy.Parse("the imported policy", text); err != nil {
		return fail(fmt.Errorf("%w; please report this, with the file", err))
	}
	deliver := func() int { return answer(string(text)) }
	if r.imports.save {
		deliver = func() int { return saveImport(r, o, text) }
	}
	if status := deliver(); status != 0 {
		return status
	}
	tellImport(r, t)
	return 0
}

// openSettings opens the file that is named, or the one the tool would use, and
// settles which tool it is of.
func openSettings(r *request, o foreign.Options) (*policy.Document, error) {
	places := foreign.Places(r.imports.tool, o)
	if len(r.args) == 1 {
		path, err := filepath.Abs(r.args[0])
		if err != nil {
			return nil, err
		}
		places = []string{path}
	}
	for i, path := range places {
		doc, err := policy.OpenDocument(path)
		switch absent := errors.Is(err, fs.ErrNotExist); {
		case absent && i < len(places)-1:
			continue
		case absent && len(r.args) == 0:
			return nil, fmt.Errorf("%s has no settings where it looks for them, in %s; name the file: bailey import --… FILE",
				r.imports.tool, printable(strings.Join(places, ", ")))
		case absent:
			return nil, fmt.Errorf("%s: no such file or directory; name a file with settings of %s", printable(path), cmp.Or(string(r.imports.tool), "another tool"))
		}
		if err == nil && r.imports.tool == "" {
			if r.imports.tool = foreign.Recognise(doc); r.imports.tool == "" {
				err = errors.New(printable(path) + ": it does not tell which tool it is of; say --claude, --fence, --srt or --greywall")
			}
		}
		return doc, err
	}
	return nil, r.usage()
}

// saveImport writes a new file: what is there was meant by somebody.
func saveImport(r *request, o foreign.Options, text []byte) int {
	file, next := policy.UserFile(o.ConfigHome), "it holds where no project has a policy of its own"
	if r.imports.project {
		file, next = filepath.Join(o.Dir, "bailey.jsonc"), "look at it, then let it grant with: bailey trust"
		if _, err := os.Lstat(filepath.Join(o.Dir, "bailey.json")); err == nil {
			return fail(errors.New("bailey.json is there already"))
		}
	} else if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fail(err)
	}
	err := writeNew(file, text)
	if errors.Is(err, fs.ErrExist) {
		err = errors.New(printable(file) + " is there already; without --save the policy is printed")
	}
	if err != nil {
		return fail(err)
	}
	say(tagNote, "wrote "+printable(file)+"; "+next)
	return 0
}

// writeNew writes a file that is not there yet.
func writeNew(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// tellImport lists what was not carried, restrictions first.
func tellImport(r *request, t *foreign.Translation) {
	for _, restricts := range []bool{true, false} {
		for _, n := range t.Lost {
			if n.Restricts == restricts {
				say(tagWarning, "not carried: "+n.String())
			}
		}
	}
	if r.settledQuiet() {
		return
	}
	for _, n := range t.Idle {
		say(tagNote, "no effect here: "+n.String())
	}
	for _, text := range t.Stricter {
		say(tagNote, "stricter here: "+text)
	}
}
