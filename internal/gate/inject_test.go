package gate

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCredentialIsAddedOutside(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	basic := base64.StdEncoding.EncodeToString([]byte("git:s3cret-value"))
	for _, c := range []struct{ name, text, want, secret string }{
		{"bearer", `"bearer": true, "fromEnv": "TOKEN"`, "Authorization: Bearer s3cret-value\n", "s3cret-value"},
		{"basic", `"basic": "git", "fromEnv": "TOKEN"`, "Authorization: Basic " + basic + "\n", basic},
		{"header", `"header": "X-Api-Key", "format": "key={}", "fromFile": "` + file + `"`, "X-Api-Key: key=from-file\n", "from-file"},
		{"query", `"query": "api_key", "fromEnv": "TOKEN"`, "/x?a=1&b=2&api_key=s3cret-value\n", "s3cret-value"},
		{"command", `"bearer": true, "fromCommand": ["printf", "from-%s\\n", "command"]`, "Authorization: Bearer from-command\n", "from-command"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, roots := tlsServer(t, http.HandlerFunc(tell), true)
			w := newWorld(t, `{"network": {"allowedDomains": ["allowed.example", "www.allowed.example"], "inject": [{"hosts": ["allowed.example"], `+c.text+`}]}}`,
				func(w *world) { w.options.Roots = roots })
			w.place(80, addressOf(echo(t)))
			w.place(443, addressOf(s))
			for url, client := range map[string]*http.Client{
				"http://allowed.example/x":        w.client(w.http, nil),
				"https://allowed.example/x":       w.insider(false),
				"https://allowed.example/x#http2": w.insider(true),
			} {
				url = strings.TrimSuffix(url, "#http2") + "?a=1&api_key=placeholder&b=2"
				status, body, _ := do(t, client, "GET", url, nil, "Authorization", "Bearer placeholder", "X-Api-Key", "placeholder")
				if status != 200 {
					t.Errorf("%s: got %d %q", url, status, body)
				}
				contains(t, url, body, c.want)
				// What the client sent in its place is gone.
				lacks(t, url, strings.Split(c.want, ":")[0]+body[strings.Index(body, c.want)+len(c.want):], strings.Split(c.want, ":")[0]+": Bearer placeholder")
			}
			// Not to others, and not to show it.
			status, body, _ := do(t, w.client(w.http, nil), "GET", "http://www.allowed.example/x", nil)
			if status != 200 {
				t.Errorf("got %d %q", status, body)
			}
			lacks(t, "another host", body, c.secret)
			for _, client := range []*http.Client{w.client(w.http, nil), w.insider(true)} {
				scheme := "http"
				if client.Transport.(*http.Transport).ForceAttemptHTTP2 {
					scheme = "https"
				}
				status, body, _ = do(t, client, "TRACE", scheme+"://allowed.example/x", nil)
				if status != 405 {
					t.Errorf("TRACE over %s: got %d %q", scheme, status, body)
				}
				lacks(t, "TRACE", body, c.secret)
			}
			w.connection("www.allowed.example")
			w.noSecrets(c.secret)
		})
	}
}

func TestCredentialThatCannotBeHadIsNotLeftOut(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("hush\nhush"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"no variable":    `"fromEnv": "NOT_SET"`,
		"no file":        `"fromFile": "/does/not/exist"`,
		"two lines":      `"fromFile": "` + secret + `"`,
		"failed program": `"fromCommand": ["sh", "-c", "echo hush; echo hush >&2; exit 1"]`,
		"no program":     `"fromCommand": ["/does/not/exist"]`,
		"endless output": `"fromCommand": ["sh", "-c", "yes hush | head -c 100000"]`,
	} {
		w := newWorld(t, `{"network": {"allowedDomains": ["allowed.example"], "inject": [{"hosts": ["allowed.example"], "bearer": true, `+text+`}]}}`)
		w.place(80, addressOf(echo(t)))
		status, body := get(t, w.client(w.http, nil), "http://allowed.example/")
		if status != 502 || !strings.Contains(body, "credential") {
			t.Errorf("%s: got %d %q", name, status, body)
		}
		lacks(t, name, body, "hush", "exist", "NOT_SET")
		if _, dialed := w.traces(); len(dialed) > 0 {
			t.Errorf("%s: the request went out", name)
		}
		w.noSecrets("hush")
	}
}

func TestCredentialOpensNoOtherPort(t *testing.T) {
	said := make(chan string, 1)
	sshd, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sshd.Close()
	go func() {
		c, err := sshd.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		all, _ := io.ReadAll(c)
		said <- string(all)
	}()
	w := newWorld(t, `{"ssh": {"allowedHosts": ["allowed.example"]}, "network": {"inject": [{"hosts": ["allowed.example"], "bearer": true, "fromEnv": "TOKEN"}]}}`)
	w.place(22, sshd.Addr().String())
	c, _, _, _ := w.connect("allowed.example:22")
	contains(t, "TLS on the port of ssh", fmt.Sprint(handshake(c, "allowed.example")), "access denied")
	if got := <-said; got != "" {
		t.Errorf("the server heard %q", got)
	}
}

func TestCommandIsRunOnceInAWhile(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	w := newWorld(t, `{"network": {"allowedDomains": ["allowed.example"], "inject": [{"hosts": ["allowed.example"], "bearer": true,
		"fromCommand": ["sh", "-c", "echo x >>`+count+`; echo token"]}]}}`)
	w.place(80, addressOf(echo(t)))
	c := w.client(w.http, nil)
	for range 3 {
		if status, body := get(t, c, "http://allowed.example/"); status != 200 {
			t.Fatalf("got %d %q", status, body)
		}
	}
	if data, _ := os.ReadFile(count); string(data) != "x\n" {
		t.Errorf("the program ran %d times", len(data)/2)
	}
	credential := w.current.Load().inject[0]
	credential.mu.Lock()
	credential.expires = time.Now()
	credential.mu.Unlock()
	get(t, c, "http://allowed.example/")
	if data, _ := os.ReadFile(count); string(data) != "x\nx\n" {
		t.Errorf("the program ran %d times", len(data)/2)
	}
}

func TestParameterReplacesWhatTheClientSent(t *testing.T) {
	for _, c := range [][2]string{
		{"/x", "/x?key=v%26w"},
		{"/x?", "/x?key=v%26w"},
		{"/x?a=b", "/x?a=b&key=v%26w"},
		{"/x?key=1&a=b&key=2", "/x?a=b&key=v%26w"},
		{"/x?%6bey=1&k%65y", "/x?key=v%26w"},
		{"/x?keys=1&a", "/x?keys=1&a&key=v%26w"},
	} {
		if got := withParameter(c[0], "key", "v&w"); got != c[1] {
			t.Errorf("%s: got %s, want %s", c[0], got, c[1])
		}
	}
}
