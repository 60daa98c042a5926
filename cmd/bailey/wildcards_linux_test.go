package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// TestNamesThatLookLikePatterns are denied and granted like any other: the
// directory of the project, and files as web frameworks call them.
func TestNamesThatLookLikePatterns(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.dir = filepath.Join(b.dir, "p{a,b}x")
	write := func(name, text string) {
		name = filepath.Join(b.dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("pages/[id].tsx", "secret")
	write("pages/i.tsx", "open")
	write("f", "first")

	const page = "pages/[id].tsx"
	for _, c := range []struct {
		about string
		flags []string
		line  string
		fails bool
	}{
		{"control", nil, "cat '" + page + "' f", false},
		{"a relative path", []string{"--deny-write", "./f"}, "echo x > f", true},
		{"an absolute path", []string{"--deny-write", b.dir + "/f"}, "echo x > f", true},
		{"a relative pattern", []string{"--deny-read", "pages/*.tsx"}, "cat pages/i.tsx", true},
		{"an absolute pattern", []string{"--deny-read", b.dir + "/pages/*.tsx"}, "cat pages/i.tsx", true},
		{"a name", []string{"--deny-read", page}, "cat '" + page + "'", true},
		{"an absolute name", []string{"--deny-read", b.dir + "/" + page}, "cat '" + page + "'", true},
		{"what the name matches", []string{"--deny-read", page}, "cat pages/i.tsx", true},
		{"an escaped name", []string{"--deny-read", `pages/\[id\].tsx`}, "cat '" + page + "'", true},
		{"nothing but the escaped name", []string{"--deny-read", `pages/\[id\].tsx`}, "cat pages/i.tsx", false},
	} {
		got := b.run(append(append([]string{"-q"}, c.flags...), "-c", c.line)...)
		if failed := got.status != 0; failed != c.fails {
			t.Errorf("%s: %+v", c.about, got)
		}
	}
	if text, err := os.ReadFile(filepath.Join(b.dir, "f")); err != nil || string(text) != "first" {
		t.Errorf("the denied file holds %q, %v", text, err)
	}

	write("bailey.jsonc", `{"filesystem": {"denyRead": ["`+page+`"], "denyWrite": ["f"]}}`)
	for _, line := range []string{"cat '" + page + "'", "echo x > f"} {
		if got := b.run("-q", "-c", line); got.status == 0 {
			t.Errorf("with a policy file, %s: %+v", line, got)
		}
	}
}

// TestAGrantOfANameThatLooksLikeAPattern is of that file.
func TestAGrantOfANameThatLooksLikeAPattern(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	other := filepath.Join(filepath.Dir(b.dir), "o{a,b}")
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(other, "[x].txt")
	if err := os.WriteFile(file, []byte("granted"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := b.run("-q", "--", "cat", file); got.status == 0 {
		t.Fatalf("readable without a grant: %+v", got)
	}
	for _, grant := range []string{file, other} {
		if got := b.run("-q", "--allow-read", grant, "--", "cat", file); got.status != 0 || got.stdout != "granted" {
			t.Errorf("granted %s: %+v", grant, got)
		}
	}
}

func TestLearnWhereTheProjectLooksLikeAPattern(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.dir = filepath.Join(b.dir, "p{a,b}x")
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := b.run("learn", "--", "sh", "-c", "echo made > f; cat f"); got.status != 0 {
		t.Errorf("%+v", got)
	}
}
