package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// client runs a program with the variables by which it finds the gate.
func (p *process) client(dir string, argv ...string) (string, error) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	proxy := "http://" + p.address(config.RoleMixed)
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"), "TMPDIR="+os.TempDir(), "http_proxy="+proxy, "https_proxy="+proxy, "HTTP_PROXY="+proxy, "HTTPS_PROXY="+proxy, "no_proxy=", "GIT_TERMINAL_PROMPT=0",
		"HOME="+dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// secure is a web server of good.example with a certificate, and the file of
// who trusts it.
func secure(t testing.TB, handler http.Handler) (port, trust string) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return portOf(s), trustFile(t, s.Certificate())
}

func trustFile(t testing.TB, c *x509.Certificate) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// trust is the certificate that programs in the sandbox have to trust.
func (p *process) trust() string {
	p.t.Helper()
	var out, errs strings.Builder
	if status := run([]string{"authority", p.authority}, &out, &errs); status != 0 {
		p.t.Fatal(errs.String())
	}
	return strings.TrimSpace(out.String())
}

func TestCurlPassesTheGate(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	port := page(t, hello)
	securePort, _ := secure(t, http.HandlerFunc(hello))
	p := start(t, goodOnly, config.RoleMixed, config.RoleSOCKS)
	socks := p.address(config.RoleSOCKS)
	plain, private := "http://good.example:"+port+"/", "https://good.example:"+securePort+"/"
	for name, args := range map[string][]string{
		"proxy":        {plain},
		"CONNECT":      {"-k", private},
		"http/1.1":     {"-k", "--http1.1", private},
		"tunnel":       {"-p", plain},
		"socks5h":      {"-k", "-x", "socks5h://" + socks, private},
		"socks4a":      {"-x", "socks4a://" + socks, plain},
		"http/1.0":     {"-0", plain},
		"old proxy":    {"--proxy1.0", p.address(config.RoleMixed), "-k", private},
		"socks, plain": {"-x", "socks5h://" + socks, plain},
	} {
		out, err := p.client(t.TempDir(), append([]string{"curl", "-sS", "--fail", "--max-time", "20"}, args...)...)
		if err != nil || !strings.HasPrefix(out, "hello good.example:") {
			t.Errorf("%s: %v, %q", name, err, out)
		}
	}
	for name, args := range map[string][]string{
		"proxy":   {"http://secret.evil.example:" + port + "/"},
		"CONNECT": {"-k", "https://secret.evil.example:" + securePort + "/"},
		"socks5h": {"-k", "-x", "socks5h://" + socks, "https://secret.evil.example:" + securePort + "/"},
		"socks4a": {"-x", "socks4a://" + socks, "http://secret.evil.example:" + port + "/"},
		"fronting": {
			"-k", "--connect-to", "good.example:" + securePort + ":good.example:" + securePort,
			"--connect-to", "evil.example:" + securePort + ":good.example:" + securePort, "https://evil.example:" + securePort + "/",
		},
	} {
		if out, err := p.client(t.TempDir(), append([]string{"curl", "-sS", "--fail", "--max-time", "20"}, args...)...); err == nil {
			t.Errorf("%s: %q", name, out)
		}
	}
	for _, name := range p.names() {
		if name != "good.example." {
			t.Errorf("the name server was asked for %s", name)
		}
	}
}

func TestDownloadIsWholeAndCanBeResumed(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	size := int64(testenv.Count(64<<20, 2<<30))
	file := filepath.Join(t.TempDir(), "big")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, sum), &counting{}, size); err != nil {
		t.Fatal(err)
	}
	f.Close()
	port := page(t, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	p := start(t, goodOnly, config.RoleMixed)
	dir := t.TempDir()
	url := "http://good.example:" + port + "/big"
	for _, args := range [][]string{{"-r", fmt.Sprintf("0-%d", size/3)}, {"-C", "-"}} {
		if out, err := p.client(dir, append([]string{"curl", "-sS", "--fail", "-o", "got", url}, args...)...); err != nil {
			t.Fatalf("%v, %q", err, out)
		}
	}
	got, err := os.Open(filepath.Join(dir, "got"))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	check := sha256.New()
	if n, err := io.Copy(check, got); err != nil || n != size || !bytes.Equal(check.Sum(nil), sum.Sum(nil)) {
		t.Errorf("%d bytes arrived, %v", n, err)
	}
}

// counting is a stream in which no two blocks are the same.
type counting struct{ n byte }

func (c *counting) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = c.n
		c.n = c.n*31 + 7
	}
	c.n++
	return len(b), nil
}

// gitServer serves a bare repository below dir over smart HTTP, and wants this
// authorization unless it is empty.
func gitServer(t testing.TB, dir, authorization string) http.Handler {
	t.Helper()
	backend, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	h := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(backend)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=a", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if authorization != "" && r.Header.Get("Authorization") != authorization {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func TestGitClonesAndPushesThroughTheGate(t *testing.T) {
	testenv.Requires(t, testenv.Program("git"))
	const authorization = "Basic Z2l0OnMzY3JldC12YWx1ZQ==" // git:s3cret-value
	served := t.TempDir()
	plain := page(t, gitServer(t, served, authorization).ServeHTTP)
	tlsPort, trust := secure(t, gitServer(t, served, authorization))
	p := startWith(t, `{"network": {"allowedCIDRs": ["127.0.0.0/8"], "rules": [{"host": "example.com", "ports": ["*"], "action": "allow", "inspect": true}, {"host": "good.example", "ports": ["*"], "action": "allow"}],
		"inject": [{"hosts": ["example.com", "good.example"], "basic": "git", "fromEnv": "TOKEN"}]}}`, []string{"SSL_CERT_FILE=" + trust}, config.RoleMixed)
	// The test server's certificate is for example.com, which has to be here.
	p.here("example.com.")
	trusted := "http.sslCAInfo=" + p.trust()
	git := func(dir string, argv ...string) string {
		t.Helper()
		out, err := p.client(dir, append([]string{"git"}, argv...)...)
		if err != nil {
			t.Fatalf("%q: %v\n%s", argv, err, out)
		}
		return out
	}
	for name, remote := range map[string]string{"plain": "http://good.example:" + plain, "tls": "https://example.com:" + tlsPort} {
		repository := filepath.Join(served, name+".git")
		git(served, "init", "-q", "--bare", "-b", "main", repository)
		git(repository, "config", "http.receivepack", "true")
		work := t.TempDir()
		git(work, "-c", trusted, "clone", "-q", remote+"/"+name+".git", "clone")
		clone := filepath.Join(work, "clone")
		if err := os.WriteFile(filepath.Join(clone, "file"), bytes.Repeat([]byte("content\n"), 200_000), 0o644); err != nil {
			t.Fatal(err)
		}
		git(clone, "add", "file")
		git(clone, "commit", "-q", "-m", "one")
		git(clone, "-c", trusted, "push", "-q", "origin", "HEAD:main")
		if log := git(repository, "log", "--format=%s", "main"); log != "one\n" {
			t.Errorf("%s: pushed %q", name, log)
		}
	}
	p.waitFor("the push", func(e *event.Event) bool {
		return e.Kind == event.Connection && e.Method == http.MethodPost && strings.HasSuffix(e.URLPath, "/git-receive-pack")
	})
}

func TestPythonAndNodePassTheGate(t *testing.T) {
	testenv.Requires(t, testenv.Program("python3"), testenv.Program("node"))
	port := page(t, hello)
	p := start(t, goodOnly, config.RoleMixed)
	proxy := p.address(config.RoleMixed)
	const python = `
import sys, urllib.request, urllib.error
print(urllib.request.urlopen(sys.argv[1]).read().decode())
try:
    urllib.request.urlopen(sys.argv[2])
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode())
`
	const node = `
const http = require('http');
const [proxy, good, bad] = process.argv.slice(1);
const ask = url => new Promise(done => {
  const u = new URL('http://' + proxy);
  http.get({host: u.hostname, port: u.port, path: url, headers: {host: new URL(url).host}}, r => {
    let text = ''; r.on('data', d => text += d); r.on('end', () => done(r.statusCode + ' ' + text));
  });
});
(async () => { console.log(await ask(good)); console.log(await ask(bad)); })();
`
	good, bad := "http://good.example:"+port+"/", "http://evil.example:"+port+"/"
	for name, argv := range map[string][]string{"python3": {"python3", "-c", python, good, bad}, "node": {"node", "-e", node, proxy, good, bad}} {
		out, err := p.client(t.TempDir(), argv...)
		if err != nil || !strings.Contains(out, "hello good.example") || !strings.Contains(out, "403 ") || !strings.Contains(out, "evil.example") {
			t.Errorf("%s: %v, %q", name, err, out)
		}
	}
}

func TestCurlTrustsTheAuthorityUnderInspection(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	port, trust := secure(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s", r.Proto, r.Method, r.URL.Path)
	}))
	p := startWith(t, `{"network": {"allowedCIDRs": ["127.0.0.0/8"], "rules": [{"host": "example.com", "ports": ["*"], "methods": ["GET"], "action": "allow", "inspect": true}]}}`,
		[]string{"SSL_CERT_FILE=" + trust}, config.RoleMixed)
	p.here("example.com.")
	ca := p.trust()
	for _, c := range []struct{ flag, want string }{{"--http1.1", "HTTP/1.1 GET /x"}, {"--http2", "HTTP/2.0 GET /x"}} {
		got, err := p.client(t.TempDir(), "curl", "-sS", c.flag, "--cacert", ca, "https://example.com:"+port+"/x")
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %q", c.flag, err, got)
		}
		got, err = p.client(t.TempDir(), "curl", "-sS", c.flag, "--cacert", ca, "-X", "DELETE", "https://example.com:"+port+"/x")
		if err != nil || !strings.Contains(got, "DELETE example.com:"+port+" is not allowed") {
			t.Errorf("%s: %v, %q", c.flag, err, got)
		}
	}
	if got, err := p.client(t.TempDir(), "curl", "-sS", "https://example.com:"+port+"/x"); err == nil {
		t.Errorf("without the authority: %q", got)
	}
}
