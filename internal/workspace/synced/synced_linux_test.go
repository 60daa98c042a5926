package synced

import (
	"slices"
	"strings"
	"testing"
)

// What strace writes, of a process that saves a file as it should.
const saved = `
10 openat(5</w/d>, "tmp", O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC, 0600) = 7</w/d/tmp>
10 write(7</w/d/tmp>, "the \"text\"\n"..., 11) = 11
10 fsync(7</w/d/tmp> <unfinished ...>
11 write(1<pipe:[1]>, "other\n", 6) = 6
10 <... fsync resumed>) = 0
10 renameat(5</w/d>, "tmp", 5</w/d>, "final") = 0
10 fsync(5</w/d>) = 0
11 write(1<pipe:[1]>, "saved\n", 6) = 6
`

func without(part string) string {
	var kept []string
	for line := range strings.Lines(saved) {
		if !strings.Contains(line, part) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

func TestTraces(t *testing.T) {
	for name, test := range map[string]struct {
		trace          string
		early, pending []string
	}{
		"a file that is saved":         {saved, nil, nil},
		"without its content":          {without("fsync re"), []string{"/w/d/tmp"}, []string{"/w/d/final"}},
		"without its name":             {without("fsync(5"), nil, []string{"/w/d"}},
		"elsewhere":                    {strings.ReplaceAll(without("fsync"), "/w/", "/else/"), nil, nil},
		"by all of the disk":           {strings.Replace(without("fsync"), "10 renameat(", "10 syncfs(5</w/d>) = 0\n10 renameat(", 1), nil, []string{"/w/d"}},
		"in a directory that is moved": {without("fsync") + "10 renameat2(AT_FDCWD</>, \"/w/d\", AT_FDCWD</>, \"/w/e\", RENAME_NOREPLACE) = 0\n", []string{"/w/d", "/w/d/final", "/w/d/tmp"}, []string{"/w/d", "/w/d/final"}},
		"beside a name":                {saved + "10 write(8</w/d/other>, \"x\", 1) = 1\n10 renameat(AT_FDCWD</>, \"/w/x\", AT_FDCWD</>, \"/w/d/y\") = 0\n", []string{"/w/d/other"}, nil},
		"what is spared":               {without("fsync re") + "10 write(8</w/s>, \"x\", 1) = 1\n10 renameat(AT_FDCWD</>, \"/w/s\", AT_FDCWD</>, \"/w/spared\") = 0\n", []string{"/w/d/tmp"}, []string{"/w/d/final"}},
		"a call that failed":           {strings.Replace(without("fsync"), `"final") = 0`, `"final") = -1 ENOENT (No such file or directory)`, 1), nil, []string{"/w/d", "/w/d/tmp"}},
	} {
		t.Run(name, func(t *testing.T) {
			trace, err := Parse(strings.NewReader(test.trace))
			if err != nil {
				t.Fatal(err)
			}
			var early []string
			for _, line := range trace.Early("/w", func(name string) bool { return name == "/w/spared" }) {
				early = append(early, strings.Fields(line)[0])
			}
			slices.Sort(early)
			if !slices.Equal(early, test.early) {
				t.Errorf("early: got %q, want %q", early, test.early)
			}
			pending, err := trace.Pending("/w", "saved\n")
			if err != nil || !slices.Equal(pending, test.pending) {
				t.Errorf("pending: got %q, %v, want %q", pending, err, test.pending)
			}
		})
	}
}

func TestWhatIsPendingAtANameIsFound(t *testing.T) {
	for _, test := range []struct {
		trace string
		want  []string
	}{
		{saved, []string{"/w/d"}}, // the temporary name
		{without("fsync re"), []string{"/w/d", "/w/d/tmp"}},
	} {
		trace, err := Parse(strings.NewReader(test.trace))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := trace.PendingAtName("/w", "/w/d/final"); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("got %q, %v, want %q", got, err, test.want)
		}
		trace, err = Parse(strings.NewReader(strings.ReplaceAll(test.trace, `renameat(5</w/d>, "tmp", 5</w/d>, "final")`, `unlinkat(5</w/d>, "final", 0)`)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := trace.PendingAtRemoval("/w", "/w/d/final"); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("got %q, %v, want %q", got, err, test.want)
		}
		if _, err := trace.PendingAtName("/w", "/w/d/other"); err == nil {
			t.Error("a rename that did not happen was found")
		}
	}
}
