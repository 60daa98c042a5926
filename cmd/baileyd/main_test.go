package main

import (
	"strings"
	"testing"
)

func TestItSaysWhatItIsFor(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, 125, "nothing to start by hand"},
		{[]string{"serve", "--help"}, 125, "bailey-server is not beside this one"},
		{[]string{"--help"}, 0, "bailey --keep NAME"},
		{[]string{"--version"}, 0, "baileyd "},
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
