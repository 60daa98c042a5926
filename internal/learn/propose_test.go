package learn

import (
	"fmt"
	"math/rand/v2"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// wants turns lines such as "read cat /a/b", "write sh /a/" and "look ls /c" into
// needs. A directory ends in a slash.
func wants(lines ...string) []Need {
	var needs []Need
	for _, line := range lines {
		f := strings.SplitN(line, " ", 3)
		n := Need{Call: Call{Program: f[1], Op: "open", Path: path.Clean(f[2])}, Grant: path.Clean(f[2]), Dir: strings.HasSuffix(f[2], "/")}
		switch f[0] {
		case "look":
			n.Op = "stat"
		case "write":
			n.Write, n.Change = true, true
		case "vain":
			n.Write, n.Change, n.Vain = true, true, true
		case "denied":
			n.Denied = "filesystem.denyRead x"
		}
		needs = append(needs, n)
	}
	return needs
}

func TestProposalsAreSmall(t *testing.T) {
	files := newHost("/home/u/proj/.env", "/home/u/mixed/secrets.yaml", "/srv/data/token.txt")
	for _, c := range []struct {
		name  string
		needs []Need
		want  string // of the policy, without its first lines
	}{
		{"nothing", nil, ""},
		{"one file", wants("read cat /home/u/a/b"), "allowRead ~/a/b (cat)"},
		{"two files stay two", wants("read cat /home/u/a/b", "read cat /home/u/a/c"), "allowRead ~/a/b (cat); allowRead ~/a/c (cat)"},
		{"several are their directory", wants("read cat /home/u/a/b", "read sed /home/u/a/c", "read cat /home/u/a/d"), "allowRead ~/a (cat, sed)"},
		{
			"folded directories fold again",
			wants("read x /srv/p/a/1", "read x /srv/p/a/2", "read x /srv/p/a/3", "read x /srv/p/b", "read x /srv/p/c"),
			"allowRead /srv/p (x)",
		},
		{"never the home directory", wants("read x /home/u/1", "read x /home/u/2", "read x /home/u/3"), "allowRead ~/1 (x); allowRead ~/2 (x); allowRead ~/3 (x)"},
		{"never /etc", wants("read x /etc/1", "read x /etc/2", "read x /etc/3"), "allowRead /etc/1 (x); allowRead /etc/2 (x); allowRead /etc/3 (x)"},
		{"listing the home directory", wants("read ls /home/u/"), "wide ~"},
		{"a file made in the home directory", []Need{{Call: Call{Program: "sh", Op: "create", Path: "/home/u/.rc", Write: true}, Grant: "/home/u", Dir: true, Change: true}}, "wide ~/.rc (sh)"},
		{"never what holds the project", wants("read x /home/u/src/1", "read x /home/u/src/2", "read x /home/u/src/3"), "allowRead ~/src/1 (x); allowRead ~/src/2 (x); allowRead ~/src/3 (x)"},
		{"writing covers reading", wants("read x /srv/o/a", "write x /srv/o/"), "allowWrite /srv/o (x)"},
		{"reading around writing", wants("read x /srv/o/", "write x /srv/o/log/"), "allowRead /srv/o (x); allowWrite /srv/o/log (x)"},
		{"in the project", wants("write x /home/u/src/app/out/"), "allowWrite out (x)"},
		{"what the user may not write", wants("vain touch /etc/hosts"), "vain /etc/hosts (touch)"},
		{"a secret", wants("read aws /home/u/.aws/credentials"), "secret ~/.aws/credentials (aws)"},
		{"a looked-for secret", wants("look aws /home/u/.aws/credentials"), "secret ~/.aws/credentials (aws)"},
		{"a secret keeps its directory from folding", wants("read x /home/u/proj/a", "read x /home/u/proj/b", "read x /home/u/proj/c"), "allowRead ~/proj/a (x); allowRead ~/proj/b (x); allowRead ~/proj/c (x)"},
		{
			"also one further down that was asked for",
			wants("read x /srv/q/a", "read x /srv/q/b", "read x /srv/q/c", "look x /srv/q/deep/id_rsa"),
			"allowRead /srv/q/a (x); allowRead /srv/q/b (x); allowRead /srv/q/c (x); secret /srv/q/deep/id_rsa (x)",
		},
		{"a secret in a directory that is needed", wants("read ls /home/u/mixed/"), "allowRead ~/mixed (ls); denyRead ~/mixed/secrets.yaml"},
		{"a secret that was asked for, in one", wants("read ls /srv/data/", "read cat /srv/data/token.txt"), "allowRead /srv/data (ls); denyRead /srv/data/token.txt"},
		{"a cache", wants("read pip /home/u/.cache/pip/a/b", "write pip /home/u/.cache/pip/c"), "cache ~/.cache/pip (pip)"},
		{"a version manager", wants("read node /home/u/.nodenv/versions/20/bin/node", "read npm /home/u/.nodenv/versions/20/lib/x.js"), "allowRead ~/.nodenv (node, npm) from nodenv"},
		{"a denial", wants("denied cat /etc/x"), "denied /etc/x (cat)"},
		{"a look", wants("look sh /srv/a", "look sh /srv/dir/"), "looked /srv/a (sh)"},
		{"a look at what is granted", wants("look sh /srv/a/b", "read sh /srv/a/"), "allowRead /srv/a (sh)"},
		{"a name that would be a pattern", wants("read x /srv/[id]/page*.js"), `allowRead /srv/\[id]/page\*.js (x)`},
		{"such a name further down", wants("read x /srv/web/[id]/page.js"), `allowRead /srv/web/\[id]/page.js (x)`},
		{"many directories", wants(numbered("read x /srv/p/%d/deep/file", many)...), "allowRead /srv/p (x)"},
		{"fewer directories", wants(numbered("read x /srv/p/%d/deep/file", 2)...), "allowRead /srv/p/0/deep/file (x); allowRead /srv/p/1/deep/file (x)"},
	} {
		o := Options{Home: "/home/u", Project: "/home/u/src/app", Files: files}
		p := Propose(c.needs, o)
		if got := summarise(p, Names{o.Home, o.Project}); got != c.want {
			t.Errorf("%s: got  %s\nwant %s", c.name, got, c.want)
		}
	}
}

func numbered(format string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(format, i))
	}
	return out
}

// summarise is a proposal in one line.
func summarise(p Proposal, n Names) string {
	n.Home, n.Project = "/home/u", "/home/u/src/app"
	var out []string
	add := func(kind, path string, who []string, note string) {
		text := kind + " " + n.Of(path)
		if path == n.Home {
			text = kind + " ~"
		} else if len(who) > 0 {
			text += " (" + strings.Join(who, ", ") + ")"
		}
		if note != "" {
			text += " from " + note
		}
		out = append(out, text)
	}
	for _, l := range p.files() {
		for _, g := range l.grants {
			if l.key == "denyRead" {
				g.Note = ""
			}
			add(l.key, g.Path, g.For, g.Note)
		}
	}
	for _, r := range p.Left {
		add([]string{"secret", "denied", "wide", "cache", "looked", "vain"}[r.Why], r.Path, r.For, "")
	}
	return strings.Join(out, "; ")
}

// randomNeeds are about a small tree, so that much of it is met.
func randomNeeds(r *rand.Rand) []Need {
	roots := []string{"/srv/data", "/home/u", "/home/u/.config", "/etc", "/home/u/src", "/opt/x", "/home/u/.cache", "/home/u/.nodenv", "/var/lib"}
	names := []string{"a", "b", "c", "d", "e", ".env", "secrets", "id_rsa", "x.key", "[id]", ".ssh"}
	var needs []Need
	for range 1 + r.IntN(40) {
		p := roots[r.IntN(len(roots))]
		for range 1 + r.IntN(3) {
			p += "/" + names[min(r.IntN(len(names)), r.IntN(len(names)))]
		}
		n := Need{Call: Call{Program: "p" + names[r.IntN(3)], Op: "open", Path: p}, Grant: p, Dir: r.IntN(6) == 0}
		switch r.IntN(6) {
		case 0:
			n.Op = "stat"
		case 1, 2:
			n.Write, n.Change = true, true
		}
		needs = append(needs, n)
	}
	return needs
}

func TestProposalGrantsWhatIsNeededAndNothingElse(t *testing.T) {
	for seed := range uint64(testenv.Count(500, 100000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		needs := randomNeeds(r)
		o := Options{Home: "/home/u", Project: "/home/u/src/app", Files: newHost()}
		p := Propose(needs, o)
		checkNeeds(t, seed, needs, p, o)
		checkGrants(t, seed, needs, p, o)
		r.Shuffle(len(needs), func(i, j int) { needs[i], needs[j] = needs[j], needs[i] })
		if again := Propose(needs, o); !reflect.DeepEqual(again, p) {
			t.Errorf("seed %d: another order, another proposal:\n%+v\n%+v", seed, p, again)
		}
		if t.Failed() {
			return
		}
	}
}

// checkNeeds checks that every need is granted or remarked on.
func checkNeeds(t *testing.T, seed uint64, needs []Need, p Proposal, o Options) {
	t.Helper()
	for i := range needs {
		n := &needs[i]
		granted := covered(p.Write, n.Grant) || !n.Change && covered(p.Read, n.Grant)
		remarked := covered(p.Hide, n.Grant) || slices.ContainsFunc(p.Left, func(r Remark) bool { return spec.Covers(r.Path, n.Path) })
		switch {
		case isSecret(o.Home, n.Grant):
			if granted && !covered(p.Hide, n.Grant) {
				t.Errorf("seed %d: the secret %s is granted by %+v", seed, n.Grant, p)
			}
			if !remarked {
				t.Errorf("seed %d: nothing is said about the secret %s", seed, n.Grant)
			}
		case !granted && !remarked && !(n.isLook() && n.Dir):
			t.Errorf("seed %d: %+v is neither granted nor remarked on in %+v", seed, n, p)
		}
	}
}

// checkGrants checks that every grant is one that the rules of folding allow.
func checkGrants(t *testing.T, seed uint64, needs []Need, p Proposal, o Options) {
	t.Helper()
	for _, list := range []struct {
		grants []Grant
		write  bool
	}{{p.Read, false}, {p.Write, true}} {
		for _, g := range list.grants {
			var exact bool
			inside := map[string]bool{}
			holdsSecret := false
			for i := range needs {
				n := &needs[i]
				holdsSecret = holdsSecret || isSecret(o.Home, n.Grant) && spec.Covers(g.Path, n.Grant)
				if n.isLook() || n.Change != list.write || isSecret(o.Home, n.Grant) {
					continue
				}
				at, _ := nameable(n.Grant, n.Dir)
				manager, _ := managerOf(o.Home, n.Grant)
				exact = exact || at == g.Path || manager == g.Path
				if rest, ok := below(g.Path, n.Grant); ok {
					first, _, _ := strings.Cut(rest, "/")
					inside[first] = true
				}
			}
			if !exact && (len(inside) < several || holdsSecret || isWide(o.Home, o.Project, g.Path)) {
				t.Errorf("seed %d: nothing calls for %s (write %v), with %d things in it", seed, g.Path, list.write, len(inside))
			}
		}
	}
}

func TestCacheThatCanOnlyBeReadBecomesPrivate(t *testing.T) {
	change := func(path, around string) Need {
		return Need{
			Call: Call{Program: "npm", Op: "create", Path: path + "/x", Write: true}, Grant: path, Dir: true, Change: true,
			ReadOnly: around != "", Around: around,
		}
	}
	for _, c := range []struct {
		name  string
		needs []Need
		want  string
	}{
		{"a part of it", []Need{change("/home/u/.npm/_cacache/tmp", "/home/u/.npm/_cacache"), change("/home/u/.npm/_cacache/a/b", "/home/u/.npm/_cacache")}, "privateWrite ~/.npm/_cacache (npm)"},
		{"what holds more", []Need{change("/home/u/.npm/_cacache/tmp", "/home")}, "privateWrite ~/.npm (npm)"},
		{"one that is not granted", []Need{change("/home/u/.npm/_logs", "")}, "cache ~/.npm (npm)"},
		{"a file", []Need{change("/home/u/.cargo/.package-cache", "/home/u/.cargo/.package-cache")}, "cache ~/.cargo/.package-cache (npm)"},
		{"no cache", []Need{change("/home/u/data", "/home/u/data")}, "allowWrite ~/data (npm)"},
	} {
		files := newHost("/home/u/.npm/_cacache/", "/home/u/.cargo/.package-cache")
		p := Propose(c.needs, Options{Home: "/home/u", Files: files})
		if got := summarise(p, Names{}); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestWhatAPersonGrantedIsNoSecret(t *testing.T) {
	files := newHost("/home/u/.npmrc", "/srv/data/token.txt", "/srv/data/other.key")
	p := Propose(wants("read npm /home/u/.npmrc", "look npm /home/u/.aws/credentials", "read ls /srv/data/"),
		Options{Home: "/home/u", Files: files, Granted: []string{"/home/u/.npmrc", "/srv/data/token.txt"}})
	const want = "allowRead ~/.npmrc (npm); allowRead /srv/data (ls); denyRead /srv/data/other.key; secret ~/.aws/credentials (npm)"
	if got := summarise(p, Names{}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
