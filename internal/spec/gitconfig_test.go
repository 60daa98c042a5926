package spec

import (
	"strings"
	"testing"
)

func TestParseGitConfig(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"[core]\n\thooksPath = .githooks\n", "core..hookspath=.githooks"},
		{"[CORE]\nHooksPath=a b  ; note\n", "core..hookspath=a b"},
		{"[core] hooksPath = x # y", "core..hookspath=x"},
		{"[include]\n path = \"a;b\" # c\n", "include..path=a;b"},
		{"[includeIf \"gitdir:C:/x\\\"y/\"]\r\n\tpath = p\r\n", "includeif.gitdir:C:/x\"y/.path=p"},
		{"[core.sub]\n worktree = \\\n  ../x\n", "core.sub.worktree=../x"},
		{"[core]\n worktree = a\\tb\\\\c\n", "core..worktree=a\tb\\c"},
		{"[core]\n bare\n worktree = x", "core..worktree=x"},
		{"[core]\n a = \"open\n b = c", "core..a=open core..b=c"},
		{"; x\n# y\n[a]\n[b]\n= 3\nk=v\n", "b..k=v"},
		{"[unterminated", ""},
		{"", ""},
	} {
		var got []string
		for _, s := range parseGitConfig([]byte(tc.in)) {
			got = append(got, s.section+"."+s.subsection+"."+s.key+"="+s.value)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%q gives %q, want %q", tc.in, got, tc.want)
		}
	}
}

func FuzzGitConfig(f *testing.F) {
	f.Add([]byte("[core]\n\thooksPath = \"a\\\"b\" ; c\n[include \"x\"]\npath=\\\n y"))
	f.Add([]byte("[a\n=b\\"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, s := range parseGitConfig(data) {
			if s.key == "" || len(s.value) > len(data) {
				t.Errorf("%q gives %+v", data, s)
			}
		}
	})
}
