package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestArgumentsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, 125, "it is started by bailey"},
		{[]string{"nonsense"}, 125, "it is started by bailey"},
		{[]string{"serve"}, 125, "serve wants --config"},
		{[]string{"serve", "--config"}, 125, "wants a descriptor"},
		{[]string{"serve", "--config", "0"}, 125, `"0" is no descriptor`},
		{[]string{"serve", "--config", "x"}, 125, `"x" is no descriptor`},
		{[]string{"serve", "--listen", "http"}, 125, "is no descriptor"},
		{[]string{"serve", "--listen", "gopher=4"}, 125, `unknown role "gopher"`},
		{[]string{"serve", "--port", "4"}, 125, "unknown flag --port"},
		{[]string{"serve", "--config", "3", "--events", "4", "--control", "5"}, 125, "at least one --listen"},
		{[]string{"serve", "--expose", "x=4"}, 125, `"x" is no port`},
		{[]string{"serve", "--expose", "0=4"}, 125, `"0" is no port`},
		{[]string{"serve", "--expose", "80"}, 125, "is no descriptor"},
		{[]string{"serve", "--inside", "4"}, 125, "is no descriptor"},
		{[]string{"authority"}, 125, "one absolute directory"},
		{[]string{"authority", "relative"}, 125, "one absolute directory"},
		{[]string{"--help"}, 0, "bailey-gate serve"},
		{[]string{"--version"}, 0, "bailey-gate "},
	} {
		var out, errs strings.Builder
		got := run(c.args, &out, &errs)
		if got != c.status || !strings.Contains(out.String()+errs.String(), c.want) {
			t.Errorf("%q: status %d, stdout %q, stderr %q", c.args, got, out.String(), errs.String())
		}
		if (out.Len() > 0) != (got == 0) {
			t.Errorf("%q: an error belongs on stderr, an answer on stdout", c.args)
		}
	}
}

func TestAuthorityIsMadeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	var first, again strings.Builder
	for _, out := range []*strings.Builder{&first, &again} {
		var errs strings.Builder
		if got := run([]string{"authority", dir}, out, &errs); got != 0 {
			t.Fatalf("got %d, %s", got, errs.String())
		}
	}
	if want := filepath.Join(dir, "authority.crt") + "\n"; first.String() != want || again.String() != want {
		t.Errorf("got %q and %q, want %q", first.String(), again.String(), want)
	}
}
