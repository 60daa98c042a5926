package columns

import (
	"slices"
	"testing"
	"time"
)

func TestCellsStandBelowEachOther(t *testing.T) {
	got := Align([][]string{{"NAME", "X", "END"}, {"ö", "long", ""}, {"b"}})
	want := []string{"NAME  X     END", "ö     long", "b"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFiguresAreShort(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Brief(0), "0s"},
		{Brief(59 * time.Second), "59s"},
		{Brief(119 * time.Second), "1m"},
		{Brief(47 * time.Hour), "47h"},
		{Brief(49 * time.Hour), "2d"},
		{Size(1023), "0K"},
		{Size(5 << 10), "5K"},
		{Size(5 << 20), "5M"},
		{Size(3 << 29), "1.5G"},
		{Share(0.126), "13%"},
		{Share(2), "200%"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}
