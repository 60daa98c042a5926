package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// userPolicy is a policy of the user's own, in which something stands that must
// stay.
func (w *world) userPolicy(network string) (file string) {
	w.t.Helper()
	dir := filepath.Join(w.home, ".config", "bailey")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	file = filepath.Join(dir, "bailey.jsonc")
	text := "{\n  // mine\n  \"network\": {\"allowedCIDRs\": [\"127.0.0.0/8\"], " + network + "}\n}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
}

// curls is a shell script that gets each URL and says what came of it.
func curls(urls ...string) string {
	var b strings.Builder
	for _, url := range urls {
		b.WriteString("curl -sS --fail --max-time 60 " + url + " 2>/dev/null; echo \" status $?\"\n")
	}
	return b.String()
}

// answer waits for a question, and answers it.
func (s *screen) answer(text string) {
	s.t.Helper()
	s.expect("[d]eny: ")
	s.write(text)
}

const question = "may the command reach "

func TestPersonIsAskedOnTheTerminal(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const good, also = "http://good.example/x", "http://also.good.example/x"
		for _, c := range []struct {
			name    string
			answers []string
			urls    []string
			want    []string // on the screen, in this order
		}{
			{"once", []string{"o\r"}, []string{good}, []string{"answer from good.example status 0"}},
			{"for the run", []string{"run\r"}, []string{good, good}, []string{"answer from good.example status 0", "answer from good.example status 0"}},
			{"deny", []string{"d\r"}, []string{good, good}, []string{" status 22", " status 22"}},
			{"Ctrl-C", []string{"\x03"}, []string{good, good}, []string{"^C", " status 22", " status 22"}},
			{"Ctrl-D", []string{"\x04"}, []string{good}, []string{" status 22"}},
			{"nonsense first", []string{"yes\r", "ONCE\r"}, []string{good}, []string{"answer from good.example status 0"}},
			{"what a terminal reports", []string{"\x1b[24;80Ro\r", "d\r"}, []string{good}, []string{" status 22"}},
		} {
			t.Run(c.name, func(t *testing.T) {
				w.userPolicy(`"defaultAction": "ask"`)
				s := openScreen(t)
				s.start(w.command("-c", curls(c.urls...)))
				s.expect(question + "good.example?")
				for _, answer := range c.answers {
					s.answer(answer)
				}
				for _, text := range c.want {
					s.expect(text)
				}
				if got := s.wait(); got != 0 {
					t.Errorf("status %d", got)
				}
				if text := s.rest(); strings.Contains(text, question) {
					t.Errorf("it was asked again: %q", text)
				}
			})
		}
		t.Run("several", func(t *testing.T) {
			w.userPolicy(`"allowedDomains": ["bad.example"], "defaultAction": "ask"`)
			s := openScreen(t)
			s.start(w.command("-c", "curl -s "+good+" & curl -s "+good+" & curl -s http://bad.example/granted; wait; "+curls(also)))
			s.expect(question + "good.example?")
			s.until("the granted request to be served", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return slices.Contains(w.served, "GET bad.example /granted")
			})
			s.answer("r\r")
			// What the command writes while a person is asked waits for the answer.
			shown := s.textBefore(question + "also.good.example?")
			s.answer("d\r")
			if shown += s.textBefore(" status 22"); !strings.Contains(shown, "answer from ") {
				t.Errorf("no answer is on the screen: %q", shown)
			}
			s.wait()
		})
	})
}

func TestAnswerAlwaysIsWrittenToTheUsersPolicy(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, c := range []struct{ name, network, url, want string }{
			{"by default", `"defaultAction": "ask"`, "http://good.example/x", `"allowedDomains": [
      "good.example"`},
			{"another port", `"defaultAction": "ask"`, "http://good.example:8080/x", `{"host":"good.example","ports":["8080"],"action":"allow"}`},
			{"by a rule", "\"rules\": [\n    {\"host\": \"*.example\", \"action\": \"ask\"}\n  ]", "http://good.example/x", `{"host":"good.example","schemes":["http","https"],"action":"allow"},
    {"host": "*.example", "action": "ask"}`},
		} {
			t.Run(c.name, func(t *testing.T) {
				file := w.userPolicy(c.network)
				s := openScreen(t)
				s.start(w.command("-c", curls(c.url)))
				s.expect("[a]lways (" + file + ")")
				s.answer("a\r")
				s.expect(" status 0")
				s.wait()
				text, err := os.ReadFile(file)
				if err != nil || !strings.Contains(string(text), c.want) || !strings.Contains(string(text), "// mine") {
					t.Errorf("%v; the policy is\n%s\nwant in it\n%s", err, text, c.want)
				}
				if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%v, %v", info.Mode(), err)
				}
				if got := w.run("-c", curls(c.url)); !strings.Contains(got.stdout, " status 0") {
					t.Errorf("the next time: %+v", got)
				}
			})
		}
		t.Run("under another policy", func(t *testing.T) {
			w.userPolicy(`"defaultAction": "deny"`)
			s := openScreen(t)
			s.start(w.command("--policy", granting(`"defaultAction": "ask"`), "-c", curls("http://good.example/x")))
			s.expect("for this [r]un, ")
			s.answer("a\r")
			s.answer("d\r")
			s.expect(" status 22")
			s.wait()
		})
	})
}

func TestNobodyAskedIsADenial(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.userPolicy(`"defaultAction": "ask"`)
		w.heard()
		got := w.run("-c", curls("http://good.example/x"))
		if !strings.Contains(got.stdout, " status 22") {
			t.Errorf("without a terminal: %+v", got)
		}
		s := openScreen(t)
		inside := w.command("-c", curls("http://good.example/x")+"echo the end")
		script := exec.Command("bash", append([]string{"-c", `set -m; "$@" </dev/null & wait`, "bash"}, inside.Args...)...)
		script.Dir, script.Env = inside.Dir, inside.Env
		s.start(script)
		s.expect(" status 22")
		s.expect("the end")
		s.wait()
		if questions, served := w.heard(); len(questions)+len(served) > 0 {
			t.Errorf("the world heard %q and %q", questions, served)
		}
	})
}

func TestCommandCannotAnswerForThePerson(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.userPolicy(`"defaultAction": "ask"`)
		w.write("try.py", `
import fcntl, os, subprocess, sys, termios, time
client = subprocess.Popen(["curl", "-sS", "--fail", "http://good.example/x"], stderr=subprocess.DEVNULL)
tty = os.open("/dev/tty", os.O_RDWR)
def inject():
    for c in b"r\n":
        try:
            fcntl.ioctl(tty, termios.TIOCSTI, bytes([c]))
        except OSError:
            pass
    os.write(tty, b"r\r\n")
inject()
print("typed ahead", flush=True)
while client.poll() is None:
    inject()
    time.sleep(0.01)
print("status", client.returncode)
`, 0o644)
		s := openScreen(t)
		s.start(w.command("-c", "read -r line; echo got $line; exec python3 try.py"))
		s.until("raw mode", s.raw)
		s.write("r\rr\rr\r") // the first is for the command, the rest for nobody
		s.expect(question + "good.example?")
		s.answer("d\r")
		s.expect("status 22")
		s.wait()
		if _, served := w.heard(); len(served) > 0 {
			t.Errorf("the server heard %q", served)
		}
	})
}

func TestQuestionEndsWithTheCommand(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.userPolicy(`"defaultAction": "ask"`)
		for _, c := range []struct{ name, line, want string }{
			{"the client goes", "timeout -s KILL 1 curl -s http://good.example/x; echo went on; read -r line; echo typed $line", "went on"},
			{"the sandbox ends", "curl -s http://good.example/x & sleep 1; echo the end", "the end"},
		} {
			t.Run(c.name, func(t *testing.T) {
				s := openScreen(t)
				s.start(w.command("-c", c.line))
				s.expect(question + "good.example?")
				s.expect(c.want)
				if strings.Contains(c.line, "typed") {
					s.until("raw mode", s.raw)
					s.write("again\r")
					s.expect("typed again")
				}
				s.wait()
			})
		}
	})
}

func TestClientOfAKeptSandboxIsAsked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.env = append(w.env, "XDG_RUNTIME_DIR="+t.TempDir())
		w.userPolicy(`"defaultAction": "ask"`)
		t.Cleanup(func() { w.run("box", "stop", "--all") })
		const url = "http://good.example/x"
		s := openScreen(t)
		s.start(w.command("--keep=box", "-c", curls(url, url)+"read -r line; echo typed $line"))
		s.expect(question + "good.example?")
		s.answer("o\r")
		// What follows it on the line may wait until the next question is answered.
		s.expect("answer from good.example")
		s.expect(question + "good.example?")
		s.answer("\x03")
		s.expect(" status 22")
		// Another, that waits beside it without a terminal, is not asked.
		if got := w.run("box", "exec", "box", "--", "curl", "-sS", "--fail", "http://also.good.example/x"); got.status != 22 {
			t.Errorf("without a terminal: %+v", got)
		}
		s.write("more\r")
		s.expect("typed more")
		if got := s.wait(); got != 0 {
			t.Errorf("status %d", got)
		}
	})
}

func TestReloadedRulesHoldForNewConnections(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.env = append(w.env, "XDG_RUNTIME_DIR="+t.TempDir())
		t.Cleanup(func() { w.run("box", "stop", "--all") })
		w.userPolicy(`"allowedDomains": ["good.example"]`)
		get := func(host string) int {
			return w.run("box", "exec", "box", "--", "curl", "-sS", "--fail", "http://"+host+"/x").status
		}
		slow := make(chan struct{})
		w.slow = slow
		if got := w.run("--keep=box", "--", "true"); got.status != 0 {
			t.Fatalf("%+v", got)
		}
		pid := w.boxes()["box"].Pid
		running := make(chan result)
		go func() {
			running <- w.run("box", "exec", "box", "--", "curl", "-sS", "--fail", "http://good.example/slow")
		}()
		w.until("the slow request to be served", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.Contains(w.served, "GET good.example /slow")
		})
		w.userPolicy(`"allowedDomains": ["also.good.example"]`)
		if get("good.example") != 0 || get("also.good.example") == 0 {
			t.Error("the rules have changed by themselves")
		}
		if got := w.run("box", "reload", "box"); got.status != 0 {
			t.Fatalf("%+v", got)
		}
		if get("good.example") == 0 || get("also.good.example") != 0 {
			t.Error("the rules have not changed")
		}
		close(slow)
		if got := <-running; got.status != 0 || got.stdout != "slowly" {
			t.Errorf("the connection that stood: %+v", got)
		}
		if got := w.run("--keep=box", "--", "true"); got.status != 0 || w.boxes()["box"].Pid != pid {
			t.Errorf("under the new policy there is another sandbox: %+v", got)
		}
		for _, c := range []struct{ name, text, want string }{
			{"no such", `"allowedDomains": ["good.example"]`, "there is no such sandbox"},
			{"box", `"allowedDomains": ["good.example"]}, "filesystem": {"allowWrite": ["/var/tmp"]`, "differs in mounts"},
			{"box", `"allowedDomains": []`, ""},
		} {
			w.userPolicy(c.text)
			if got := w.run("box", "reload", strings.ReplaceAll(c.name, " ", "-")); (got.status != 0) != (c.want != "") || !strings.Contains(got.stderr, c.want) {
				t.Errorf("%s: got %+v", c.text, got)
			}
		}
	})
}

// A network that was closed stays closed while the sandbox stands, unless it was
// given a gate for later.
func TestFirstGrantNeedsAGate(t *testing.T) {
	const grant = `"allowedDomains": ["good.example"], "allowedCIDRs": ["127.0.0.0/8"]`
	inWorld(t, func(t *testing.T, w *world) {
		w.env = append(w.env, "XDG_RUNTIME_DIR="+t.TempDir())
		t.Cleanup(func() { w.run("box", "stop", "--all") })
		under := func(network string, args ...string) result {
			return w.run(append([]string{"--policy", `{"network": {` + network + `}}`}, args...)...)
		}
		reaches := func() bool {
			return w.run("box", "exec", "box", "--", "curl", "-sS", "--fail", "http://good.example/x").status == 0
		}
		under(``, "--keep=box", "--", "true").want(t, 0, "", "")
		under(grant, "box", "reload", "box").wantError(t, "network closed", `"transparent": true`, "bailey box stop box")
		if reaches() {
			t.Error("a closed network was opened")
		}
		// What the message says.
		w.run("box", "stop", "box").want(t, 0, "", "")
		under(`"transparent": true`, "--keep=box", "--", "true").want(t, 0, "", "")
		if reaches() {
			t.Error("something was let through before it was granted")
		}
		under(`"transparent": true, `+grant, "box", "reload", "box").want(t, 0, "", "")
		if !reaches() {
			t.Error("what was granted cannot be reached")
		}
		under(`"transparent": true`, "box", "reload", "box").want(t, 0, "", "")
		if reaches() {
			t.Error("what is granted no more can be reached")
		}
		under(`"transparent": true, `+grant, "box", "reload", "box").want(t, 0, "", "")
		under(``, "box", "reload", "box").want(t, 0, "", "") // the gate stays, and lets nothing through
		if reaches() {
			t.Error("a network that was closed can be reached")
		}
	})
}

func TestWhatWasTypedBeforeIsNoAnswer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.userPolicy(`"defaultAction": "ask"`)
		var out bytes.Buffer
		s := openScreen(t)
		cmd := w.command("-c", "until [ -e typed ]; do sleep 0.01; done; "+curls("http://good.example/x"))
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(""), &out, &out
		s.start(cmd)
		s.write("run\r")
		s.expect("run\r\n")
		w.write("typed", "", 0o644)
		s.expect(question + "good.example?")
		s.answer("d\r")
		s.wait()
		if !strings.Contains(out.String(), " status 22") {
			t.Errorf("got %q", out.String())
		}
	})
}
