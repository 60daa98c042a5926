package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// killGates kills every gate in the world's network, and says how many there were.
func killGates() (count int) {
	own, _ := os.Readlink("/proc/self/ns/net")
	list, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range list {
		comm, _ := os.ReadFile(name)
		network, _ := os.Readlink(filepath.Join(filepath.Dir(name), "ns/net"))
		if string(comm) != "bailey-gate\n" || network != own {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err == nil && unix.Kill(pid, unix.SIGKILL) == nil {
			count++
		}
	}
	return count
}

const gateEnded = "the network gate ended (SIGKILL): open connections are lost, and new ones get another gate"

func TestGateThatIsKilledIsReplaced(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		policy := granting(`"allowedDomains": ["good.example"]`)
		const get = "curl -sS --max-time 20 http://good.example/"
		for _, test := range []struct {
			line, stdout, stderr string
		}{
			{get + "kill; " + get, "answer from good.example", gateEnded},
			{"for i in 1 2 3 4 5 6; do " + get + "kill; done; " + get, "", "the network gate does not run: it ended 6 times in a short while: SIGKILL"},
		} {
			got := w.run("--policy", policy, "-c", test.line)
			if got.stdout != test.stdout || strings.Count(got.stderr, test.stderr) != 1 {
				t.Errorf("%s: %+v", test.line, got)
			}
		}
	})
}

func TestKeptSandboxOutlivesItsGate(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		w.keep(t)
		t.Cleanup(func() { w.run("box", "stop", "--all") })
		w.userPolicy(`"allowedDomains": ["good.example"]`)
		get := func(host string) result {
			return w.run("--keep=box", "--", "curl", "-sSf", "--max-time", "20", "http://"+host+"/")
		}
		if got := get("good.example"); got.status != 0 {
			t.Fatalf("%+v", got)
		}
		w.userPolicy(`"allowedDomains": ["also.good.example"]`)
		if killGates() != 1 {
			t.Fatal("there is no gate to kill")
		}
		w.run("box", "reload", "box").want(t, 0, "", "")
		if got := get("also.good.example"); got.status != 0 {
			t.Errorf("the next gate: %+v", got)
		}
		// One that takes the place of another has what was told last.
		killGates()
		if got := get("also.good.example"); got.status != 0 {
			t.Errorf("the one after it: %+v", got)
		}
		if got := get("good.example"); got.status == 0 {
			t.Errorf("by the old rules: %+v", got)
		}
		w.until("the log tells of both", func() bool { return strings.Count(w.run("log").stdout, gateEnded) == 2 })
	})
}

func TestGateThatCannotStartIsToldOf(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1), testenv.Program("curl"))
	b := newBench(t)
	bin := filepath.Join(b.home, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(testenv.Binary(t, "bailey"))
	if err != nil {
		t.Fatal(err)
	}
	gate := "#!/bin/sh\necho 'bailey-gate: no luck today' >&2\necho 'and more' >&2\nexit 125\n"
	for name, content := range map[string][]byte{"bailey": program, "bailey-gate": []byte(gate)} {
		if err := os.WriteFile(filepath.Join(bin, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := b.command("--policy", `{"network": {"allowedDomains": ["good.example"]}}`, "-c", "curl -s http://good.example/; curl -s http://good.example/")
	cmd.Path = filepath.Join(bin, "bailey")
	got := b.collect(cmd)
	const want = "the network gate does not run: it could not be started: no luck today)"
	if got.status == 0 || strings.Count(got.stderr, want) != 1 || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("got %+v, want %q", got, want)
	}
}
