package rules

import (
	"regexp"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

func TestPathsAreMatchedInEveryReading(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		allows        bool // an allowing rule with the pattern matches
		denies        bool // a denying one does
	}{
		{"/pub/**", "/pub/a/b", true, true},
		{"/pub/**", "/pub/", true, true},
		{"/pub/**", "/pub", true, true},
		{"/pub/**", "/public", false, false},
		{"/pub/*", "/pub/a", true, true},
		{"/pub/*", "/pub/a/b", false, false},
		{"/pub/*/x", "/pub/a/x", true, true},
		{"/**/info/refs", "/a/b.git/info/refs", true, true},
		{"/", "/", true, true},
		{"/**", "/anything/at/all", true, true},
		{"/admin", "/admin", true, true},

		{"/admin", "/Admin", false, true},
		{"/admin", "/admin/", false, true},
		{"/admin/**", "/%61dmin/x", true, true},
		{"/admin/**", "/%2561dmin/x", false, true},
		{"/admin/**", "//admin/x", false, true},
		{"/admin/**", "/./admin/x", false, true},
		{"/admin/**", "/pub/../admin/x", false, true},
		{"/admin/**", "/pub/%2e%2e/admin/x", false, true},
		{"/admin/**", "/pub/..%2fadmin/x", false, true},
		{"/admin/**", "/pub/..%252fadmin/x", false, true},
		{"/admin/**", "/pub/..;/admin/x", false, true},
		{"/admin/**", `/pub/..\admin/x`, false, true},
		{"/admin/**", "/pub/%2e%2e%5cadmin/x", false, true},
		{"/admin/**", "/admin;v=1/x", false, true},

		{"/pub/**", "/pub/../admin", false, true}, // in one of the readings
		{"/pub/**", "/pub/..%2Fadmin", false, true},
		{"/pub/**", "/pub/a%00b", false, true},
		{"/pub/**", "/pub/a%0d%0aX", false, true},
		{"/pub/**", "/pub/%c0%ae%c0%ae/x", false, true},
		{"/pub/**", "/pub/%25252525252e", false, true},

		{"/api/projects/**", "/api/projects/group%2Fproject/x", true, true},
		{"/api/projects/*/x", "/api/projects/group%2Fproject/x", false, true},
		{"/api/group%2fproject", "/api/group%2Fproject", true, true},
		{"/a b", "/a%20b", false, true},
		{"/a%20b", "/a%20b", true, true},
		{"/caf%C3%A9", "/caf%c3%a9", true, true},
	} {
		allow := compile(t, config.Config{Rules: []config.Rule{{Host: "*", Paths: []string{c.pattern}}}})
		deny := compile(t, config.Config{Rules: []config.Rule{{Host: "*", Paths: []string{c.pattern}, Action: config.Deny}, {Host: "*"}}})
		q := Query{Host: hostOf(t, "a.com"), Port: 80, Scheme: HTTP, Method: "GET", Path: pathOf(t, c.path)}
		if got := allow.Decide(q).Action == config.Allow; got != c.allows {
			t.Errorf("a rule that allows %s matches %s: got %v", c.pattern, c.path, got)
		}
		if got := deny.Decide(q).Action == config.Deny; got != c.denies {
			t.Errorf("a rule that denies %s matches %s: got %v", c.pattern, c.path, got)
		}
	}
}

func TestRequestWithoutAPathMatchesOnlyDenials(t *testing.T) {
	q := Query{Host: hostOf(t, "a.com"), Port: 80, Scheme: HTTP, Method: "OPTIONS"}
	if compile(t, config.Config{Rules: []config.Rule{{Host: "*", Paths: []string{"/**"}}}}).Decide(q).Action != config.Deny {
		t.Error("an allowing rule matched")
	}
	deny := compile(t, config.Config{Rules: []config.Rule{{Host: "*", Paths: []string{"/x"}, Action: config.Deny}, {Host: "*"}}})
	if deny.Decide(q).Action != config.Deny {
		t.Error("a denying rule did not match")
	}
}

func TestWhatIsNoPathIsRefused(t *testing.T) {
	for _, s := range []string{"", "x", "*", "/%", "/%2", "/%zz", "/a%"} {
		if _, err := NewPath(s); err == nil {
			t.Errorf("%q passes", s)
		}
	}
}

func FuzzPathPatternMatchesAsTheReference(f *testing.F) {
	f.Add("/a/**/b*", "/a/x/y/bc")
	f.Add("/*/*", "/a/b")
	f.Add("/**x**", "/axbx/")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if len(pattern) > 30 || len(s) > 60 || strings.Contains(s, "\n") {
			return
		}
		expression := regexp.QuoteMeta(pattern)
		expression = strings.ReplaceAll(expression, `\*\*`, ".*")
		expression = strings.ReplaceAll(expression, `\*`, "[^/]*")
		reference, err := regexp.Compile("(?s)^" + expression + "$")
		if err != nil {
			return
		}
		if !regexp.MustCompile(`^[\x00-\x7f]*$`).MatchString(pattern + s) {
			return // the expression counts characters, and a path has bytes
		}
		if got, want := globExact(pattern, s, false), reference.MatchString(s); got != want {
			t.Errorf("%q matches %q: got %v, want %v", pattern, s, got, want)
		}
	})
}

func FuzzPathReadingsAgree(f *testing.F) {
	for _, s := range []string{"/a/b", "/a/../b", "/%2e%2E/x", "/a;b/c", "//", "/%25%32%65", "/a%2fb", `/\..`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := NewPath(s)
		if err != nil {
			return
		}
		all, _ := compilePath("/**")
		if !p.mayMatch(&all) {
			t.Errorf("%q is not below the root", s)
		}
		if p.mustMatch(&all) && strings.Contains(p.loose+"/", "/../") {
			t.Errorf("%q climbs: %+v", s, p)
		}
		again, err := NewPath(p.plain)
		if err != nil || *again != *p {
			t.Errorf("%q: %+v is not stable: %+v, %v", s, p, again, err)
		}
	})
}
