package pattern

import (
	"errors"
	"strings"
	"testing"
)

func TestPatternMatchesWhatItSays(t *testing.T) {
	for _, c := range []struct {
		pattern string
		matches []string
		misses  []string
	}{
		{"/", []string{"/", "/a", "/a/b"}, nil},
		{"/**", []string{"/", "/a", "/a/b"}, nil},
		{"/p/.vscode", []string{"/p/.vscode", "/p/.vscode/tasks.json", "/p/.vscode/a/b"}, []string{"/", "/p", "/p/.vscod", "/p/.vscode2", "/q/p/.vscode"}},
		{"/p/a/**", []string{"/p/a", "/p/a/b", "/p/a/b/c"}, []string{"/p", "/p/ab"}},
		{"/p/a/**/**/", []string{"/p/a", "/p/a/b"}, []string{"/p"}},
		{"/p/**/.env", []string{"/p/.env", "/p/a/.env", "/p/a/b/.env", "/p/a/.env/x"}, []string{"/.env", "/p/env", "/p/a/.envrc", "/q/.env"}},
		{"/p/**/a/**/b", []string{"/p/a/b", "/p/x/a/y/b", "/p/a/a/b/z"}, []string{"/p/b/a", "/p/a", "/p/x/b"}},
		{"/p/**/a/b", []string{"/p/a/a/b", "/p/a/b", "/p/a/x/a/b"}, []string{"/p/a/x/b"}},
		{"/p/**/*", []string{"/p/a", "/p/a/b"}, []string{"/p", "/"}},
		{"/**/a/*/b", []string{"/a/a/a/b", "/a/x/b", "/x/a/a/b"}, []string{"/a/b", "/a/x/y/b"}},
		{"/p/*", []string{"/p/a", "/p/.a", "/p/a/b"}, []string{"/p", "/"}},
		{"/p/*.pem", []string{"/p/a.pem", "/p/.pem", "/p/a.b.pem", "/p/x.pem/y"}, []string{"/p/pem", "/p/a.pem2", "/p/a/b.pem"}},
		{"/p/id_*", []string{"/p/id_", "/p/id_rsa"}, []string{"/p/id", "/p/xid_rsa"}},
		{"/p/a*a", []string{"/p/aa", "/p/aba"}, []string{"/p/a", "/p/ab"}},
		{"/p/a**b", []string{"/p/ab", "/p/axb"}, []string{"/p/a/b", "/p/a/x/b"}},
		{"/p/***", []string{"/p/a"}, []string{"/p"}},
		{"/p/*a*b*c*", []string{"/p/abc", "/p/xaxbxcx", "/p/aabbcc"}, []string{"/p/acb", "/p/ab"}},
		{"/p/?", []string{"/p/a", "/p/é", "/p/日", "/p/\xff", "/p/\xe6"}, []string{"/p", "/p/ab", "/p/\xff\xff", "/p/\xe6\x97"}},
		{"/p/*??", []string{"/p/ab", "/p/日本", "/p/\xe6\x97"}, []string{"/p/日", "/p/a"}},
		{"/p/[a-c]", []string{"/p/a", "/p/c"}, []string{"/p/d", "/p/", "/p/ab", "/p/\xff"}},
		{"/p/[!a-c]x", []string{"/p/dx", "/p/éx", "/p/\xffx"}, []string{"/p/ax", "/p/x"}},
		{"/p/[^a]", []string{"/p/b", "/p/^"}, []string{"/p/a"}},
		{"/p/[a^!]", []string{"/p/a", "/p/^", "/p/!"}, []string{"/p/b"}},
		{"/p/[-a]", []string{"/p/a", "/p/-"}, []string{"/p/b"}},
		{"/p/[a-]", []string{"/p/a", "/p/-"}, []string{"/p/b"}},
		{`/p/[\]\-\\]`, []string{"/p/]", "/p/-", `/p/\`}, []string{"/p/a"}},
		{"/p/[{,}*?]", []string{"/p/{", "/p/,", "/p/}", "/p/*", "/p/?"}, []string{"/p/a"}},
		{"/p/[à-ö]", []string{"/p/é"}, []string{"/p/e", "/p/\xc3"}},
		{"/p/[\ufffd]", []string{"/p/\ufffd"}, []string{"/p/\xff"}},
		{"/p/{a,b}", []string{"/p/a", "/p/b", "/p/b/c"}, []string{"/p/c", "/p/ab"}},
		{"/p/{a,b/c}/d", []string{"/p/a/d", "/p/b/c/d"}, []string{"/p/b/d", "/p/a"}},
		{"/p/{a,{b,c}d}e", []string{"/p/ae", "/p/bde", "/p/cde"}, []string{"/p/be", "/p/de"}},
		{"/p/{,a/}b", []string{"/p/b", "/p/a/b"}, []string{"/p/a"}},
		{"/p/{a,}/b", []string{"/p/b", "/p/a/b"}, []string{"/p/a"}},
		{"/p/{**,x}/b", []string{"/p/b", "/p/y/z/b", "/p/x/b"}, []string{"/p/x"}},
		{"/p/{*.a,b?}", []string{"/p/x.a", "/p/bb"}, []string{"/p/b"}},
		{"{/p,/q}/a", []string{"/p/a", "/q/a"}, []string{"/a", "/p"}},
		{"/p/a,b", []string{"/p/a,b"}, []string{"/p/a"}},
		{"/p/a]", []string{"/p/a]"}, []string{"/p/a"}},
		{`/p/\*`, []string{"/p/*"}, []string{"/p/a"}},
		{`/p/\*\*/a`, []string{"/p/**/a"}, []string{"/p/a", "/p/x/a"}},
		{`/p/\{a,b\}`, []string{"/p/{a,b}"}, []string{"/p/a"}},
		{`/p/\a\é`, []string{"/p/aé"}, []string{`/p/\a\é`}},
		{"//p///a/./b/", []string{"/p/a/b", "/p/a/b/c"}, []string{"/p/a"}},
		{"/p/\xff", []string{"/p/\xff"}, []string{"/p/\xfe", "/p/\ufffd"}},
		{"/p/\xff*", []string{"/p/\xff", "/p/\xffa"}, []string{"/p/\xfea", "/p/\ufffd"}},
		{"/p/\xe6*", []string{"/p/\xe6", "/p/\xe6a"}, []string{"/p/日"}},
		{"/p/a\xe6*", []string{"/p/a\xe6", "/p/a\xe6b"}, []string{"/p/a日"}},
		{"/p/*\xa5a", []string{"/p/\xa5a", "/p/b\xa5a"}, []string{"/p/日a"}},
		{"/p/*\xa5", []string{"/p/\xa5", "/p/a\xa5"}, []string{"/p/日"}},
		{"/p/a b\n*", []string{"/p/a b\nc"}, []string{"/p/a b"}},
	} {
		p, err := Compile(c.pattern)
		if err != nil {
			t.Errorf("Compile(%q): %v", c.pattern, err)
			continue
		}
		if got := p.String(); got != c.pattern {
			t.Errorf("String() = %q, want %q", got, c.pattern)
		}
		for _, path := range c.matches {
			if !p.Match(path) {
				t.Errorf("%q does not match %q", c.pattern, path)
			}
			if !referenceMatch(c.pattern, path) {
				t.Errorf("the reference says that %q does not match %q", c.pattern, path)
			}
		}
		for _, path := range c.misses {
			if p.Match(path) {
				t.Errorf("%q matches %q", c.pattern, path)
			}
			if referenceMatch(c.pattern, path) {
				t.Errorf("the reference says that %q matches %q", c.pattern, path)
			}
		}
	}
}

func TestBadPatternSaysWhatIsWrongAndWhere(t *testing.T) {
	for _, c := range []struct {
		pattern string
		offset  int
		msg     string
	}{
		{"", 0, "empty"},
		{"a/b", 0, "relative"},
		{"**/a", 0, "relative"},
		{"{/a,b}", 0, "relative"},
		{`\/a`, 0, "before a slash"},
		{"/a\x00b", 2, "NUL"},
		{"/a/[b", 3, "[ without ]"},
		{"/a/[", 3, "[ without ]"},
		{"/a/[!", 3, "[ without ]"},
		{`/a/[b\`, 3, "[ without ]"},
		{`/a/[b\]`, 3, "[ without ]"},
		{"/a/[b-", 3, "[ without ]"},
		{"/a/[]", 3, "nothing between"},
		{"/a/[!]b]", 3, "nothing between"},
		{"/a/[z-a]", 4, "ends before it starts"},
		{"/a/[b/c]", 5, "slash"},
		{"/a/[+-/]", 6, "slash"},
		{"/a/[\xff]", 4, "not UTF-8"},
		{"/a/[[:alpha:]]", 4, "named classes"},
		{"/a/{b,c", 3, "{ without }"},
		{"/a/{b,{c}", 3, "{ without }"},
		{"/a/{", 3, "{ without }"},
		{"/a/{}", 3, "nothing between"},
		{"/a/b}", 4, "} without {"},
		{`/a/b\`, 4, "before nothing"},
		{`/a\/b`, 2, "before a slash"},
		{"/a/../b", 3, `".."`},
		{`/a/\..`, 3, `".."`},
		{"/a/{b,..}/c", 6, `".."`},
		{"/" + strings.Repeat("{a,b}", 10), 1 + 9*5, "more than 1000"},
		{"/{" + strings.Repeat("a,", 1000) + "b}", 1, "more than 1000"},
		{"/" + strings.Repeat("/a", 100) + strings.Repeat("{a,b,c}", 6), 201 + 5*7, "too long a list"},
		{"/" + strings.Repeat("{", 33) + "a" + strings.Repeat("}", 33), 33, "more than 32 braces"},
		{"/" + strings.Repeat("a", maxText), maxText, "longer than"},
	} {
		_, err := Compile(c.pattern)
		var bad *Error
		if !errors.As(err, &bad) {
			t.Errorf("Compile(%.50q) returns %v, want an *Error", c.pattern, err)
			continue
		}
		if bad.Offset != c.offset || bad.Text != c.pattern || !strings.Contains(err.Error(), c.msg) {
			t.Errorf("Compile(%.50q) fails at %d with %v, want %d with %q", c.pattern, bad.Offset, err, c.offset, c.msg)
		}
	}
}

func TestPatternAtItsLimitsIsGood(t *testing.T) {
	for _, text := range []string{
		"/{" + strings.Repeat("a,", 999) + "b}",
		"/" + strings.Repeat("{", 32) + "b" + strings.Repeat("}", 32),
		"/b{" + strings.Repeat("a", maxText-4-2) + ",}",
		"/" + strings.Repeat("{b/}", (maxText-1)/4),
	} {
		p, err := Compile(text)
		if err != nil {
			t.Errorf("Compile(%.50q...): %v", text, err)
			continue
		}
		if path := strings.TrimSuffix(strings.NewReplacer("{", "", "}", "").Replace(text), "/"); strings.Contains(text, "/}") && !p.Match(path) {
			t.Errorf("%.50q... does not match %.50q...", text, path)
		}
		if !strings.Contains(text, "/}") && !p.Match("/b") {
			t.Errorf("%.50q... does not match /b", text)
		}
	}
}

func TestErrorStaysReadable(t *testing.T) {
	_, err := Compile("/\x1b[31m" + strings.Repeat("a", 1000) + "{")
	if got := err.Error(); strings.Contains(got, "\x1b") || len(got) > 300 {
		t.Errorf("got %q", got)
	}
}

func TestLiteralAndBase(t *testing.T) {
	for _, c := range []struct {
		pattern string
		literal string // "" if it is not one
		base    string
	}{
		{"/", "/", "/"},
		{"/**", "/", "/"},
		{"/p/a", "/p/a", "/p/a"},
		{"/p/a/", "/p/a", "/p/a"},
		{"/p/a/**", "/p/a", "/p/a"},
		{"/p/{a}", "/p/a", "/p/a"},
		{`/p/\[a\]\*`, "/p/[a]*", "/p/[a]*"},
		{"/p/\xff", "/p/\xff", "/p/\xff"},
		{"/p/**/.env", "", "/p"},
		{`/p/\*/b?/c`, "", "/p/*"},
		{"/*", "", "/"},
		{"/p/[a]", "", "/p"},
		{"/p/{a,b}/c", "", "/p"},
		{"/p/{a,a/b}", "", "/p/a"},
		{"/p/a{b,c}", "", "/p"},
		{"{/p/a/*,/p/a/b/c,/p/a/b}", "", "/p/a"},
		{"{/p,/q}", "", "/"},
		{"p", "", ""},
		{"/p/[", "", ""},
		{"", "", ""},
	} {
		got, ok := Literal(c.pattern)
		if ok != (c.literal != "") || ok && got != c.literal {
			t.Errorf("Literal(%q) = %q, %v, want %q", c.pattern, got, ok, c.literal)
		}
		if got := Base(c.pattern); got != c.base {
			t.Errorf("Base(%q) = %q, want %q", c.pattern, got, c.base)
		}
	}
}

func TestQuotedPathMeansItself(t *testing.T) {
	for _, path := range []string{"/", "/a/b", `/a*?[b]{c,d}\e`, "/**/a", "/\xff\xe6/é", "/[!a]/..."} {
		if got, ok := Literal(Quote(path)); !ok || got != path {
			t.Errorf("Literal(Quote(%q)) = %q, %v", path, got, ok)
		}
	}
}

func TestEntriesNamePathsExactly(t *testing.T) {
	for _, path := range []string{"/p/a", "/p/a b", `/p/a\b`, "/p/{a,b}x", "/p/[id].tsx", `/p/\*`, "/p/a?", "pages/[id]/**x", "~/x*", "/p/,", "."} {
		if got, ok := Plain(Entry(path)); !ok || got != path {
			t.Errorf("%q became %q, which names %q, %v", path, Entry(path), got, ok)
		}
	}
	for entry, want := range map[string]string{"/p/a/**": "/p/a", "/**": "/", `/p/\[a\]/**`: "/p/[a]", `/p/a\b`: `/p/a\b`} {
		if got, ok := Plain(entry); !ok || got != want {
			t.Errorf("%q names %q, %v; want %q", entry, got, ok, want)
		}
	}
	for _, entry := range []string{"*", "/p/[a]", `/p/\[a]*`, "{a}", `/p/\[a\`, "/p/**/x"} {
		if got, ok := Plain(entry); ok {
			t.Errorf("the pattern %q names %q", entry, got)
		}
	}
}
