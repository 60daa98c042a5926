package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// Who is told to add a flag should not have to find out that it does not help.
func TestMonitorsAdviceHelps(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	for _, c := range []struct {
		name   string
		flags  []string
		line   string // ends with 0 only if it got what it wanted
		advice bool   // there is a flag that helps
	}{
		{"read a file", nil, "cat ~/data/a", true},
		{"read through a link", nil, "cat ~/link", true},
		{"read files of a directory", nil, "cat ~/data/a ~/data/b ~/data/c", true},
		{"read with blanks in the name", nil, `cat "$HOME/data/a b"`, true},
		{"list a directory", nil, "ls ~/data/sub", true},
		{"change into a directory", nil, "cd ~/data/sub", true},
		{"run a program", nil, "~/tools/run", true},
		{"run a script with its own interpreter", nil, "~/tools/script", true},
		{"append to a file", nil, "echo x >>~/data/a", true},
		{"write what only reading is granted of", []string{"--allow-read", "~/data"}, "echo x >>~/data/a", true},
		{"make a file", nil, "echo x >~/data/new", true},
		{"make a directory", nil, "mkdir ~/data/new", true},
		{"make a link", nil, "ln -s a ~/data/new", true},
		{"remove a file", []string{"--allow-read", "~/data"}, "rm ~/data/a", true},
		{"rename a file", []string{"--allow-read", "~/data"}, "mv ~/data/a ~/data/z", true},
		{"rename a file away", []string{"--allow-read", "~/data"}, "mv ~/data/a here", true},
		{"change a mode", []string{"--allow-read", "~/data"}, "chmod 600 ~/data/a", true},
		{"make what a pattern does not grant", []string{"--allow-write", "~/data/**/*.log"}, "echo x >~/data/new", true},
		{"read what a pattern does not grant", []string{"--allow-read", "~/data/**/*.log"}, "cat ~/data/a", true},
		{"write a protected file", nil, "echo x >>.mcp.json", true},
		{"remove a protected file", nil, "rm .mcp.json", true},
		{"write a hook", nil, "echo x >.git/hooks/pre-commit", false},
		{"write through a link that leads out", nil, "echo x >>out/a", true},
		{"write what is denied", []string{"--deny-write", "work"}, "echo x >>work/a", false},
		{"write what is denied and can be read", []string{"--allow-read", "~/data", "--deny-write", "~/data"}, "echo x >>~/data/a", false},
		{"write what is denied further up", []string{"--allow-read", "~/data/sub", "--deny-write", "~/data"}, "echo x >>~/data/sub/s", false},
		{"make what is denied and not granted", []string{"--deny-write", "~/data"}, "echo x >~/data/new", false},
		{"read what is denied", []string{"--deny-read", "work"}, "cat work/a", false},
		{"read what is denied and not granted", []string{"--deny-read", "~/data"}, "cat ~/data/a", false},
		{"read what a pattern denies", []string{"--deny-read", "**/*.key"}, "cat work/x.key", false},
		{"write what a pattern denies", []string{"--deny-write", "**/*.key"}, "echo x >>work/x.key", false},
		{"write the policy", nil, "echo x >bailey.jsonc", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			adviceBench(b)
			run := func(flags []string) result { return b.run(append(flags, "--shell", "sh", "-c", c.line)...) }
			got := run(append([]string{"-m"}, c.flags...))
			if got.status == 0 {
				t.Fatalf("it is granted without any advice: %+v", got)
			}
			flags := adviceIn(t, got.stderr)
			if !c.advice && len(flags) > 0 {
				t.Errorf("got advice %q, which cannot help", flags)
			}
			if c.advice && len(flags) == 0 {
				t.Errorf("got no advice: %s", got.stderr)
			}
			if !c.advice {
				return
			}
			if got := run(append(c.flags, flags...)); got.status != 0 {
				t.Errorf("with %q: %+v", flags, got)
			}
		})
	}
}

func adviceBench(b *bench) {
	for _, name := range []string{"data/a", "data/b", "data/c", "data/a b", "data/sub/s", "file"} {
		b.inHome(name, "text\n")
	}
	for name, text := range map[string]string{"tools/run": "#!/bin/sh\nexit 0\n", "tools/script": "#!" + b.home + "/tools/run\n"} {
		if err := os.Chmod(b.inHome(name, text), 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := os.Symlink("data/a", filepath.Join(b.home, "link")); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(b.home, "data"), filepath.Join(b.dir, "out")); err != nil {
		b.t.Fatal(err)
	}
	for _, dir := range []string{"work", ".git/hooks", ".git/objects", ".git/refs"} {
		if err := os.MkdirAll(filepath.Join(b.dir, dir), 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"work/a": "", "work/x.key": "", ".mcp.json": "", ".git/HEAD": "ref: refs/heads/main\n", ".git/config": "[core]\n", ".git/hooks/pre-commit": "#!/bin/sh\n",
	} {
		b.write(name, text, 0o644)
	}
}

// adviceIn collects the flags that a monitor tells about, read as a shell would.
func adviceIn(t *testing.T, stderr string) []string {
	t.Helper()
	var flags []string
	for _, line := range monitored(stderr) {
		_, text, ok := strings.Cut(line, "to allow: ")
		if rest, all := strings.CutPrefix(line, "to allow what was not granted: "); all {
			text, ok = rest, true
		}
		if !ok {
			continue
		}
		out, err := exec.Command("bash", "--norc", "-c", `printf '%s\0' `+text).Output()
		if err != nil {
			t.Fatal(err)
		}
		flags = append(flags, strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")...)
	}
	return flags
}
