package main

import (
	"strings"
	"testing"
)

func TestItSaysThatThereIsNoGateYet(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, 125, "no gate yet"},
		{[]string{"serve", "--help"}, 125, "no gate yet"},
		{[]string{"--help"}, 0, "no gate yet"},
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
