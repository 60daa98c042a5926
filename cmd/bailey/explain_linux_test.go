package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestExplainNamesTheProgram(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.write("tool", "#!/bin/sh\n", 0o755)
	b.write("lost", "#!/no/such/shell\n", 0o755)
	b.write("data", "", 0o644)
	b.write("printenv", "", 0o644) // earlier in PATH than the real one
	bin := filepath.Join(b.home, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	hidden := filepath.Join(bin, "hidden-tool")
	if err := os.WriteFile(hidden, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := b.dir + ":" + bin + ":/usr/bin:/bin"
	b.env = append(b.env, "PATH="+path)
	places := "looked for in " + strings.ReplaceAll(path, ":", " ")
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"by name", []string{"--", "env"}, "/usr/bin/env"},
		{"by name, after a file that is no program", []string{"--", "printenv"}, "/usr/bin/printenv"},
		{"in the project", []string{"--", "./tool"}, b.dir + "/tool"},
		{"no command", nil, "/usr/bin/sh"},
		{"a line of shell", []string{"-c", "no-such-thing"}, "/usr/bin/bash"},
		{"nowhere", []string{"--", "no-such-thing"}, "no-such-thing: command not found\n  " + places},
		{"no file", []string{"--", "./no-such-thing"}, "./no-such-thing: no such file or directory"},
		{"an agent misspelled", []string{"--", "claud"}, "claud: command not found; did you mean the agent claude?\n  " + places},
		{"a verb misspelled", []string{"--", "confg"}, "confg: command not found; did you mean the verb config?\n  " + places},
		{"hidden by name", []string{"--deny-read", bin, "--", "hidden-tool"}, "hidden-tool: exists on the host at " + hidden + " but is not visible in the sandbox; --allow-read " + bin +
			"\n  " + strings.Replace(places, bin, bin+" (not visible)", 1)},
		{"hidden by path", []string{"--deny-read", bin, "--", hidden}, hidden + ": exists on the host at " + hidden + " but is not visible in the sandbox; --allow-read " + bin},
		{
			"in the PATH of the host",
			[]string{"--policy", `{"env": {"set": {"PATH": "/opt"}}}`, "--", "hidden-tool"},
			"hidden-tool: not found in the PATH of the sandbox, which env.set replaces; the host has it at " + hidden + "\n  looked for in /opt",
		},
		{"without an interpreter", []string{"--", "./lost"}, "./lost: its interpreter /no/such/shell does not exist"},
		{"not executable", []string{"--", "./data"}, b.dir + "/data: permission denied; if it is a program: chmod +x " + b.dir + "/data"},
		{"a directory", []string{"--", b.dir}, b.dir + ": is a directory"},
		{"not to be executed", []string{"--policy", `{"filesystem": {"allowExecute": ["/opt"]}}`, "--", "./tool"}, b.dir + "/tool: permission denied; filesystem.allowExecute does not name it"},
	} {
		got := b.run(append([]string{"explain"}, c.args...)...)
		_, program, _ := strings.Cut(got.stdout, "\nprogram\n  ")
		if got.status != 0 || program != c.want+"\n" {
			t.Errorf("%s: status %d, stderr %q, got\n%s\nwant\n%s", c.name, got.status, got.stderr, program, c.want)
		}
	}
}
