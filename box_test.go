package bailey_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
)

func ExampleBox() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	m := bailey.New(bailey.Config{Dir: dir})
	if err := m.Initialize(); err != nil {
		fmt.Println(err)
		return
	}
	defer m.Cleanup()
	box, err := m.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer box.Close()

	for _, line := range []string{"echo wall > /tmp/note", "cat /tmp/note", "ls ~/.ssh 2>/dev/null || echo no keys here"} {
		out, err := box.Command("sh", "-c", line).Output()
		fmt.Printf("%s%v\n", out, err)
	}
	// Output:
	// <nil>
	// wall
	// <nil>
	// no keys here
	// <nil>
}

func openBox(t testing.TB) *bailey.Box {
	t.Helper()
	m := newManager(t, bailey.Config{})
	box, err := m.Open()
	if err != nil {
		t.Fatal(err)
	}
	return box
}

func TestBoxHoldsThePolicy(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	m := newManager(t, bailey.Config{Dir: dir})
	box, err := m.Open()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		line string
		ok   bool
	}{
		{"echo x > inside", true},
		{"echo x > " + outside, false},
		{"mkdir -p .git/hooks && echo x > .git/hooks/pre-commit", false},
		{"echo x > .bashrc", false},
		{"cat /etc/shadow", false},
		{"python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 1)'", false},
	} {
		if err := box.Command("sh", "-c", test.line).Run(); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.line, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "inside")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{outside, filepath.Join(dir, ".git/hooks/pre-commit"), filepath.Join(dir, ".bashrc")} {
		if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBoxEndsWithItsManager(t *testing.T) {
	m := newManager(t, bailey.Config{})
	box, err := m.Open()
	if err != nil {
		t.Fatal(err)
	}
	cmd := box.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := m.Cleanup(); err != nil {
		t.Fatal(err)
	}
	<-box.Done()
	if err := cmd.Wait(); err == nil {
		t.Error("the command ended well")
	}
	if err := box.Command("true").Run(); err == nil {
		t.Error("a command ran after the end")
	}
	if _, err := m.Open(); err == nil {
		t.Error("the manager opened another")
	}
}

func TestBoxCommandCanBeCancelled(t *testing.T) {
	box := openBox(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	cmd := box.CommandContext(ctx, "sh", "-c", "trap '' TERM; sleep 1000 & wait")
	if err := cmd.Run(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if got := cmd.State().Signal(); got != syscall.SIGKILL {
		t.Errorf("ended by %v", got)
	}
	out, err := box.Command("sh", "-c", "echo still here").Output()
	if string(out) != "still here\n" || err != nil {
		t.Errorf("afterwards: %q, %v", out, err)
	}
}

func TestBoxFindsProgramsItMadeItself(t *testing.T) {
	m := newManager(t, bailey.Config{Policy: `{"env": {"set": {"PATH": "/tmp/own:/usr/bin:/bin"}}}`})
	box, err := m.Open()
	if err != nil {
		t.Fatal(err)
	}
	make := "mkdir /tmp/own && printf '#!/bin/sh\\necho own\\n' > /tmp/own/uname && chmod +x /tmp/own/uname"
	if out, err := box.Command("sh", "-c", make).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := box.Command("uname").Output(); strings.TrimSpace(string(out)) != "own" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
}

// BenchmarkBoxCommand is to be compared with BenchmarkPlainCommand.
func BenchmarkBoxCommand(b *testing.B) {
	box := openBox(b)
	for b.Loop() {
		if err := box.Command("true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPlainCommand(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}
