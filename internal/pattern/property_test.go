package pattern

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
	"github.com/bmatcuk/doublestar/v4"
)

// Few names and few characters, so that random patterns and paths often meet.
var (
	randomNames  = []string{"a", "b", "ab", "ba", "aab", ".a", "a.b", "é", "aé", "日", "\xff", "a\xe6", "*", "{a,b}", "["}
	randomPieces = []string{"a", "b", ".", "é", "\xff", "\xe6", "\xa5", "*", "*", "?", "[ab]", "[!a]", "[^b-é]", `[\]-a]`, `\*`, `\{`, ","}
)

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func randomPath(r *rand.Rand, deepest int) string {
	depth := r.IntN(deepest + 1)
	if depth == 0 {
		return "/"
	}
	var b strings.Builder
	for range depth {
		b.WriteString("/" + pick(r, randomNames))
	}
	return b.String()
}

func randomComponent(r *rand.Rand, depth int) string {
	switch r.IntN(8) {
	case 0, 1:
		return "**"
	case 2, 3, 4:
		return Quote(pick(r, randomNames))
	case 5:
		if depth > 0 {
			return randomBraces(r, depth-1)
		}
	}
	var b strings.Builder
	for range 1 + r.IntN(4) {
		b.WriteString(pick(r, randomPieces))
	}
	if depth > 0 && r.IntN(4) == 0 {
		b.WriteString(randomBraces(r, depth-1))
	}
	return b.String()
}

func randomBraces(r *rand.Rand, depth int) string {
	var choices []string
	for range 2 + r.IntN(2) {
		choice := ""
		for i := range r.IntN(3) {
			if i > 0 && r.IntN(2) == 0 {
				choice += "/"
			}
			choice += randomComponent(r, depth)
		}
		choices = append(choices, choice)
	}
	return "{" + strings.Join(choices, ",") + "}"
}

func randomPattern(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(5) {
		b.WriteString("/" + randomComponent(r, 2))
	}
	if b.Len() == 0 || r.IntN(10) == 0 {
		b.WriteString("/")
	}
	return b.String()
}

// randomSet returns a set and its patterns. Sets too large for the stack come up
// as well.
func randomSet(t *testing.T, r *rand.Rand) (*Set, []string) {
	t.Helper()
	count := r.IntN(8)
	if r.IntN(50) == 0 {
		count = 60
	}
	var texts []string
	for len(texts) < count {
		text := randomPattern(r)
		if _, err := Compile(text); err == nil {
			texts = append(texts, text)
		} else if !strings.Contains(err.Error(), `".."`) {
			t.Fatal(err)
		}
	}
	return mustSet(t, texts...), texts
}

func referenceMatches(texts []string, path string) []int {
	var out []int
	for i, text := range texts {
		if referenceMatch(text, path) {
			out = append(out, i)
		}
	}
	return out
}

// ancestors returns the root, the names below it down to path, and path.
func ancestors(path string) []string {
	out := []string{"/"}
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			out = append(out, path[:i])
		}
	}
	if path != "/" {
		out = append(out, path)
	}
	return out
}

func TestRandomSetsMatchAsTheReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	matched, large := 0, 0
	for range testenv.Count(600, 100_000) {
		s, texts := randomSet(t, r)
		if s.inner > fewNodes {
			large++
		}
		for range 20 {
			path := randomPath(r, 6)
			want := referenceMatches(texts, path)
			if got := slices.Collect(s.Matches(path)); !slices.Equal(got, want) {
				t.Fatalf("Matches(%q) = %v, want %v of %q", path, got, want, texts)
			}
			first := -1
			if len(want) > 0 {
				first = want[0]
				matched++
			}
			if got := s.First(path); got != first {
				t.Fatalf("First(%q) = %d, want %d of %q", path, got, first, texts)
			}
			checkNamed(t, s, texts, path, want)
		}
	}
	if matched < 1000 || large < 3 {
		t.Errorf("only %d paths matched, and %d sets were large", matched, large)
	}
}

func checkNamed(t *testing.T, s *Set, texts []string, path string, matching []int) {
	t.Helper()
	for i, text := range texts {
		want := ""
		if slices.Contains(matching, i) {
			all := ancestors(path)
			want = all[slices.IndexFunc(all, func(a string) bool { return referenceMatch(text, a) })]
		}
		if got := s.Named(i, path); got != want {
			t.Fatalf("Named(%d, %q) = %q, want %q for %q", i, path, got, want, text)
		}
	}
}

// suffixes are the paths that SameBelow and Below are checked with: all of two
// names and some that are longer.
func suffixes(r *rand.Rand) []string {
	var out []string
	for _, a := range randomNames {
		out = append(out, "/"+a)
		for _, b := range randomNames {
			out = append(out, "/"+a+"/"+b)
		}
	}
	for range 50 {
		out = append(out, "/"+pick(r, randomNames)+"/"+pick(r, randomNames)+randomPath(r, 4))
	}
	return out
}

func join(dir, suffix string) string {
	return strings.TrimSuffix(strings.TrimSuffix(dir, "/")+suffix, "/")
}

func TestRenameThatChangesNothingKeepsEveryMatch(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	same, different := 0, 0
	for range testenv.Count(600, 20_000) {
		s, texts := randomSet(t, r)
		for range 4 {
			a, b := randomPath(r, 4), randomPath(r, 4)
			if !s.SameBelow(a, b) {
				different++
				continue
			}
			if a != b && len(texts) > 0 {
				same++
			}
			for _, suffix := range suffixes(r) {
				before, after := slices.Collect(s.Matches(join(a, suffix))), slices.Collect(s.Matches(join(b, suffix)))
				if !slices.Equal(before, after) {
					t.Fatalf("SameBelow(%q, %q), but %q matches %v there and %v here of %q", a, b, suffix, before, after, texts)
				}
			}
		}
	}
	if same < 50 || different < 50 {
		t.Errorf("only %d renames changed nothing, and %d something", same, different)
	}
}

func TestNothingMatchesWhereNothingCould(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	closed := 0
	for range testenv.Count(1000, 20_000) {
		s, texts := randomSet(t, r)
		dir := randomPath(r, 4)
		if s.Below(dir) {
			continue
		}
		if len(texts) > 0 {
			closed++
		}
		for _, suffix := range suffixes(r) {
			if got := referenceMatches(texts, join(dir, suffix)); len(got) > 0 {
				t.Fatalf("nothing below %q, but %v match %q of %q", dir, got, join(dir, suffix), texts)
			}
		}
	}
	if closed < 50 {
		t.Errorf("only %d directories had nothing below", closed)
	}
}

// Policies are checked with doublestar before they come here, and people know
// its rules: the path matches here if and only if it or an ancestor of it matches
// there. Only a "/**" at the end is left out, as "/b*/**" does not match "/b" there.
func TestPatternsMeanWhatDoublestarSays(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	names := []string{"a", "b", "ab", "ba", ".a", "a.b", "*"}
	components := []string{"**", "a", "b", "*", "?", "a*", "*b", "*.b", "[ab]", "[!a]*", "{a,b}", "{a,*b}", `\*`, "a**b", "*a*b*"}
	matched := 0
	for range testenv.Count(20_000, 500_000) {
		text, path := "", ""
		for range 1 + r.IntN(4) {
			text += "/" + pick(r, components)
		}
		for range 1 + r.IntN(5) {
			path += "/" + pick(r, names)
		}
		p, err := Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		for strings.HasSuffix(text, "/**") {
			text = strings.TrimSuffix(text, "/**")
		}
		want := slices.ContainsFunc(ancestors(path), func(a string) bool { return text == "" || doublestar.MatchUnvalidated(text, a) })
		if got := p.Match(path); got != want {
			t.Fatalf("%q matches %q: %v, want %v", text, path, got, want)
		}
		if want {
			matched++
		}
	}
	if matched < 2000 {
		t.Errorf("only %d matched", matched)
	}
}
