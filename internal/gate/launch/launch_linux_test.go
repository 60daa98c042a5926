package launch

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// attended is a gate that is waited for, and what it told.
type attended struct {
	*Gate
	t    *testing.T
	at   string
	mu   sync.Mutex
	told []string
}

func attend(t *testing.T, program string) *attended {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	a := &attended{Gate: &Gate{program: program, config: denying("first.example")}, t: t, at: l.Addr().String()}
	t.Cleanup(a.Close)
	a.Beside(0, []native.Listener{{Role: config.RoleHTTP, File: f}}, func(e *event.Event) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.told = append(a.told, e.Rule)
	})
	return a
}

// denying is a configuration that names a rule in its answers.
func denying(name string) config.Config {
	return config.Config{Default: config.Deny, Rules: []config.Rule{{Host: "a.example", Action: config.Deny, Name: name}}}
}

// reach asks until somebody answers: one that is being killed may still accept.
func (a *attended) reach() (answer string) {
	for range 100 {
		if answer = a.ask(); answer != "" {
			break
		}
	}
	return answer
}

// ask returns what the gate answers, and "" if nobody does.
func (a *attended) ask() string {
	c, err := net.Dial("tcp", a.at)
	if err != nil {
		return ""
	}
	defer c.Close()
	fmt.Fprint(c, "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	line, _ := bufio.NewReader(answer.Body).ReadString(0)
	return line
}

func (a *attended) kill() {
	a.t.Helper()
	a.Gate.mu.Lock()
	defer a.Gate.mu.Unlock()
	if a.life == nil || unix.Kill(a.life.pid, unix.SIGKILL) != nil {
		a.t.Error("no gate runs")
	}
}

func (a *attended) count(text string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, line := range a.told {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func TestGateIsReplacedWithItsLastRules(t *testing.T) {
	a := attend(t, testenv.Binary(t, "bailey-gate"))
	for i, want := range []string{"first.example", "second.example", "third.example"} {
		if i > 0 {
			if err := a.Reload(denying(want)); err != nil {
				t.Fatal(err)
			}
		}
		if got := a.reach(); !strings.Contains(got, want) {
			t.Fatalf("got %q, want %s", got, want)
		}
		a.kill() // that a reload follows at once, on a socket that breaks, is the point
	}
	if got := a.reach(); !strings.Contains(got, "third.example") {
		t.Errorf("got %q", got)
	}
	if n := a.count("the network gate ended (SIGKILL)"); n != 3 {
		t.Errorf("told %d times", n)
	}
}

func TestGateThatCannotStartSaysWhy(t *testing.T) {
	a := attend(t, "/nonexistent/bailey-gate")
	if got := a.ask(); got != "" {
		t.Errorf("got %q", got)
	}
	if err := a.Reload(denying("x")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
	if n := a.count("the network gate does not run: it could not be started"); n != 1 {
		t.Errorf("told %d times: %q", n, a.told)
	}
}
