package pattern

import (
	"path"
	"slices"
	"strings"
	"testing"
)

func FuzzPatternMatchesAsTheReference(f *testing.F) {
	for _, seed := range [][2]string{
		{"/p/**/.env", "/p/a/.env/x"},
		{"/p/*.pem", "/p/a.pem"},
		{"/p/{a,b/{c,}d}/[!x-z]?", "/p/b/d/é\xff"},
		{`/\*/[\]a-]*`, "/*/]"},
		{"{/a,/b}/***/c", "/a/x/c"},
		{"/\xe6\\\x97\\\xa5*", "/日本"},
		{"/a/[", "/a/["},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		name = path.Clean("/" + name)
		p, err := Compile(text)
		if err != nil {
			if path, ok := Literal(text); ok || Base(text) != "" {
				t.Errorf("%q is bad, but has the literal %q and the base %q", text, path, Base(text))
			}
			return
		}
		if strings.Count(text, "**") > 5 || strings.Count(text, "{") > 5 || len(text) > 200 || len(name) > 60 {
			return // too much for the reference
		}
		got, want := p.Match(name), referenceMatch(text, name)
		if got != want {
			t.Errorf("%q matches %q: %v, want %v", text, name, got, want)
		}
		if base := Base(text); want && !slices.Contains(ancestors(name), base) {
			t.Errorf("%q matches %q, which is not below its base %q", text, name, base)
		}
		if literal, ok := Literal(text); ok && want != slices.Contains(ancestors(name), literal) {
			t.Errorf("%q matches %q: %v, but its literal is %q", text, name, want, literal)
		}
		if quoted := Quote(name); !strings.Contains(name, "\x00") && len(quoted) <= maxText {
			if got, ok := Literal(quoted); !ok || got != name {
				t.Errorf("Literal(Quote(%q)) = %q, %v", name, got, ok)
			}
		}
	})
}

func FuzzRenameThatChangesNothingKeepsTheMatch(f *testing.F) {
	f.Add("/p/**/k/*.pem", "/p/*/x", "/p/a", "/p/b", "/k/x.pem")
	f.Add("/p/{a,b}/**/c", "/**", "/p/a", "/p/b", "/c")
	f.Fuzz(func(t *testing.T, first, second, a, b, suffix string) {
		s, err := NewSet([]string{first, second})
		if err != nil {
			return
		}
		a, b = path.Clean("/"+a), path.Clean("/"+b)
		suffix = path.Clean("/" + suffix)
		if suffix == "/" {
			return
		}
		before, after := slices.Collect(s.Matches(join(a, suffix))), slices.Collect(s.Matches(join(b, suffix)))
		if s.SameBelow(a, b) && !slices.Equal(before, after) {
			t.Errorf("below %q, %q matches %v of %q and %q; below %q, %v", a, suffix, before, first, second, b, after)
		}
		if len(before) > 0 && !s.Below(a) {
			t.Errorf("nothing below %q, but %v of %q and %q match %q", a, before, first, second, suffix)
		}
	})
}
