package conformance

import (
	"reflect"
	"testing"
)

func TestPageIsReadBack(t *testing.T) {
	want := map[string]Seen{
		"root": {"native": {"a": "held", "b": "refused"}, "bwrap": {"a": "held", "b": "held"}},
		"user": {"native": {"a": "held", "b": "not held, see [there](x.md)"}},
	}
	text := Page([]string{"root", "user"}, []string{"native", "landlock", "bwrap"}, []string{"a", "b"}, want)
	if got := ParsePage(text); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v\n%s", got, want, text)
	}
}

func TestPageThatDoesNotAgreeIsSeen(t *testing.T) {
	page := Seen{"native": {"a": "held", "limit": "held"}}
	for _, test := range []struct {
		name string
		seen Seen
		want int
	}{
		{"the same", Seen{"native": {"a": "held", "limit": "held"}}, 0},
		{"another runtime is not here", Seen{}, 0},
		{"refused", Seen{"native": {"a": "refused"}}, 1},
		{"refused by the machine", Seen{"native": {"limit": "refused"}}, 0},
		{"failed", Seen{"native": {"limit": "failed"}}, 1},
		{"a property that the page does not know", Seen{"native": {"b": "held"}}, 1},
		{"a runtime that the page does not know", Seen{"bwrap": {"a": "held"}}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Differ(page, test.seen, []string{"limit"}); len(got) != test.want {
				t.Errorf("got %q, want %d", got, test.want)
			}
		})
	}
}
