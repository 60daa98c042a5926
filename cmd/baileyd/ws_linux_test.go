package main

import (
	"testing"

	"github.com/bailey-sandbox/bailey/internal/workspace/change"
)

func TestMergeIsAdvisedWhereItCanHelp(t *testing.T) {
	text, late := change.Clash{Path: "a b", Mergeable: true}, change.Clash{Path: "late"}
	for _, test := range []struct {
		clashes []change.Clash
		want    string
	}{
		{[]change.Clash{text}, "to merge texts: bailey ws apply --merge w"},
		{[]change.Clash{text, late}, "to merge texts: bailey ws apply --merge w 'a b'"},
		{[]change.Clash{late}, "nothing of it can be merged; to compare: bailey ws diff w late"},
	} {
		if got := adviseMerge("w", test.clashes); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.clashes, got, test.want)
		}
	}
}
