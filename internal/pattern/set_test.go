package pattern

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func mustSet(t testing.TB, texts ...string) *Set {
	t.Helper()
	s, err := NewSet(texts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFirstInOrderDecides(t *testing.T) {
	s := mustSet(t,
		"/p/**/keep/*.pem", // 0
		"/p/a/b",           // 1
		"/p/**/*.pem",      // 2
		"/p/a",             // 3
		"/p/**/a",          // 4
		"/p/a/b/c",         // 5
		"/p/*/b",           // 6
		"/p/a/b",           // 7
		"/q/{x,**/y}",      // 8
		"/q/x",             // 9
	)
	for _, c := range []struct {
		path string
		all  []int
	}{
		{"/", nil},
		{"/p", nil},
		{"/p/a", []int{3, 4}},
		{"/p/a/b", []int{1, 3, 4, 6, 7}},
		{"/p/a/b/c/d", []int{1, 3, 4, 5, 6, 7}},
		{"/p/x/b", []int{6}},
		{"/p/x.pem", []int{2}},
		{"/p/a/x.pem", []int{2, 3, 4}},
		{"/p/a/keep/x.pem", []int{0, 2, 3, 4}},
		{"/p/x/a", []int{4}},
		{"/q/x", []int{8, 9}},
		{"/q/a/b/y/z", []int{8}},
		{"/r/a/b", nil},
	} {
		want := -1
		if len(c.all) > 0 {
			want = c.all[0]
		}
		if got := s.First(c.path); got != want {
			t.Errorf("First(%q) = %d, want %d", c.path, got, want)
		}
		if got := slices.Collect(s.Matches(c.path)); !slices.Equal(got, c.all) {
			t.Errorf("Matches(%q) = %v, want %v", c.path, got, c.all)
		}
	}
}

func TestSimilarGlobsStayApart(t *testing.T) {
	s := mustSet(t, "/p/[a]", "/p/[!a]", "/p/[a-b]", "/p/[a-c]", `/p/\*?`, "/p/*?", "/p/[!-z]", `/p/[\!-z]`)
	for _, c := range []struct {
		path string
		want []int
	}{
		{"/p/a", []int{0, 2, 3, 5, 6, 7}},
		{"/p/b", []int{1, 2, 3, 5, 6, 7}},
		{"/p/c", []int{1, 3, 5, 6, 7}},
		{"/p/*x", []int{4, 5}},
		{"/p/z", []int{1, 5, 7}},
	} {
		if got := slices.Collect(s.Matches(c.path)); !slices.Equal(got, c.want) {
			t.Errorf("Matches(%q) = %v, want %v", c.path, got, c.want)
		}
	}
}

func TestUncleanSlashesHideNothing(t *testing.T) {
	s := mustSet(t, "/p/a", "/q/**/*.b")
	for path, want := range map[string]int{"//p///a": 0, "/p/a/": 0, "/q//x.b": 1, "p/a": 0, "//": -1, "": -1} {
		if got := s.First(path); got != want {
			t.Errorf("First(%q) = %d, want %d", path, got, want)
		}
	}
}

func TestMatchesStopsWhenAsked(t *testing.T) {
	for i := range mustSet(t, "/a", "/**", "/*").Matches("/a") {
		if i != 0 {
			t.Fatalf("went on to %d", i)
		}
		break
	}
}

func TestEmptySetMatchesNothing(t *testing.T) {
	s := mustSet(t)
	if got := s.First("/a"); got != -1 {
		t.Errorf("First = %d, want -1", got)
	}
	if s.Below("/") {
		t.Error("something could match below /")
	}
	if !s.SameBelow("/a", "/b/c") {
		t.Error("a rename makes a difference")
	}
}

func TestBadPatternOfSetIsNamedByIndex(t *testing.T) {
	_, err := NewSet([]string{"/a", "/b", "/c/[", "d"})
	var bad *Error
	if !errors.As(err, &bad) || bad.Text != "/c/[" || !strings.HasPrefix(err.Error(), "pattern 2: ") {
		t.Errorf("got %v", err)
	}
}

func TestNamedIsTheShortestThatMatches(t *testing.T) {
	s := mustSet(t, "/p/.git/hooks", "/p/**/.env", "/**", "/p/{a/b,a}", "/p/**/a/**/b")
	for _, c := range []struct {
		i          int
		path, want string
	}{
		{0, "/p/.git/hooks", "/p/.git/hooks"},
		{0, "/p/.git/hooks/x/y", "/p/.git/hooks"},
		{0, "/p/.git", ""},
		{1, "/p/a/.env/b/.env", "/p/a/.env"},
		{2, "/p", "/"},
		{2, "/", "/"},
		{3, "/p/a/b/c", "/p/a"},
		{4, "/p/x/a/y/b/b/z", "/p/x/a/y/b"},
	} {
		if got := s.Named(c.i, c.path); got != c.want {
			t.Errorf("Named(%d, %q) = %q, want %q", c.i, c.path, got, c.want)
		}
	}
}

func TestSameBelow(t *testing.T) {
	s := mustSet(t, "/p/.vscode/x", "/p/.git/hooks", "/p/**/.env", "/p/**/k/*.pem", "/p/*/deep/x", "/q/a", "/p/lib/{a,b}",
		"/t/**/x/**/k/1", "/t/**/y/**/k/2")
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"/p/a", "/p/a", true},
		{"/p/a", "/p/b", true},         // below both, the same is left of every pattern
		{"/p/a/b", "/p/b/c/d", true},   // only the loops are left
		{"/p/a/b", "/p/b", false},      // /p/b/deep/x
		{"/p/.vscode", "/p/a", false},  // /p/.vscode/x
		{"/p/a", "/p/.git", false},     // /p/.git/hooks
		{"/p/a", "/p/lib", false},      // /p/lib/a
		{"/p/a/b", "/p/a/k", false},    // /p/a/k/x.pem
		{"/p/a/k", "/p/b/k", true},     // in both
		{"/p/a/b", "/p/a/.env", false}, // all of it matches
		{"/p/a/.env", "/p/b/.env", true},
		{"/p/a", "/r/a", false}, // /p/a/.env
		{"/r/a", "/s", true},    // nothing matches there
		{"/q/a/b", "/q/a/c/d", true},
		{"/q/a", "/q/b", false},
		{"/q", "/r", false},
		{"/t/x/y/k", "/t/y/x/k", true}, // in whatever order
		{"/t/x", "/t/y", false},
	} {
		if got := s.SameBelow(c.a, c.b); got != c.want {
			t.Errorf("SameBelow(%q, %q) = %v, want %v", c.a, c.b, got, c.want)
		}
		if got := s.SameBelow(c.b, c.a); got != c.want {
			t.Errorf("SameBelow(%q, %q) = %v, want %v", c.b, c.a, got, c.want)
		}
	}
}

func TestBelow(t *testing.T) {
	for _, c := range []struct {
		pattern    string
		could, not []string
	}{
		{"/p/.git/hooks", []string{"/", "/p", "/p/.git", "/p/.git/hooks", "/p/.git/hooks/a"}, []string{"/q", "/p/a", "/p/.git/x"}},
		{"/p/**/.env", []string{"/", "/p", "/p/a/b"}, []string{"/q", "/q/p"}},
		{"/p/*/x", []string{"/p", "/p/a", "/p/a/x"}, []string{"/p/a/b"}},
		{"/**/x", []string{"/", "/a/b"}, nil},
		{"/", []string{"/", "/a"}, nil},
	} {
		s := mustSet(t, c.pattern)
		for _, dir := range c.could {
			if !s.Below(dir) {
				t.Errorf("%q cannot match below %q", c.pattern, dir)
			}
		}
		for _, dir := range c.not {
			if s.Below(dir) {
				t.Errorf("%q could match below %q", c.pattern, dir)
			}
		}
	}
}

// usualSet is of the kind that sandboxes have: names directly below the project
// and below the home directory, and globs.
func usualSet(t testing.TB) *Set {
	t.Helper()
	return mustSet(t, usualTexts()...)
}

func usualTexts() []string {
	var texts []string
	for i := range 45 {
		texts = append(texts, fmt.Sprintf("/home/user/project/.setting%02d", i))
	}
	for i := range 15 {
		texts = append(texts, fmt.Sprintf("/home/user/.config%02d", i))
	}
	for _, glob := range []string{
		"**/.env", "**/.env.*", "**/*.pem", "**/*.key", "**/id_rsa*", "**/.git/hooks", "**/.git/config", "**/secrets/**",
		"**/*.p12", "**/.npmrc", "**/credentials*.json", "*/local.properties", "**/[Ss]ecret?.txt", "config/*.{yml,yaml}", "**/.aws",
	} {
		texts = append(texts, "/home/user/project/"+glob)
	}
	return texts
}

// wideSet has more nodes than fit on the stack.
func wideSet(t testing.TB) *Set {
	t.Helper()
	var texts []string
	for i := range 200 {
		texts = append(texts, fmt.Sprintf("/p/**/d%d/**/f%d", i, i), fmt.Sprintf("/p/e%d/f*", i))
	}
	return mustSet(t, texts...)
}

const missedPath = "/home/user/project/packages/web/src/components/forms/input/index.ts"

func TestFirstDoesNotAllocate(t *testing.T) {
	testenv.Requires(t, testenv.NoRace)
	usual, wide := usualSet(t), wideSet(t)
	for _, c := range []struct {
		name string
		set  *Set
		path string
		want int
	}{
		{"nothing matches", usual, missedPath, -1},
		{"a name", usual, "/home/user/project/.setting44/a/b", 44},
		{"a glob", usual, "/home/user/project/a/b/credentials-x.json", 70},
		{"wide", wide, "/p/a/d7/b/d9/c/f9", 18},
	} {
		if got := c.set.First(c.path); got != c.want {
			t.Errorf("%s: First(%q) = %d, want %d", c.name, c.path, got, c.want)
		}
		if got := testing.AllocsPerRun(200, func() { c.set.First(c.path) }); got != 0 {
			t.Errorf("%s: First allocates %v times, want 0", c.name, got)
		}
		if got := testing.AllocsPerRun(200, func() { c.set.Below(c.path) }); got != 0 {
			t.Errorf("%s: Below allocates %v times, want 0", c.name, got)
		}
	}
}

func TestSetServesManyAtOnce(t *testing.T) {
	s := wideSet(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				if got := s.First(fmt.Sprintf("/p/x/d%d/y/f%d", i, i)); got != 2*i {
					t.Errorf("got %d, want %d", got, 2*i)
				}
			}
		})
	}
	all.Wait()
}

// hostile are pairs that take a matcher with backtracking longer than anyone
// waits. None matches.
var hostile = []struct {
	name    string
	pattern string
	path    string
}{
	{"depths in a row", "/**/**/**/a*b*c*", strings.Repeat("/a", 2048)},
	{"depths between names", strings.Repeat("/**/a", 100) + "/b", strings.Repeat("/a", 2048)},
	{"depths between wildcards", strings.Repeat("/**/*", 100) + "/**/b", strings.Repeat("/a", 2048)},
	{"stars in a long name", "/" + strings.Repeat("a*", 100) + "b", "/" + strings.Repeat("a", 4095)},
	{"a long run behind a star", "/*" + strings.Repeat("a", 2000) + "b*", "/" + strings.Repeat("a", 4095)},
	{"questions behind a star", "/*" + strings.Repeat("?", 2000) + "b*", "/" + strings.Repeat("a", 4095)},
	{"all alternatives alive", "/**" + strings.Repeat("/{*,?}", 9) + "/b", strings.Repeat("/a", 2048)},
}

func TestHostilePatternsTakeBoundedTime(t *testing.T) {
	for _, c := range hostile {
		s := mustSet(t, c.pattern)
		if got := s.First(c.path); got != -1 {
			t.Errorf("%s: First = %d, want -1", c.name, got)
		}
	}
}

func BenchmarkFirst(b *testing.B) {
	usual := usualSet(b)
	names := mustSet(b, "/home/user/project/.a", "/home/user/project/.b", "/home/user/.c")
	for _, c := range []struct {
		name string
		set  *Set
		path string
	}{
		{"usual/miss", usual, missedPath},
		{"usual/name", usual, "/home/user/project/.setting30/a/b/c/d/e/f"},
		{"usual/glob", usual, "/home/user/project/packages/web/src/components/forms/server.key"},
		{"usual/outside", usual, "/usr/lib/python3/dist-packages/a/b/c/d/e/f"},
		{"names/miss", names, missedPath},
		{"wide/miss", wideSet(b), "/p/a/b/c/d/e/f/g/h/i"},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.set.First(c.path)
			}
		})
	}
}

func BenchmarkFirstHostile(b *testing.B) {
	for _, c := range hostile {
		s := mustSet(b, c.pattern)
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				s.First(c.path)
			}
		})
	}
}

func BenchmarkSameBelow(b *testing.B) {
	s := usualSet(b)
	b.ReportAllocs()
	for b.Loop() {
		s.SameBelow("/home/user/project/packages/a", "/home/user/project/packages/b")
	}
}

func BenchmarkNewSet(b *testing.B) {
	texts := usualTexts()
	b.ReportAllocs()
	for b.Loop() {
		mustSet(b, texts...)
	}
}
