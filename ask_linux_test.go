package bailey_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// served is a server on this machine's loopback, and how a command gets a page
// of it through the gate.
func served(t *testing.T) (port string, get func(path string) []string) {
	t.Helper()
	testenv.Requires(t, testenv.Program("curl"))
	t.Setenv("PATH", filepath.Dir(testenv.Binary(t, "bailey-gate"))+string(os.PathListSeparator)+os.Getenv("PATH"))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }))
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, func(path string) []string {
		return []string{"curl", "-sS", "--fail", "--noproxy", "", "http://127.0.0.1:" + port + path}
	}
}

func ruled(port, action string) string {
	return `{"network": {"rules": [{"host": "127.0.0.1", "ports": ["` + port + `"], "action": "` + action + `"}]}}`
}

func TestProgramIsAskedAboutHosts(t *testing.T) {
	port, get := served(t)
	var mu sync.Mutex
	var asked []bailey.Question
	for name, c := range map[string]struct {
		answers []bailey.Answer // to one question after the other
		want    string          // what three requests get
		asked   int
	}{
		"allowed":                  {[]bailey.Answer{bailey.Allow}, "/1/2/3", 1},
		"allowed once":             {[]bailey.Answer{bailey.AllowOnce, bailey.DenyOnce, bailey.Allow}, "/1/3", 3},
		"denied":                   {[]bailey.Answer{bailey.Deny}, "", 1},
		"denied, and then no more": {[]bailey.Answer{bailey.DenyOnce, bailey.Deny}, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			asked = nil
			left := c.answers
			m := newManager(t, bailey.Config{Policy: ruled(port, "ask"), Ask: func(_ context.Context, q bailey.Question) bailey.Answer {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, q)
				if len(left) == 0 {
					return bailey.Deny
				}
				a := left[0]
				left = left[1:]
				return a
			}})
			line := strings.Join(get("/1"), " ") + "; " + strings.Join(get("/2"), " ") + "; " + strings.Join(get("/3"), " ")
			line = strings.ReplaceAll(line, "--noproxy ", "--noproxy ''")
			out, _ := m.Command("sh", "-c", line).Output() // of which some may fail
			if string(out) != c.want || len(asked) != c.asked {
				t.Errorf("got %q, asked %+v", out, asked)
			}
			if len(asked) > 0 && (asked[0].Host != "127.0.0.1" || fmt.Sprint(asked[0].Port) != port || asked[0].Rule != "network.rules[0] 127.0.0.1") {
				t.Errorf("asked %+v", asked[0])
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		argv := get("/")
		if out, err := newManager(t, bailey.Config{Policy: ruled(port, "ask")}).Command(argv[0], argv[1:]...).Output(); err == nil {
			t.Errorf("got %q", out)
		}
	})
	t.Run("nobody in time", func(t *testing.T) {
		called := make(chan struct{})
		m := newManager(t, bailey.Config{Policy: ruled(port, "ask"), Ask: func(context.Context, bailey.Question) bailey.Answer {
			close(called)
			select {} // for ever
		}})
		argv := get("/")
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-called
			cancel()
		}()
		if err := m.CommandContext(ctx, argv[0], argv[1:]...).Run(); err == nil {
			t.Error("it was let through")
		}
	})
}

func TestNetworkOfABoxCanBeUpdated(t *testing.T) {
	port, get := served(t)
	box, err := newManager(t, bailey.Config{Policy: ruled(port, "allow")}).Open()
	if err != nil {
		t.Fatal(err)
	}
	try := func() string {
		argv := get("/x")
		out, _ := box.Command(argv[0], argv[1:]...).Output()
		return string(out)
	}
	// Before the gate has started, and after that.
	for _, c := range []struct{ action, want string }{{"deny", ""}, {"allow", "/x"}, {"deny", ""}, {"allow", "/x"}} {
		policy := strings.Replace(ruled(port, c.action), `"rules": [`, `"rules": [{"host": "other.example", "action": "allow"}, `, 1)
		if err := box.UpdateNetwork(policy); err != nil {
			t.Fatal(err)
		}
		if got := try(); got != c.want {
			t.Errorf("%s: got %q", c.action, got)
		}
	}
	for _, c := range []struct{ policy, want string }{
		{strings.Replace(ruled(port, "allow"), `{"network"`, `{"filesystem": {"allowWrite": ["/var/tmp"]}, "network"`, 1), "differs in mounts"},
		{`{"network": {"rules": 1}}`, "rules"},
	} {
		if err := box.UpdateNetwork(c.policy); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", c.policy, err)
		}
		if got := try(); got != "/x" {
			t.Errorf("after what was refused: got %q", got)
		}
	}
	if err := box.UpdateNetwork(`{"network": {}}`); err != nil {
		t.Fatal(err)
	}
	if got := try(); got != "" {
		t.Errorf("after the last grant was taken away: got %q", got)
	}
}
