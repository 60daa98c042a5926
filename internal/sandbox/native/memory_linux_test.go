package native

import "testing"

func TestOnlyPagesNobodyWroteAreGivenBack(t *testing.T) {
	const file = "/opt/a b/bailey"
	for _, tc := range []struct {
		line string
		want bool
	}{
		{"00400000-005c1000 r-xp 00000000 fd:00 131                          /opt/a b/bailey\n", true},
		{"005c1000-0079a000 r--p 001c1000 fd:00 131                          /opt/a b/bailey\n", true},
		{"0079a000-007b6000 rw-p 0039a000 fd:00 131                          /opt/a b/bailey\n", false},
		{"007b6000-007ec000 rw-p 00000000 00:00 0 \n", false},
		{"7f0000000000-7f0000001000 r-xp 00000000 fd:00 7                    /usr/lib/other\n", false},
		{"7ffc0000-7ffc1000 r-xp 00000000 00:00 0                            [vdso]\n", false},
		{"garbage\n", false},
	} {
		if start, end, ok := cleanPages(tc.line, file); ok != tc.want || ok && start >= end {
			t.Errorf("%q: got %x-%x %v, want %v", tc.line, start, end, ok, tc.want)
		}
	}
}
