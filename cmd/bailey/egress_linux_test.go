package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/socks"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestEgressByAUnixSocket(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		policy := granting(`"egress": "socket", "allowedDomains": ["good.example"]`)
		const socket = "/.bailey/gate.sock"
		ways := map[string][]string{
			"http":           {"--unix-socket", socket, "http://good.example/x"},
			"https":          {"--unix-socket", socket, "https://good.example/x"},
			"socks5h":        {"-x", "socks5h://localhost" + socket, "http://good.example/x"},
			"socks5h, https": {"-x", "socks5h://localhost" + socket, "https://good.example/x"},
			"a whole URL":    {"--unix-socket", socket, "--request-target", "http://good.example/x", "http://good.example/x"},
			"the variable":   {"--unix-socket", "$BAILEY_GATE_SOCKET", "http://good.example/x"},
		}
		for name, args := range ways {
			for host, granted := range map[string]bool{"good.example": true, "bad.example": false} {
				line := "exec curl -sSf --max-time 20 --cacert " + w.ca + " " + strings.ReplaceAll(strings.Join(args, " "), "good.example", host)
				w.heard()
				got := w.under(policy, "sh", "-c", line)
				questions, served := w.heard()
				switch {
				case granted && (got.stdout != "answer from "+host || !slices.Equal(served, []string{"GET " + host + " /x"})):
					t.Errorf("%s: %+v, the server heard %q", name, got, served)
				case !granted && (got.status == 0 || len(served)+len(questions) > 0):
					t.Errorf("%s to %s: %+v, questions %q, requests %q", name, host, got, questions, served)
				}
			}
		}
		// And there is no other way, also for who looks for one.
		for _, url := range []string{"http://good.example/", "http://127.0.0.1:8080/", "http://127.0.0.1:940/"} {
			if got := w.under(policy, "curl", "-sS", "--max-time", "20", url); got.status == 0 {
				t.Errorf("%s: %+v", url, got)
			}
		}
		if got := w.under(policy, "sh", "-c", "env | grep -i _proxy; rm -f "+socket+"; mv "+socket+" /tmp; test -S "+socket); got.status != 0 || got.stdout != "" {
			t.Errorf("%+v", got)
		}
	})
}

func TestKeptSandboxHasItsSocket(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		w.keep(t)
		defer w.run("box", "stop", "--all")
		policy := granting(`"egress": "socket", "allowedDomains": ["good.example"]`)
		for range 2 {
			got := w.run("-k", "one", "--policy", policy, "--", "curl", "-sS", "--unix-socket", "/.bailey/gate.sock", "http://good.example/")
			if got.stdout != "answer from good.example" {
				t.Errorf("%+v", got)
			}
		}
	})
}

// webProxy is a proxy that a user runs, which lets through what it likes.
func (w *world) webProxy(t *testing.T) (port int) {
	l := w.listen(t, "127.0.0.1:0")
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Host, r.Out.Host = "127.0.0.1:80", r.In.Host }}
	go http.Serve(l, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.note(&w.served, "proxy "+r.Method+" "+r.Host)
		switch {
		case strings.HasPrefix(r.Host, "bad."):
			http.Error(rw, "the user's proxy says no", http.StatusForbidden)
		case r.Method != http.MethodConnect:
			forward.ServeHTTP(rw, r)
		default:
			c, _, err := rw.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			_, to, _ := net.SplitHostPort(r.Host)
			join(c, "127.0.0.1:"+to)
		}
	}))
	return l.Addr().(*net.TCPAddr).Port
}

// socksProxy is the same for SOCKS.
func (w *world) socksProxy(t *testing.T) (port int) {
	l := w.listen(t, "127.0.0.1:0")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.serveSOCKS(c)
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func (w *world) serveSOCKS(c net.Conn) {
	q, err := socks.Accept(bufio.NewReader(c), c)
	if err != nil {
		c.Close()
		return
	}
	w.note(&w.served, "socks "+q.Host.Join(q.Port))
	_ = q.Answer(c, socks.Succeeded)
	join(c, fmt.Sprint("127.0.0.1:", q.Port))
}

func join(c net.Conn, address string) {
	defer c.Close()
	up, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer up.Close()
	go func() { _, _ = io.Copy(up, c) }()
	_, _ = io.Copy(c, up)
}

func TestProxiesOfTheUserAreTheWayOut(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		web, socks := w.webProxy(t), w.socksProxy(t)
		for _, test := range []struct {
			name, keys, url string
			answer          string
			heard           []string
		}{
			{"http", fmt.Sprintf(`"httpProxyPort": %d`, web), "http://good.example/", "answer from good.example", []string{"proxy GET good.example", "GET good.example /"}},
			{"https", fmt.Sprintf(`"httpProxyPort": %d`, web), "https://good.example/", "answer from good.example", []string{"proxy CONNECT good.example:443", "GET good.example /"}},
			{"another port", fmt.Sprintf(`"httpProxyPort": %d`, web), "http://good.example:8080/", "answer from good.example:8080", nil},
			{"it decides", fmt.Sprintf(`"httpProxyPort": %d`, web), "http://bad.example/", "the user's proxy says no\n", []string{"proxy GET bad.example"}},
			{"denials hold", fmt.Sprintf(`"httpProxyPort": %d, "deniedDomains": ["good.example"]`, web), "http://good.example/", "", []string{}},
			{"named hosts only", fmt.Sprintf(`"httpProxyPort": %d, "allowedDomains": ["also.good.example"]`, web), "http://good.example/", "", []string{}},
			{"socks", fmt.Sprintf(`"socksProxyPort": %d`, socks), "http://good.example/", "answer from good.example", []string{"socks good.example:80", "GET good.example /"}},
			{"socks, https", fmt.Sprintf(`"socksProxyPort": %d`, socks), "https://good.example/", "answer from good.example", []string{"socks good.example:443", "GET good.example /"}},
			{"both, web", fmt.Sprintf(`"httpProxyPort": %d, "socksProxyPort": %d`, web, socks), "https://good.example/", "answer from good.example", []string{"proxy CONNECT good.example:443", "GET good.example /"}},
		} {
			for _, variables := range []bool{true, false} {
				argv := []string{"curl", "-sS", "--max-time", "20", "--cacert", w.ca, test.url}
				if !variables {
					argv = plainly(argv...)
				}
				w.heard()
				got := w.under(`{"network": {`+test.keys+`}}`, argv...)
				questions, served := w.heard()
				if len(questions) > 0 {
					t.Errorf("%s, variables %v: the name server was asked for %q", test.name, variables, questions)
				}
				if test.answer != "" && got.stdout != test.answer || test.answer == "" && strings.Contains(got.stdout, "answer from") {
					t.Errorf("%s, variables %v: %+v", test.name, variables, got)
				}
				if test.heard != nil && !slices.Equal(served, test.heard) {
					t.Errorf("%s, variables %v: heard %q", test.name, variables, served)
				}
			}
		}
		w.tryProxyVariables(t, web, socks)
	})
}

// tryProxyVariables has the caller's variables name the way out.
func (w *world) tryProxyVariables(t *testing.T, web, socks int) {
	direct := []string{"GET good.example /"}
	env := w.env
	defer func() { w.env = env }()
	for _, test := range []struct {
		variables []string
		url       string
		heard     []string // nil: it is refused before anything runs
	}{
		{[]string{fmt.Sprintf("http_proxy=127.0.0.1:%d", web)}, "http://good.example/", []string{"proxy GET good.example", direct[0]}},
		{[]string{fmt.Sprintf("HTTPS_PROXY=http://u:p@127.0.0.1:%d/", web)}, "https://good.example/", []string{"proxy CONNECT good.example:443", direct[0]}},
		{[]string{fmt.Sprintf("http_proxy=127.0.0.1:%d", web)}, "https://good.example/", direct},
		{[]string{fmt.Sprintf("all_proxy=socks5h://127.0.0.1:%d", socks)}, "http://good.example/", []string{"socks good.example:80", direct[0]}},
		{[]string{fmt.Sprintf("http_proxy=127.0.0.1:%d", web), "NO_PROXY=other,good.example"}, "http://good.example/", direct},
		{[]string{"all_proxy=socks4://u:hush@127.0.0.1:1"}, "http://good.example/", nil},
	} {
		w.heard()
		w.env = append(slices.Clone(env), test.variables...)
		got := w.under(granting(`"allowedDomains": ["good.example"]`), "curl", "-sS", "--max-time", "20", "--cacert", w.ca, test.url)
		if _, served := w.heard(); !slices.Equal(served, test.heard) {
			t.Errorf("%q: heard %q, %+v", test.variables, served, got)
		}
		refused := strings.Contains(got.stderr, "the variable all_proxy names no proxy that can be used") && !strings.Contains(got.stderr, "hush")
		if test.heard == nil && (got.status != 125 || !refused) {
			t.Errorf("%q: %+v", test.variables, got)
		}
	}
}

// A range that covers the gate's own ports leaves them to the gate.
func TestTheGateKeepsItsPorts(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		for _, ports := range []string{`"900-9000"`, `"940", "941", "942", "943", "8080"`, `"*"`} {
			policy := granting(`"allowedDomains": ["good.example"], "allowLocalOutboundPorts": [` + ports + `]`)
			for _, url := range []string{"http://good.example/", "http://127.0.0.1:8080/"} {
				got := w.under(policy, "curl", "-sS", "--max-time", "20", url)
				if !strings.HasPrefix(got.stdout, "answer from ") {
					t.Errorf("%s, %s: %+v", ports, url, got)
				}
			}
		}
	})
}
