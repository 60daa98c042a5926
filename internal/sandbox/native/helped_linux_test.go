package native

import (
	"errors"
	"slices"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

func TestHelperMakesOnlyWhatNobodyElseCanWrite(t *testing.T) {
	s := &spec.Spec{Mounts: []spec.Mount{
		{Kind: spec.Bind, Source: "/usr", Target: "/usr"},
		{Kind: spec.Hide, Source: "file", Target: "/usr/secret"},
		{Kind: spec.Tmpfs, Target: "/home"},
		{Kind: spec.Bind, Source: "/home/p", Target: "/home/p", Write: true},
		{Kind: spec.Bind, Source: "/home/p/.git", Target: "/home/p/.git", Write: true},
		{Kind: spec.Bind, Source: "/home/p/.git/hooks", Target: "/home/p/.git/hooks"},
		{Kind: spec.Tmpfs, Target: "/home/p/tmp"},
		{Kind: spec.Private, Source: "/home/cache", Target: "/home/cache"},
		{Kind: spec.Bind, Source: "/home/pp", Target: "/home/pp"},
	}}
	outer, inner, err := Divide("test", s)
	if err != nil {
		t.Fatal(err)
	}
	names := func(list []spec.Mount) (out []string) {
		for i := range list {
			out = append(out, string(list[i].Kind)+" "+list[i].Source+" "+list[i].Target)
		}
		return out
	}
	if got, want := names(outer), []string{"bind /usr /usr", "tmpfs  /home", "bind /home/p /home/p", "bind /home/cache /home/cache", "bind /home/pp /home/pp"}; !slices.Equal(got, want) {
		t.Errorf("outer %q, want %q", got, want)
	}
	if outer[3].Write {
		t.Error("what private changes are made over could be written")
	}
	if got, want := names(inner), []string{
		"hide file /usr/secret", "bind /home/p/.git /home/p/.git", "bind /home/p/.git/hooks /home/p/.git/hooks", "tmpfs  /home/p/tmp", "private /home/cache /home/cache",
	}; !slices.Equal(got, want) {
		t.Errorf("inner %q, want %q", got, want)
	}
}

func TestHelperRefusesWhatItCannotShow(t *testing.T) {
	grant := spec.Mount{Kind: spec.Bind, Source: "/p", Target: "/p", Write: true}
	private := spec.Mount{Kind: spec.Private, Source: "/c", Target: "/c"}
	for _, test := range []struct {
		name   string
		mounts []spec.Mount
	}{
		{"another directory in a grant", []spec.Mount{grant, {Kind: spec.Bind, Source: "/q", Target: "/p/q", Why: "filesystem.allowRead /q"}}},
		{"a grant in what is hidden in another", []spec.Mount{
			grant, {Kind: spec.Tmpfs, Target: "/p/s", Way: true}, {Kind: spec.Bind, Source: "/p/s/q", Target: "/p/s/q", Why: "filesystem.allowRead /p/s/q"},
		}},
		{"a grant in a private directory", []spec.Mount{private, {Kind: spec.Bind, Source: "/c/q", Target: "/c/q", Why: "filesystem.allowRead /c/q"}}},
		{"a private directory in another", []spec.Mount{private, {Kind: spec.Private, Source: "/c/q", Target: "/c/q", Why: "filesystem.allowRead /c/q"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := Divide("test", &spec.Spec{Mounts: test.mounts})
			var refused *spec.Refused
			if !errors.As(err, &refused) || refused.Reasons[0].Key != "filesystem.allowRead" {
				t.Errorf("got %v", err)
			}
		})
	}
}
