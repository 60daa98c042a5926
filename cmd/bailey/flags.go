package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/hooks"
	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// request is what the arguments ask for.
type request struct {
	dir      string
	settings string
	preset   string
	inline   []string
	runtime  string
	grants   policy.Policy // from --allow-read and its kin

	line    string // -c
	hasLine bool
	shell   string
	login   bool

	monitor bool
	stats   bool
	keep    keepRequest
	overlay overlayRequest
	image   imageRequest
	weaker  bool // --allow-degraded

	debug   bool
	quiet   bool
	help    bool
	version bool

	verb  *verb
	typed bool     // no "--" stood before the words
	agent string   // the first word of the command, if that is an agent's name and no "--" stood before it
	args  []string // of the verb; otherwise the command, or the arguments of -c

	// Flags of verbs.
	json   bool
	yes    bool
	list   bool
	revoke string
	fix    bool
	learn  learnRequest

	forward []string // flags of ws, for the program that knows them
	imports importRequest
	hooks   []hooks.Target
}

// keepRequest is what the flags about resident sandboxes ask for.
type keepRequest struct {
	name   string
	pool   bool
	detach bool
	idle   time.Duration
	all    bool
	follow bool
	once   bool
	grace  time.Duration
}

// learnRequest is what the flags of "bailey learn" ask for.
type learnRequest struct {
	write bool
	save  string
	merge string
	prove bool
}

// flag is one entry of the table that parsing, the help, the completions and
// the manual page are made from.
type flag struct {
	long  string
	short string // one letter, or ""
	value string // what the value is called in the help, or "" if there is none
	text  string
	hint  hint
	set   func(r *request, value string) error
}

// hint says what completes a flag's value.
type hint int

const (
	hintNone hint = iota
	hintFile
	hintPath
	hintPreset
	hintRuntime
	hintVariable
	hintProgram
	hintBox
)

var flags = []flag{
	{"settings", "s", "FILE", "use this policy file; nothing is searched", hintFile, func(r *request, v string) error { return setOnce(&r.settings, v) }},
	{"preset", "t", "NAME", "use this preset; nothing is searched (see: bailey presets)", hintPreset, func(r *request, v string) error { return setOnce(&r.preset, v) }},
	{"", "c", "LINE", "run a line of shell; words after it are its arguments", hintNone, func(r *request, v string) error { r.line, r.hasLine = v, true; return nil }},
	{"shell", "", "PATH", "the shell for -c and for bailey shell (default: bash, else sh)", hintProgram, func(r *request, v string) error { return setOnce(&r.shell, v) }},
	{"login", "", "", "make it a login shell", hintNone, func(r *request, _ string) error { r.login = true; return nil }},
	{"allow-read", "", "PATH", "let the command read this file or directory", hintPath, func(r *request, v string) error { return addExisting(&r.grants.Filesystem.AllowRead, v) }},
	{"allow-write", "", "PATH", "let the command read and write it", hintPath, addWritable},
	{"deny-read", "", "PATH", "hide it", hintPath, func(r *request, v string) error { return addPath(&r.grants.Filesystem.DenyRead, v) }},
	{"deny-write", "", "PATH", "keep it from being changed, whatever else is granted", hintPath, func(r *request, v string) error { return addPath(&r.grants.Filesystem.DenyWrite, v) }},
	{"allow-network", "", "", "open the network to everything", hintNone, func(r *request, _ string) error { r.grants.Network.AllowedDomains = []string{"*"}; return nil }},
	{"expose", "p", "[ADDR:]PORT[:INSIDE]", "lead a port of the host to one of the sandbox; PORT 0 lets the host choose", hintNone, addExposure},
	{"env", "", "NAME[=VALUE]", "let a variable in, or set it", hintVariable, addVariable},
	{"runtime", "", "NAME", "what carries the sandbox (default: auto)", hintRuntime, func(r *request, v string) error { return setOnce(&r.runtime, v) }},
	{"memory", "", "SIZE", "how much memory everything in the sandbox has, for example 512M", hintNone, func(r *request, v string) error { return setSize(&r.grants.Resources.Memory, v) }},
	{"cpu", "", "NUMBER", "how many processors it has, for example 0.5 or 50%", hintNone, func(r *request, v string) error { return setProcessors(&r.grants.Resources.CPU, v) }},
	{"pids", "", "NUMBER", "how many processes and threads it can have at once", hintNone, func(r *request, v string) error { return setNumber(&r.grants.Resources.Pids, v) }},
	{"disk", "", "SIZE", "how much it can write to files of its own", hintNone, func(r *request, v string) error { return setSize(&r.grants.Resources.Disk, v) }},
	{"open-files", "", "NUMBER", "how many files each process can have open", hintNone, func(r *request, v string) error { return setNumber(&r.grants.Resources.OpenFiles, v) }},
	{"timeout", "", "TIME", "end the command after this time, with status 124", hintNone, func(r *request, v string) error { return setTimeout(&r.grants.Resources.Timeout, v) }},
	{"dir", "", "DIR", "run in this directory instead of the current one", hintPath, func(r *request, v string) error { return setOnce(&r.dir, v) }},
	{"policy", "", "JSON", "use this policy, given in place; of several, what all grant", hintNone, func(r *request, v string) error { r.inline = append(r.inline, v); return nil }},
	{"keep", "k", "NAME", "run it in a sandbox that stays; the next command of that name finds it", hintBox, func(r *request, v string) error { return setOnce(&r.keep.name, v) }},
	{"monitor", "m", "", "show what the command asks for and does not get", hintNone, func(r *request, _ string) error { r.monitor = true; return nil }},
	{"debug", "d", "", "say what is done", hintNone, func(r *request, _ string) error { r.debug = true; return nil }},
	{"quiet", "q", "", "say nothing but errors, and that walls are weaker than usual", hintNone, func(r *request, _ string) error { r.quiet = true; return nil }},
	{"version", "v", "", "print the version", hintNone, func(r *request, _ string) error { r.version = true; return nil }},
	{"help", "h", "", "print a short help", hintNone, func(r *request, _ string) error { r.help = true; return nil }},
}

// runFlags mean something only for a command. Verbs have some of the same name.
var runFlags = []flag{
	{"image", "", "IMAGE", "run it in an OCI image: a reference, or the path of a layout or an archive", hintPath, func(r *request, v string) error { return setOnce(&r.image.ref, v) }},
	{"rootfs", "", "DIR", "run it in the root directory of another system", hintPath, func(r *request, v string) error { return setOnce(&r.image.rootfs, v) }},
	{"user", "", "USER", "with --image or --rootfs: be this user inside, USER or USER:GROUP, by number or by name there", hintNone, func(r *request, v string) error { return setOnce(&r.image.user, v) }},
	{"workdir", "", "DIR", "with --image or --rootfs: start in this directory inside", hintNone, func(r *request, v string) error { return setOnce(&r.image.workdir, v) }},
	{"detach", "", "", "with --keep: do not wait for it; see: bailey box logs", hintNone, func(r *request, _ string) error { r.keep.detach = true; return nil }},
	{"idle-timeout", "", "TIME", "with --keep or --pool: how long sandboxes stay without a command (default: 15m)", hintNone, func(r *request, v string) error { return setDuration(&r.keep.idle, v) }},
	{"pool", "", "", "with runc, crun and gvisor: have sandboxes built beforehand, one for each command to come", hintNone, func(r *request, _ string) error { r.keep.pool = true; return nil }},
	{"overlay", "", optionalValue + "keep:NAME]", "keep changes to the project apart and ask at the end what to do with them; with keep:NAME, in a workspace that stays", hintNone, setOverlay},
	{"dry-run", "", "", "show at the end what the command would have changed in the project, which stays as it is", hintNone, setDryRun},
	{"allow-degraded", "", "", "with a runtime that has no broker: let protected names be made that do not exist yet", hintNone, func(r *request, _ string) error { r.weaker = true; return nil }},
	{"stats", "", "", "say at the end what the command has used", hintNone, func(r *request, _ string) error { r.stats = true; return nil }},
	{"json", "", "", "with --monitor or --stats: as JSON, one object a line", hintNone, func(r *request, _ string) error { r.json = true; return nil }},
}

// optionalValue begins the value of a flag that can do without. It only stands
// behind a "=".
const optionalValue = "[="

// takesWord says whether a flag takes the next word for its value.
func (f *flag) takesWord() bool { return f.value != "" && !strings.HasPrefix(f.value, optionalValue) }

// name is the flag as people write it.
func (f *flag) name() string {
	if f.long == "" {
		return "-" + f.short
	}
	return "--" + f.long
}

var errEmpty = errors.New("must not be empty")

func setOnce(to *string, v string) error {
	if v == "" {
		return errEmpty
	}
	*to = v
	return nil
}

func setDuration(to *time.Duration, v string) error {
	d, err := policy.ParseDuration(v)
	if err != nil {
		return errors.New("is no time; for example: 90s, 15m, 8h")
	}
	*to = time.Duration(d)
	return nil
}

func addPath(to *[]string, v string) error {
	if v == "" {
		return errEmpty
	}
	p, err := entryOf(v)
	*to = append(*to, p)
	return err
}

// entryOf returns the entry of a policy for a path or pattern on the command line.
// The directory it is relative to, or begins with because a shell put it there, is
// no pattern, whatever its name looks like.
func entryOf(v string) (string, error) {
	if strings.HasPrefix(v, "~") {
		return absolute(v)
	}
	dir, err := os.Getwd()
	if err != nil {
		return v, err
	}
	rest, inside := strings.CutPrefix(v, strings.TrimSuffix(dir, "/")+"/")
	switch {
	case filepath.IsAbs(v) && !inside:
		return v, nil
	case inside:
		v = rest
	}
	if p, plain := pattern.Plain(v); plain {
		return pattern.Entry(filepath.Join(dir, p)), nil
	}
	return strings.TrimSuffix(pattern.Quote(dir), "/") + "/" + strings.TrimPrefix(v, "./"), nil
}

// addExisting is for grants. In a file, which serves many machines, one may name
// what is not there; on the command line that is a mistake. A name that is there is
// that file and no pattern; a denial is both, or a file that a command made could
// take its meaning away.
func addExisting(to *[]string, v string) error {
	_, err := os.Lstat(v)
	_, plain := pattern.Plain(v)
	switch {
	case strings.HasPrefix(v, "~"):
	case plain && v != "" && errors.Is(err, fs.ErrNotExist):
		return errors.New("does not exist")
	case !plain && err == nil: // shells complete such names
		v = pattern.Quote(v)
	}
	return addPath(to, v)
}

// addWritable also takes a protected name that does not exist: to be allowed to
// make it is what it may be granted for.
func addWritable(r *request, v string) error {
	if spec.IsProtectedName(v) {
		return addPath(&r.grants.Filesystem.AllowWrite, v)
	}
	return addExisting(&r.grants.Filesystem.AllowWrite, v)
}

func addExposure(r *request, v string) error {
	if _, err := policy.ParseExposure(v); err != nil {
		return err
	}
	r.grants.Network.ExposePorts = append(r.grants.Network.ExposePorts, v)
	return nil
}

func addVariable(r *request, v string) error {
	name, value, set := strings.Cut(v, "=")
	if name == "" {
		return errors.New("has no name before the =")
	}
	if !set {
		r.grants.Env.Allow = append(r.grants.Env.Allow, name)
		return nil
	}
	if r.grants.Env.Set == nil {
		r.grants.Env.Set = map[string]string{}
	}
	r.grants.Env.Set[name] = value
	return nil
}

// parse reads the arguments up to the first word of the command. From there on
// they belong to the command and are not looked at.
func parse(args []string) (*request, error) {
	r := &request{}
	for len(args) > 0 {
		word := args[0]
		switch {
		case word == "--":
			r.args = append(r.args, args[1:]...)
			if r.verb != nil && !r.verb.command && !r.hasLine && len(args) > 1 {
				return nil, fmt.Errorf("%s takes no command", r.verb.name)
			}
			return r, nil
		case len(word) > 1 && word[0] == '-':
			used, err := r.flag(args)
			if err != nil {
				return nil, err
			}
			args = args[used:]
		case r.verb == nil && !r.hasLine && findVerb(word) != nil:
			r.verb = findVerb(word)
			args = args[1:]
		case r.verb == nil || r.verb.command || r.hasLine:
			r.args, r.typed = args, true
			if isAgent(word) && !r.hasLine && (r.verb == nil || r.verb.agents) {
				r.agent = word
			}
			return r, nil
		default:
			r.args = append(r.args, word)
			args = args[1:]
			if r.verb.isWhole != nil && r.verb.isWhole(r.args) {
				if len(args) > 0 && args[0] == "--" {
					args = args[1:]
				}
				r.args = append(r.args, args...)
				return r, nil
			}
		}
	}
	return r, nil
}

// flag reads the flag at the front and returns how many words it took.
func (r *request) flag(args []string) (int, error) {
	word := args[0]
	if !strings.HasPrefix(word, "--") {
		return r.shortFlags(args)
	}
	name, value, given := strings.Cut(word[2:], "=")
	f := r.findFlag(func(f *flag) bool { return f.long == name && name != "" })
	if f == nil {
		return 0, r.unknownFlag(word, name)
	}
	switch {
	case f.value == "" && given:
		return 0, fmt.Errorf("--%s takes no value", name)
	case !f.takesWord() || given:
		return 1, r.apply(f, value)
	case len(args) < 2:
		return 0, fmt.Errorf("--%s wants a value: --%s %s", name, name, f.value)
	}
	return 2, r.apply(f, args[1])
}

// shortFlags reads a word of letters. The last may take a value: the rest of
// the word, or the next one.
func (r *request) shortFlags(args []string) (int, error) {
	letters := args[0][1:]
	for i := range len(letters) {
		letter := letters[i : i+1]
		f := r.findFlag(func(f *flag) bool { return f.short == letter })
		if f == nil {
			return 0, r.unknownFlag(args[0], letters)
		}
		if !f.takesWord() {
			if err := r.apply(f, ""); err != nil {
				return 0, err
			}
			continue
		}
		if rest := letters[i+1:]; rest != "" {
			return 1, r.apply(f, rest)
		}
		if len(args) < 2 {
			return 0, fmt.Errorf("-%s wants a value: -%s %s", letter, letter, f.value)
		}
		return 2, r.apply(f, args[1])
	}
	return 1, nil
}

func (r *request) apply(f *flag, value string) error {
	err := f.set(r, value)
	if err != nil && !f.takesWord() {
		return fmt.Errorf("%s: %w", f.name(), err)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", f.name(), printable(value), err)
	}
	return nil
}

func (r *request) findFlag(is func(*flag) bool) *flag {
	for i := range flags {
		if is(&flags[i]) {
			return &flags[i]
		}
	}
	own := r.ownFlags()
	for i := range own {
		if is(&own[i]) {
			return &own[i]
		}
	}
	return nil
}

// ownFlags are those that are not for every verb.
func (r *request) ownFlags() []flag {
	if r.verb == nil {
		return runFlags
	}
	return r.verb.flags
}

func (r *request) unknownFlag(word, name string) error {
	known := r.longNames()
	word, _, _ = strings.Cut(word, "=")
	text := "unknown flag " + printable(word)
	if near := policy.Nearest(name, known); near != "" && len(name) > 1 {
		text += "; did you mean --" + near + "?"
	} else {
		text += "; see: bailey --help"
	}
	return errors.New(text)
}

func (r *request) longNames() []string {
	var names []string
	for _, f := range slices.Concat(flags, r.ownFlags()) {
		if f.long != "" {
			names = append(names, f.long)
		}
	}
	return names
}
