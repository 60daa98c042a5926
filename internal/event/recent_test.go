package event

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func denied(path string) *Event {
	e := New(Deny)
	e.Op, e.Path = OpOpen, path
	return e
}

func TestRecentKeepsTheLatestAndCountsTheEqual(t *testing.T) {
	for _, c := range []struct {
		name  string
		paths []string // denied in this order; "" is a connection that ended
		want  []string // path, number and count
	}{
		{"nothing", nil, nil},
		{"in order", []string{"/a", "/b"}, []string{"/a 1 1", "/b 2 1"}},
		{"the same again is the latest", []string{"/a", "/b", "/a"}, []string{"/b 2 1", "/a 1 2"}},
		{"the oldest go", []string{"/a", "/b", "/c", "/d"}, []string{"/b 2 1", "/c 3 1", "/d 4 1"}},
		{"a busy one pushes nothing out", []string{"/a", "/b", "/b", "/b", "/b"}, []string{"/a 1 1", "/b 2 4"}},
		{"connections are not folded", []string{"", "", "/a"}, []string{" 1 1", " 2 1", "/a 3 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Recent{Max: 3}
			denials := 0
			for _, path := range c.paths {
				if path == "" {
					r.Emit(New(Connection))
					continue
				}
				r.Emit(denied(path))
				denials++
			}
			var got []string
			for _, k := range r.Events() {
				got = append(got, fmt.Sprintf("%s %d %d", k.Event.Path, k.Number, k.Event.times()))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			count, last := r.Denials()
			if count != denials || (last == nil) != (denials == 0) {
				t.Errorf("%d denials, the last %v; want %d", count, last, denials)
			}
			if last != nil && last.Path != c.paths[len(c.paths)-1] {
				t.Errorf("the last is %s", last.Path)
			}
		})
	}
}

func TestRecentFindsWhatIsKept(t *testing.T) {
	r := Recent{Max: 1}
	r.Emit(denied("/a"))
	r.Emit(denied("/b"))
	if _, ok := r.Find(1); ok {
		t.Error("an event that was pushed out was found")
	}
	if e, ok := r.Find(2); !ok || e.Path != "/b" {
		t.Errorf("found %v, %v", e, ok)
	}
}

// A command can be denied often, with other arguments of megabytes each time.
func TestKeptEventsAreBounded(t *testing.T) {
	word := strings.Repeat("x", 100_000)
	big := New(Deny)
	big.Op, big.Argv = OpExec, []string{"git", word, word, word}
	recent, fold := new(Recent), new(Fold)
	for _, sink := range []Sink{recent, fold} {
		sink.Emit(big)
	}
	folded, _ := fold.Denials()
	for name, e := range map[string]Event{"recent": recent.Events()[0].Event, "folded": folded[0]} {
		if n := len(strings.Join(e.Argv, "")); n == 0 || n > maxLine || !e.Truncated || e.Argv[0] != "git" {
			t.Errorf("%s: %d bytes of %d arguments are kept, truncated: %v", name, n, len(e.Argv), e.Truncated)
		}
	}
	if len(big.Argv) != 4 || big.Truncated {
		t.Error("the event itself was changed")
	}
}
