package spec

import (
	"slices"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Whoever makes mounts ahead begins anew if others are wanted in the end, so those
// of a draft are those of the Spec wherever that can be known.
func TestDraftHasTheMountsOfTheSpec(t *testing.T) {
	gate := policy.Network{AllowedDomains: []string{"example.com"}}
	opened := policy.Network{Rules: []policy.NetworkRule{{Host: "example.com", Action: "allow", Inspect: new(bool)}}}
	*opened.Rules[0].Inspect = true
	tests := map[string]struct {
		network   policy.Network
		authority *Authority
		below     []MountPoint
		same      bool
	}{
		"closed network":             {same: true},
		"gate":                       {network: gate, same: true},
		"gate that opens TLS":        {network: opened, authority: &Authority{Dir: "/a", Bundle: "/a/bundle", Store: "/a/store"}, same: true},
		"kernel's mount in the tree": {below: []MountPoint{{"0:5", "/", "/home/u/p/img/proc", "proc"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newSystem(append(repository("/home/u/p/.git"), "/home/u/p/img/proc/", "/a/bundle", "/a/store")...)
			f.host.Authority, f.mounts = test.authority, append(f.mounts, test.below...)
			p := basicPolicy()
			p.Network = test.network
			var drafts [][]Mount
			s, err := Compile(p, f, Command{Argv: []string{"true"}, Drafted: func(s *Spec) { drafts = append(drafts, slices.Clone(s.Mounts)) }})
			if err != nil {
				t.Fatal(err)
			}
			if len(drafts) != 1 || slices.Equal(drafts[0], s.Mounts) != test.same {
				t.Errorf("%d drafts, the first with %d mounts of %d, want the same %v", len(drafts), len(drafts[0]), len(s.Mounts), test.same)
			}
		})
	}
}

func TestWhatIsRefusedIsNotDrafted(t *testing.T) {
	p := basicPolicy()
	p.Filesystem.AllowWrite = append(p.Filesystem.AllowWrite, "/")
	_, err := Compile(p, newSystem(), Command{Argv: []string{"true"}, Drafted: func(*Spec) { t.Error("drafted") }})
	if err == nil {
		t.Error("not refused")
	}
}
