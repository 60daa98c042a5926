package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// logged returns what the audit log shows with these flags.
func (b *bench) logged(flags ...string) (list []event.Event) {
	b.t.Helper()
	got := b.run(append([]string{"log", "--json"}, flags...)...)
	if got.status != 0 {
		b.t.Fatalf("%+v", got)
	}
	for line := range strings.Lines(got.stdout) {
		var e event.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			b.t.Fatalf("%v: %s", err, line)
		}
		list = append(list, e)
	}
	return list
}

func TestARunIsRecordedIfThereIsSomethingToTell(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.run("--", "true").want(t, 0, "", "")
	if events := b.logged(); len(events) > 0 {
		t.Errorf("of a command that was denied nothing: %+v", events)
	}
	for line, want := range map[string]string{"exit 3": "exec deny exit 3", "kill -TERM $$": "exec deny exit SIGTERM"} {
		before := len(b.logged())
		b.run("-q", "--", "/bin/sh", "-c", "echo >.envrc; "+line)
		var got []string
		events := b.logged()[before:]
		for _, e := range events {
			got = append(got, string(e.Kind))
			if e.Kind == event.Exit && e.Status != nil {
				got = append(got, strconv.Itoa(*e.Status))
			} else if e.Kind == event.Exit {
				got = append(got, e.Signal)
			}
			if e.Sandbox == "" || e.Sandbox != events[0].Sandbox || e.Process != "sh" {
				t.Errorf("%s: of sandbox %q, process %q", e.Kind, e.Sandbox, e.Process)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
			continue
		}
		if e := events[0]; e.Path != "/bin/sh" || len(e.Argv) != 3 || e.Time.After(events[1].Time) || events[2].Duration <= 0 {
			t.Errorf("got %+v, and an end after %s", e, events[2].Duration)
		}
	}
}

func TestEventsOfTheNetworkSayAll(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		policy := w.write("p.jsonc", "{\n\"network\": {\"allowedCIDRs\": [\"127.0.0.0/8\"],\n\"allowedDomains\": [\"good.example\"]}}", 0o644)
		for name, argv := range map[string][]string{
			"with variables":    {"curl", "-s", "http://good.example/x", "http://bad.example/y"},
			"without variables": plainly("curl", "-s", "http://good.example/x", "http://bad.example/y"),
		} {
			t.Run(name, func(t *testing.T) {
				before := len(w.logged())
				w.run(append([]string{"-s", policy, "--"}, argv...)...)
				events := w.logged()[before:]
				allowed := slices.IndexFunc(events, func(e event.Event) bool { return e.Kind == event.Connection })
				if allowed < 0 || !slices.ContainsFunc(events, func(e event.Event) bool { return e.Kind == event.Deny }) {
					t.Fatalf("got %+v", events)
				}
				e := events[allowed]
				if e.Process != "curl" || e.Pid == 0 || e.Sandbox == "" || e.Host != "good.example" || e.Address != "127.0.0.1" || e.Port != 80 || e.Method != http.MethodGet ||
					e.URLPath != "/x" || e.Rule != "network.allowedDomains good.example" || e.Where != policy+":3:20" || e.BytesIn == 0 || e.Duration == 0 {
					t.Errorf("allowed: got %+v", e)
				}
				for _, e := range events {
					if e.Kind == event.Deny && (e.Process != "curl" || e.Pid == 0 || e.Host != "bad.example" || e.Rule != "network.defaultAction deny") {
						t.Errorf("denied: got %+v", e)
					}
				}
			})
		}
		for _, c := range []struct {
			flags []string
			want  bool
		}{
			{[]string{"--host", "good.example"}, true},
			{[]string{"--host", "*.example", "--kind", "deny"}, true},
			{[]string{"--host", "*.example", "--process", "curl"}, true},
			{[]string{"--host", "*.good.example"}, false},
			{[]string{"--host", "good.example", "--kind", "deny"}, false},
			{[]string{"--host", "*", "--process", "wget"}, false},
		} {
			if got := len(w.logged(c.flags...)) > 0; got != c.want {
				t.Errorf("%q: found some: %v", c.flags, got)
			}
		}
	})
}

func TestOtherUDPIsRefusedAtOnceAndTold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.write("udp.py", `
import socket, sys
sockets = []
for family, address in (socket.AF_INET, "198.51.100.7"), (socket.AF_INET6, "2001:db8::7"):
    for again in range(3):
        s = socket.socket(family, socket.SOCK_DGRAM)
        sockets.append(s)
        s.settimeout(20)
        s.connect((address, 443))
        try:
            s.send(b"QUIC")
            s.recv(1)
        except OSError as e:
            print(type(e).__name__)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as local:
    local.bind(("127.0.0.1", 5000))
    local.sendto(b"x", ("127.0.0.1", 5000))
    print(local.recv(1))
question = b"\0\7\1\0\0\1\0\0\0\0\0\0\4good\7example\0\0\1\0\1"
for family, address in (socket.AF_INET, "198.51.100.53"), (socket.AF_INET6, "2001:db8::53"):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.settimeout(20)
        s.connect((address, 53))
        s.send(question)
        print(s.recv(512)[:2])
sys.stdin.read()
`, 0o644)
		cmd := w.command("--policy", granting(`"allowedDomains": ["good.example"]`), "--", "python3", "udp.py")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.until("both to be told of", func() bool { return len(w.logged("--kind", "deny")) >= 2 })
		stdin.Close() // answers about names are told of by then, if they are
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if want := strings.Repeat("ConnectionRefusedError\n", 6) + "b'x'\n" + strings.Repeat(`b'\x00\x07'`+"\n", 2); out.String() != want {
			t.Errorf("got %q, stderr %q", out.String(), errs.String())
		}
		var told []string
		for _, e := range w.logged("--kind", "deny") {
			if e.Kind != event.Deny || e.Op != event.OpConnect || e.Port != 443 || e.Sandbox == "" {
				t.Errorf("got %+v", e)
			}
			told = append(told, e.Process+" "+e.Address)
		}
		if want := []string{"python3 198.51.100.7", "python3 2001:db8::7"}; !slices.Equal(told, want) {
			t.Errorf("got %q, want %q; stderr %q", told, want, errs.String())
		}
	})
}

func TestMonitorTellsOfEachHost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		policy := granting(`"allowedDomains": ["good.example"]`)
		line := "curl -s http://bad.example/ http://other.example/ http://good.example/x >/dev/null"
		got := w.run("-m", "--policy", policy, "-c", line)
		for _, host := range []string{"bad.example", "other.example"} {
			if !strings.Contains(got.stderr, host) {
				t.Errorf("%s is not told of: %s", host, got.stderr)
			}
		}
		limited := w.run("-m", "--policy", granting(`"allowedDomains": ["good.example"], "limits": {"idle": "500ms"}`), "--", "curl", "-sS", "http://good.example/slow")
		if !strings.Contains(limited.stdout, "network.limits.idle") || !strings.Contains(limited.stderr, "met the limit network.limits.idle") {
			t.Errorf("a limit: %+v", limited)
		}
		got = w.run("-m", "--json", "--policy", policy, "-c", line)
		var kinds []string
		for text := range strings.Lines(got.stderr) {
			var e event.Event
			if json.Unmarshal([]byte(text), &e) == nil && e.Host != "" {
				kinds = append(kinds, string(e.Kind)+" "+e.Host)
			}
		}
		if want := []string{"deny bad.example", "deny other.example", "connection good.example"}; !slices.Equal(kinds, want) {
			t.Errorf("got %q, want %q", kinds, want)
		}
	})
}

// As root the broker of a container looks at files as the command's user does, who
// cannot open the log.
func TestDenialsInAContainerAreLogged(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1), testenv.Program("crun"))
	b := newBench(t)
	b.run("--runtime", "crun", "--", "touch", ".envrc")
	list := b.logged("--kind", "deny")
	if len(list) != 1 || list[0].Kind != event.Deny || list[0].Process != "touch" || !strings.HasSuffix(list[0].Path, "/.envrc") {
		t.Errorf("got %+v", list)
	}
}
