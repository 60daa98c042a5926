package learn

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Options are what a proposal is made for.
type Options struct {
	Home    string // without links; "" if there is none
	Project string // what relative paths of the policy are relative to; "" if that is not known
	Files   Files
	// Granted are paths that a person has granted to this command already. What
	// they hold is proposed, whatever it looks like.
	Granted []string
	// Contacts are hosts that the command wanted to reach, Rules those of the
	// policy's network, and Groups what hosts may be proposed as.
	Contacts []Contact
	Rules    []config.Rule
	Groups   []Group
}

// Proposal is what a policy would have to grant besides the one that was judged
// by. Paths are absolute.
type Proposal struct {
	Read, Write []Grant
	// Private are caches that the command can read and wants to write. What is
	// written there is not kept.
	Private []Grant
	// Hide are secrets inside of what is granted.
	Hide []Grant
	// Hosts are what has to be reached.
	Hosts []Reach
	// Left is what was needed and is not proposed.
	Left []Remark
}

// Grant is one entry of a list of a policy.
type Grant struct {
	Path string
	For  []string // the programs that needed it, sorted
	Note string   // what it is, if that is known
}

// Remark says why something is not proposed.
type Remark struct {
	Why  Why
	Path string // or, of Unreached, the host
	For  []string
	Rule string // of Denied and of Unreached: the reason
}

// Why is a reason not to propose something.
type Why int

// In the order in which they are shown.
const (
	Secret    Why = iota // it looks like a secret
	Denied               // a rule of the policy forbids it
	Wide                 // only a directory that holds far more would do
	Cache                // a tool's own cache
	Looked               // the command only looked whether it is there
	Vain                 // the host refuses it as well
	Unreached            // a host that cannot be granted as a whole
)

// several is how many things right in a directory stand for the directory, and
// many how many of its directories with something anywhere in them.
const (
	several = 3
	many    = 8
)

// Propose folds needs into a proposal. In what it returns:
//   - every need is covered by a grant, of writing if it is a change, or has a
//     remark;
//   - a grant is the path of a need, the directory of the version manager around
//     one, or a directory in which several needed or granted things lie, and
//     never one that isWide;
//   - what looks like a secret is covered by no grant, unless a directory was
//     needed as such, and then it is in Hide;
//   - every contact is covered by a host or a group, or has a remark.
//
// It is the same for the same needs and contacts in any order.
func Propose(needs []Need, o Options) Proposal {
	b := &builder{Options: o, left: map[remarkKey]programs{}}
	var looks []Need
	for i := range needs {
		if n := &needs[i]; n.isLook() && n.Denied == "" && !b.isSecret(n) {
			looks = append(looks, *n)
		} else {
			b.take(n)
		}
	}
	var p Proposal
	p.Write = b.grants(&b.write)
	b.read.dropBelow(p.Write)
	p.Read = b.grants(&b.read)
	p.Private = b.grants(&b.private)
	p.Hide = b.hide(p)
	for i := range looks {
		if n := &looks[i]; !covered(p.Read, n.Grant) && !covered(p.Write, n.Grant) {
			b.takeLook(n)
		}
	}
	p.Hosts = b.reaches()
	p.Left = slices.DeleteFunc(b.remarks(), func(r Remark) bool { return r.Why == Secret && covered(p.Hide, r.Path) })
	return p
}

// programs is a set of names.
type programs map[string]bool

func (p programs) sorted() []string {
	var out []string
	for name := range p {
		if name != "" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

type remarkKey struct {
	why  Why
	path string
	rule string
}

type builder struct {
	Options
	read, write tree
	private     tree
	left        map[remarkKey]programs
	secrets     []string // that were asked for
}

func (b *builder) remark(why Why, path, rule, program string) {
	key := remarkKey{why, path, rule}
	if b.left[key] == nil {
		b.left[key] = programs{}
	}
	b.left[key][program] = true
}

// take puts a need where it belongs.
func (b *builder) take(n *Need) {
	if b.isSecret(n) {
		b.secrets = append(b.secrets, n.Grant)
		b.remark(Secret, n.Path, "", n.Program)
		return
	}
	if n.Denied != "" {
		b.remark(Denied, n.Path, n.Denied, n.Program)
		return
	}
	if n.Vain {
		b.remark(Vain, n.Path, "", n.Program)
		return
	}
	if dir, name := managerOf(b.Home, n.Grant); dir != "" && !n.Change {
		b.read.add(dir, n.Program, name)
		return
	}
	if cache := cacheOf(b.Home, n.Grant); cache != "" {
		b.takeCache(n, cache)
		return
	}
	// A directory that comes into being in ~/.cache is a cache, too.
	if cache := cacheOf(b.Home, n.Path); cache != "" && n.Change {
		b.remark(Cache, cache, "", n.Program)
		return
	}
	at, dir := nameable(n.Grant, n.Dir)
	if isWide(b.Home, b.Project, at) && dir {
		b.remark(Wide, n.Path, "", n.Program)
		return
	}
	if n.Change {
		b.write.add(at, n.Program, "")
		return
	}
	b.read.add(at, n.Program, "")
}

// takeCache leaves a cache out: where it is not granted at all, the command has an
// empty one in memory. One that it can only read most tools cannot do with.
func (b *builder) takeCache(n *Need, cache string) {
	private := cache
	if spec.Covers(cache, n.Around) {
		private = n.Around
	}
	if file, ok := b.Files.Look(private); n.Change && n.ReadOnly && ok && file.Dir {
		b.private.add(private, n.Program, "")
		return
	}
	b.remark(Cache, cache, "", n.Program)
}

// isSecret looks at the name that was asked for and, if that is another, at the
// one that would be granted. A directory is not a secret for a name in it that
// comes or goes, unless it is one itself.
func (b *builder) isSecret(n *Need) bool {
	if coversAny(b.Granted, n.Path) {
		return false
	}
	return isSecret(b.Home, n.Grant) || isSecret(b.Home, n.Path)
}

// takeLook notes what the command looked at and did without. Directories are
// looked at by whoever walks through them.
func (b *builder) takeLook(n *Need) {
	cache := cacheOf(b.Home, n.Grant)
	switch {
	case cache != "":
		b.remark(Cache, cache, "", n.Program)
	case !n.Dir:
		b.remark(Looked, n.Path, "", n.Program)
	}
}

// nameable returns the path, or the nearest directory above it, that a policy
// can name: what is no text has no place in one.
func nameable(p string, dir bool) (string, bool) {
	for !isNameable(p) {
		p, dir = path.Dir(p), true
	}
	return p, dir
}

func isNameable(p string) bool {
	return p == "/" || utf8.ValidString(p) && strings.IndexFunc(p, unicode.IsControl) < 0
}

func (b *builder) remarks() []Remark {
	var out []Remark
	for key, who := range b.left {
		out = append(out, Remark{key.why, key.path, who.sorted(), key.rule})
	}
	slices.SortFunc(out, func(x, y Remark) int {
		return cmp.Or(cmp.Compare(x.Why, y.Why), strings.Compare(x.Path, y.Path), strings.Compare(x.Rule, y.Rule))
	})
	return out
}

// hide lists secrets in the directories that are granted: those that were asked
// for, those that are well known, and those whose names are read.
func (b *builder) hide(p Proposal) []Grant {
	granted := slices.Concat(p.Read, p.Write)
	var paths []string
	add := func(secret string) {
		if covered(granted, secret) && !coversAny(b.Granted, secret) && !slices.Contains(paths, secret) {
			paths = append(paths, secret)
		}
	}
	for _, s := range b.secrets {
		add(s)
	}
	for _, s := range SecretPaths(b.Home) {
		if _, ok := b.Files.Look(s); ok {
			add(s)
		}
	}
	for _, g := range granted {
		if g.Note != "" {
			continue // a version manager's
		}
		for _, name := range b.Files.Names(g.Path) {
			if isSecretName(strings.ToLower(name)) {
				add(path.Join(g.Path, name))
			}
		}
	}
	slices.Sort(paths)
	var out []Grant
	for _, p := range paths {
		out = append(out, Grant{Path: p, Note: "looks like a secret"})
	}
	return out
}

func covered(grants []Grant, p string) bool {
	return slices.ContainsFunc(grants, func(g Grant) bool { return spec.Covers(g.Path, p) })
}
