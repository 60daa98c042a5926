package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/event"
)

func TestLogFollowsAcrossRotations(t *testing.T) {
	b := newBench(t)
	a := b.audit()
	a.MaxSize, a.Keep = 1000, 100
	emit := func(pid int) {
		a.Emit(&event.Event{Kind: event.Deny, Op: event.OpOpen, Path: "/x", Pid: pid})
		a.Emit(&event.Event{Kind: event.Exit, Pid: pid, Status: new(0)})
	}
	emit(1)
	emit(2)
	cmd := b.command("log", "--follow", "-n", "1", "--kind", "deny")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	lines := bufio.NewScanner(out)
	expect := func(pid int) {
		t.Helper()
		if want := fmt.Sprintf(" [%d] open /x", pid); !lines.Scan() || !strings.HasSuffix(lines.Text(), want) {
			t.Fatalf("got %q (%v), want %q", lines.Text(), lines.Err(), want)
		}
	}
	expect(2) // by then it watches
	for pid := 3; pid < 50; pid++ {
		emit(pid)
		expect(pid)
	}
	for pid := 50; pid < 100; pid++ {
		emit(pid)
	}
	for pid := 50; pid < 100; pid++ {
		expect(pid)
	}
}

func TestLogFollowsARecordThatIsNotThereYet(t *testing.T) {
	b := newBench(t)
	s := openScreen(t)
	s.start(b.command("log", "-f"))
	a := b.audit()
	s.until("the directory", func() bool { _, err := os.Stat(a.Dir); return err == nil })
	a.Emit(&event.Event{Kind: event.Deny, Op: event.OpOpen, Path: "/x"})
	s.expect(" open /x\r\n")
}

func TestLogHasColoursOnATerminalOnly(t *testing.T) {
	b := newBench(t)
	b.record(b.audit(), recorded()...)
	s := openScreen(t)
	s.start(b.command("log", "--kind", "deny", "-n1"))
	s.expect(" \x1b[1;31mdeny      \x1b[0m s2 node[3]")

	b.env = append(b.env, "NO_COLOR=1")
	plain := openScreen(t)
	plain.start(b.command("log", "--kind", "deny", "-n1"))
	plain.expect(" deny       s2 node[3]")
}
