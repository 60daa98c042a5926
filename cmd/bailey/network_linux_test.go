package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// inWorld runs a test in a network of its own, in which the test plays every
// server there is, and so knows of every question and every connection.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1), testenv.Program("unshare"))
	if os.Getenv("BAILEY_TEST_WORLD") == t.Name() {
		test(t, newWorld(t))
		return
	}
	testenv.Binary(t, "bailey")
	cmd := exec.Command("unshare", "--map-root-user", "--net", "--mount", "--", os.Args[0],
		"-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=120s")
	cmd.Env = append(os.Environ(), "BAILEY_TEST_WORLD="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v\n%s", err, out)
	}
}

// world is what is outside.
type world struct {
	*bench
	mu        sync.Mutex
	questions []string      // names the name server was asked for
	slow      chan struct{} // an answer to /slow waits for this
	served    []string      // "METHOD host:port path" of requests, or the address of a connection
	ca        string
}

// hosts are the names of the world. All lead to it, one to an address that
// nobody should reach.
var hosts = map[string][4]byte{
	"good.example.": {127, 0, 0, 1}, "also.good.example.": {127, 0, 0, 1}, "bad.example.": {127, 0, 0, 1},
	"private.example.": {10, 1, 2, 3}, "metadata.example.": {169, 254, 169, 254},
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{bench: newBench(t)}
	// HOME is the real one, where tools may be.
	up := exec.Command("ip", "link", "set", "lo", "up")
	if out, err := up.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	conf := filepath.Join(w.home, "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver 127.0.0.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(conf, real, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	w.serveNames(t)
	for _, port := range []string{"80", "8080"} {
		go http.Serve(w.listen(t, "127.0.0.1:"+port), http.HandlerFunc(w.answer))
	}
	go http.Serve(tls.NewListener(w.listen(t, "127.0.0.1:443"), w.certificates(t)), http.HandlerFunc(w.answer))
	return w
}

func (w *world) listen(t *testing.T, address string) net.Listener {
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func (w *world) answer(rw http.ResponseWriter, r *http.Request) {
	w.note(&w.served, r.Method+" "+r.Host+" "+r.URL.Path)
	if strings.HasPrefix(r.URL.Path, "/files/") {
		http.StripPrefix("/files/", http.FileServer(http.Dir(filepath.Join(w.home, "files")))).ServeHTTP(rw, r)
		return
	}
	if r.URL.Path == "/slow" {
		<-w.slow
		fmt.Fprint(rw, "slowly")
		return
	}
	if r.URL.Path == "/kill" {
		killGates()
		return
	}
	if r.URL.Path == "/header" {
		fmt.Fprint(rw, r.Header.Get("Authorization"))
		return
	}
	fmt.Fprint(rw, "answer from "+r.Host)
}

func (w *world) note(list *[]string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*list = append(*list, text)
}

// heard returns what the world heard since the last time.
func (w *world) heard() (questions, served []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	questions, served = w.questions, w.served
	w.questions, w.served = nil, nil
	return questions, served
}

// serveNames is the name server of the world.
func (w *world) serveNames(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := w.resolve(buf[:n]); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
}

func (w *world) resolve(question []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	w.note(&w.questions, q.Name.String())
	m.Response, m.RecursionAvailable = true, true
	m.Additionals = nil
	address, known := hosts[q.Name.String()]
	if !known {
		m.RCode = dnsmessage.RCodeNameError
	} else if q.Type == dnsmessage.TypeA {
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60},
			Body:   &dnsmessage.AResource{A: address},
		}}
	}
	reply, _ := m.Pack()
	return reply
}

// certificates are for every host of the world, by an authority that a file in
// the project names.
func (w *world) certificates(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "world"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		DNSNames: []string{"good.example", "also.good.example", "bad.example"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	w.ca = w.write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0o644)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// granting is a policy with these grants, and the world's addresses, which are
// all on loopback.
func granting(network string) string {
	return `{"network": {"allowedCIDRs": ["127.0.0.0/8"], ` + network + `}}`
}

// plainly is a command without the variables that name a proxy.
func plainly(argv ...string) []string {
	out := []string{"env"}
	for _, name := range []string{"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NODE_USE_ENV_PROXY"} {
		out = append(out, "-u", name)
	}
	return append(out, argv...)
}

// keep gives the world a keeper of its own.
func (w *world) keep(t *testing.T) {
	t.Helper()
	runtime := filepath.Join(w.home, "run")
	if err := os.Mkdir(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	w.env = append(w.env, "XDG_RUNTIME_DIR="+runtime)
}

func (w *world) under(policy string, argv ...string) result {
	return w.run(append([]string{"--policy", policy, "--"}, argv...)...)
}

func TestProgramsReachGrantedHostsAndNoOthers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		policy := granting(`"allowedDomains": ["good.example"]`)
		clients := map[string]func(url string) []string{
			"curl": func(url string) []string { return []string{"curl", "-sSf", "--max-time", "20", url} },
			"wget": func(url string) []string { return []string{"wget", "-qO-", "-T", "20", "-t", "1", url} },
			"python": func(url string) []string {
				return []string{"python3", "-c", "import urllib.request, sys; print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())", url}
			},
			"node": func(url string) []string {
				return []string{"node", "-e", "fetch(process.argv[1]).then(r => r.ok ? r.text() : Promise.reject(r.status)).then(console.log).catch(e => { console.error(e); process.exit(1) })", url}
			},
		}
		for name, client := range clients {
			program := client("")[0]
			if _, err := exec.LookPath(program); err != nil {
				t.Logf("%s is not installed", program)
				continue
			}
			for _, variables := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, variables %v", name, variables), func(t *testing.T) {
					call := func(url string) result {
						argv := client(url)
						if !variables {
							argv = plainly(argv...)
						}
						return w.under(policy, argv...)
					}
					w.heard()
					if got := call("http://good.example/x"); got.status != 0 || strings.TrimSpace(got.stdout) != "answer from good.example" {
						t.Errorf("granted: %+v", got)
					}
					if _, served := w.heard(); !slices.Equal(served, []string{"GET good.example /x"}) {
						t.Errorf("granted: the server heard %q", served)
					}
					for _, url := range []string{"http://bad.example/x", "http://good.example:8080/x", "http://unknown.example/"} {
						if got := call(url); got.status == 0 {
							t.Errorf("%s: %+v", url, got)
						}
						if questions, served := w.heard(); len(served) > 0 || slices.Contains(questions, "bad.example.") || slices.Contains(questions, "unknown.example.") {
							t.Errorf("%s: questions %q, requests %q", url, questions, served)
						}
					}
				})
			}
		}
	})
}

func TestTLSIsJudgedByTheNameInIt(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		policy := granting(`"allowedDomains": ["*.good.example", "good.example"]`)
		for _, variables := range []bool{true, false} {
			call := func(args ...string) result {
				argv := append([]string{"curl", "-sSf", "--max-time", "20", "--cacert", w.ca}, args...)
				if !variables {
					argv = plainly(argv...)
				}
				return w.under(policy, argv...)
			}
			if got := call("https://also.good.example/s"); got.stdout != "answer from also.good.example" {
				t.Errorf("variables %v: %+v", variables, got)
			}
			w.heard()
			if got := call("https://bad.example/s"); got.status == 0 {
				t.Errorf("variables %v: bad: %+v", variables, got)
			}
			// A granted address, and another name in the greeting.
			if got := call("--connect-to", "bad.example:443:good.example:443", "https://bad.example/s"); got.status == 0 {
				t.Errorf("variables %v: a hidden name: %+v", variables, got)
			}
			if _, served := w.heard(); len(served) > 0 {
				t.Errorf("variables %v: the server heard %q", variables, served)
			}
		}
	})
}

func TestAddressesAreRefusedUnlessGranted(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		w.write("policy.jsonc", `{"network": {"allowedDomains": ["good.example", "private.example", "metadata.example"]}}`, 0o644)
		for _, url := range []string{
			"http://127.0.0.1:8080/", "http://169.254.169.254/", "http://10.1.2.3/", "http://[::ffff:127.0.0.1]/",
			"http://good.example/", // resolves to loopback, which this policy does not grant
			"http://private.example/", "http://metadata.example/",
		} {
			for _, variables := range []bool{true, false} {
				argv := []string{"curl", "-sSf", "--max-time", "20", url}
				if !variables {
					argv = plainly(argv...)
				}
				got := w.run(append([]string{"-s", filepath.Join(w.dir, "policy.jsonc"), "--"}, argv...)...)
				if _, served := w.heard(); got.status == 0 || len(served) > 0 {
					t.Errorf("%s: %+v, the server heard %q", url, got, served)
				}
			}
		}
		policy := `{"network": {"allowedCIDRs": ["127.0.0.1/32"], "rules": [{"host": "127.0.0.1", "ports": ["8080"], "action": "allow"}]}}`
		if got := w.under(policy, "curl", "-sS", "--noproxy", "", "--max-time", "20", "http://127.0.0.1:8080/"); got.stdout != "answer from 127.0.0.1:8080" {
			t.Errorf("a granted address: %+v", got)
		}
	})
}

func TestGrantedPortsOfLoopbackAreTheHosts(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"), testenv.Program("python3"))
	inWorld(t, func(t *testing.T, w *world) {
		policy := `{"network": {"allowLocalOutboundPorts": ["8080"]}}`
		for _, policy := range []string{policy, `{"network": {"allowedDomains": ["*"], "allowLocalOutboundPorts": ["8080"]}}`} {
			if got := w.under(policy, "curl", "-sS", "--max-time", "20", "http://127.0.0.1:8080/"); got.stdout != "answer from 127.0.0.1:8080" {
				t.Errorf("%s: granted: %+v", policy, got)
			}
			if got := w.under(policy, "curl", "-sS", "--max-time", "20", "http://127.0.0.1:80/"); got.status == 0 {
				t.Errorf("%s: not granted: %+v", policy, got)
			}
		}
		for _, c := range []struct{ network, url, want string }{
			{`"allowedDomains": ["127.0.0.1"]`, "http://127.0.0.1/", "answer from 127.0.0.1"},
			{`"allowedDomains": ["127.0.0.1"]`, "http://localhost/", "answer from localhost"},
			{`"allowedDomains": ["localhost"]`, "http://localhost/", "answer from localhost"},
			{`"allowedDomains": ["localhost"]`, "http://127.0.0.1:8080/", ""},
			{`"allowedDomains": ["localhost"], "allowLocalOutbound": false`, "http://localhost/", ""},
			{`"allowedDomains": ["localhost"], "deniedDomains": ["localhost"]`, "http://127.0.0.1/", ""},
			{`"rules": [{"host": "127.0.0.1", "ports": [8080], "action": "allow"}]`, "http://127.0.0.1:8080/", "answer from 127.0.0.1:8080"},
			{`"rules": [{"host": "127.0.0.1", "ports": [8080], "action": "allow"}]`, "http://127.0.0.1/", ""},
			{`"allowedCIDRs": ["127.0.0.0/8"]`, "http://127.0.0.1:8080/", ""},
			{`"allowedCIDRs": ["127.0.0.0/8"], "deniedDomains": ["127.0.0.1"]`, "http://127.0.0.1:8080/", ""},
		} {
			policy := `{"network": {` + c.network + `}}`
			if got := w.under(policy, "curl", "-sSf", "--max-time", "20", c.url); got.stdout != c.want {
				t.Errorf("%s, %s: %+v", c.network, c.url, got)
			}
			host := strings.Trim(strings.TrimPrefix(c.url, "http:"), "/")
			if !strings.Contains(host, ":") {
				host += ":80"
			}
			if got := w.run("--policy", policy, "explain", "host", host); strings.Contains(got.stdout, host+" can be reached") != (c.want != "") {
				t.Errorf("explain %s, %s: %+v", c.network, host, got)
			}
		}
		const own = `
import socket
s = socket.socket(); s.bind(("127.0.0.1", 80 + 8001)); s.listen()
c = socket.create_connection(s.getsockname()); print("own")`
		w.under(policy, "python3", "-c", own).want(t, 0, "own\n", "")
	})
}

func TestNetworkDenialsAreToldAndRecorded(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		got := w.under(granting(`"allowedDomains": ["good.example"]`), "sh", "-c",
			"curl -s -o /dev/null http://good.example/p; curl -s -o /dev/null http://bad.example/q; curl -s -o /dev/null http://bad.example/q; exit 0")
		if got.status != 0 || strings.Count(got.stderr, "bad.example:80") != 1 || !strings.Contains(got.stderr, `network.allowedDomains: "bad.example"`) || strings.Contains(got.stderr, "good.example") {
			t.Errorf("stderr %q", got.stderr)
		}
		log := w.run("log", "--json", "--kind", "deny", "--kind", "connection")
		var kinds []string
		for line := range strings.Lines(log.stdout) {
			var e struct{ Kind, Host, Method string }
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, e.Kind+" "+e.Host+" "+e.Method)
		}
		if want := []string{"connection good.example GET", "deny bad.example GET", "deny bad.example GET"}; !slices.Equal(kinds, want) {
			t.Errorf("recorded %q", kinds)
		}
	})
}

// A gate of the test's own says when it is started.
func TestTheGateStartsWithTheFirstConnection(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		bin := filepath.Join(w.home, "bin")
		if err := os.Mkdir(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		real := filepath.Dir(testenv.Binary(t, "bailey"))
		if err := os.Link(filepath.Join(real, "bailey"), filepath.Join(bin, "bailey")); err != nil {
			data, err := os.ReadFile(filepath.Join(real, "bailey"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(bin, "bailey"), data, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		mark := filepath.Join(w.home, "started")
		script := "#!/bin/sh\ntouch " + mark + "\nexec " + filepath.Join(real, "bailey-gate") + ` "$@"` + "\n"
		if err := os.WriteFile(filepath.Join(bin, "bailey-gate"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		run := func(argv ...string) result {
			cmd := exec.Command(filepath.Join(bin, "bailey"), append([]string{"--policy", granting(`"allowedDomains": ["good.example"]`), "--"}, argv...)...)
			cmd.Dir, cmd.Env = w.dir, w.env
			return w.collect(cmd)
		}
		run("true").want(t, 0, "", "")
		if _, err := os.Stat(mark); err == nil {
			t.Error("it was started for nothing")
		}
		if got := run("curl", "-sS", "http://good.example/"); got.stdout != "answer from good.example" {
			t.Errorf("%+v", got)
		}
		if _, err := os.Stat(mark); err != nil {
			t.Error(err)
		}
		if err := os.Remove(filepath.Join(bin, "bailey-gate")); err != nil {
			t.Fatal(err)
		}
		run("echo", "ran").wantError(t, "network gate, bailey-gate, is not beside bailey")
	})
}

func TestKeptSandboxesHaveAGateOfTheirOwn(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		w.keep(t)
		defer w.run("box", "stop", "--all")
		policy := granting(`"allowedDomains": ["good.example"]`)
		for _, name := range []string{"one", "two", "one"} {
			got := w.run("-k", name, "--policy", policy, "--", "curl", "-sS", "http://good.example/"+name)
			if got.stdout != "answer from good.example" {
				t.Errorf("%+v", got)
			}
			// The command may end before the keeper has heard of the denial.
			w.until("a denial is told", func() bool {
				got := w.run("-k", name, "--policy", policy, "--", "curl", "-sSf", "http://bad.example/")
				if got.status == 0 {
					t.Errorf("%+v", got)
				}
				return strings.Contains(got.stderr, "denied: connect bad.example:80")
			})
		}
		_, served := w.heard()
		if want := []string{"GET good.example /one", "GET good.example /two", "GET good.example /one"}; !slices.Equal(served, want) {
			t.Errorf("the server heard %q", served)
		}
	})
}

func TestCredentialsNeverEnter(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		const secret = "ghp_0123456789abcdefghijABCDEFGHIJ456789"
		w.env = append(w.env, "SSL_CERT_FILE="+w.ca, "SERVICE_TOKEN="+secret)
		policy := granting(`"allowedDomains": ["good.example", "also.good.example"], "inject": [
			{"hosts": ["good.example"], "bearer": true, "fromEnv": "SERVICE_TOKEN", "placeholder": "SERVICE_TOKEN"}]`)
		for _, scheme := range []string{"http", "https"} {
			for _, variables := range []bool{true, false} {
				call := func(host string) result {
					argv := []string{"curl", "-sSf", "--max-time", "20", "-H", "Authorization: Bearer none", scheme + "://" + host + "/header"}
					if !variables {
						argv = plainly(argv...)
					}
					return w.under(policy, argv...)
				}
				if got := call("good.example"); got.stdout != "Bearer "+secret {
					t.Errorf("%s, variables %v: %+v", scheme, variables, got)
				}
				if got := call("also.good.example"); got.stdout != "Bearer none" {
					t.Errorf("%s, variables %v: another host: %+v", scheme, variables, got)
				}
			}
		}
		w.credentialsOfKeptSandboxes(t, policy)
		got := w.under(policy, "sh", "-c", "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; grep -rs ghp_0 /tmp ~ /.bailey | head -1")
		if strings.Contains(got.stdout, secret) || !strings.Contains(got.stdout, "SERVICE_TOKEN=bailey-adds-it-outside") {
			t.Errorf("inside: %+v", got)
		}
		if log := w.run("log", "--json"); strings.Contains(log.stdout, secret) || !strings.Contains(log.stdout, "good.example") {
			t.Errorf("the log: %q", log.stdout)
		}
	})
}

// credentialsOfKeptSandboxes are those of who asks for a sandbox that stays; the
// keeper, which starts the gate, was started without any.
func (w *world) credentialsOfKeptSandboxes(t *testing.T, policy string) {
	t.Helper()
	const other = "ghp_abcdefghijABCDEFGHIJ0123456789456789"
	w.keep(t)
	defer w.run("box", "stop", "--all")
	mine := w.env
	defer func() { w.env = mine }()
	w.env = slices.DeleteFunc(slices.Clone(mine), func(v string) bool { return strings.HasPrefix(v, "S") })
	if got := w.run("-k", "first", "--", "true"); got.status != 0 {
		t.Errorf("%+v", got)
	}
	call := []string{"-k", "dev", "--policy", policy, "--", "curl", "-sS", "--max-time", "20", "https://good.example/header"}
	w.env = mine
	for range 2 {
		if got := w.run(call...); !strings.HasPrefix(got.stdout, "Bearer ghp_0") || strings.Contains(got.stderr, "has changed") {
			t.Errorf("in a sandbox that stays: %+v", got)
		}
	}
	// Another value is another sandbox, and a reload takes the one that there is now.
	w.env = append(slices.Clone(mine), "SERVICE_TOKEN="+other)
	if got := w.run(call...); got.stdout != "Bearer "+other || !strings.Contains(got.stderr, "has changed") {
		t.Errorf("with another value: %+v", got)
	}
	w.env = mine
	if got := w.run("--policy", policy, "box", "reload", "dev"); got.status != 0 {
		t.Errorf("%+v", got)
	}
	if got := w.run("box", "exec", "dev", "--", "curl", "-sS", "--max-time", "20", "https://good.example/header"); !strings.HasPrefix(got.stdout, "Bearer ghp_0") {
		t.Errorf("after a reload: %+v", got)
	}
}

func TestInspectedRequestsAreJudgedByMethodAndPath(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		w.env = append(w.env, "SSL_CERT_FILE="+w.ca)
		policy := granting(`"rules": [
			{"host": "good.example", "methods": ["GET"], "paths": ["/open/**"], "action": "allow", "inspect": true}]`)
		for _, test := range []struct {
			args []string
			ok   bool
		}{
			{[]string{"https://good.example/open/a"}, true},
			{[]string{"-X", "POST", "https://good.example/open/a"}, false},
			{[]string{"https://good.example/closed"}, false},
			{[]string{"--path-as-is", "https://good.example/open/../closed"}, false},
			{[]string{"--path-as-is", "https://good.example/open/%2e%2e/closed"}, false},
		} {
			for _, how := range []string{"--http1.1", "--http2"} {
				w.heard()
				argv := append([]string{"curl", "-sSf", "--max-time", "20", how}, test.args...)
				got := w.under(policy, argv...)
				if _, served := w.heard(); (got.status == 0) != test.ok || !test.ok && len(served) > 0 {
					t.Errorf("%q: %+v, the server heard %q", argv, got, served)
				}
			}
		}
	})
}

func TestGitAndLargeDownloadsWork(t *testing.T) {
	testenv.Requires(t, testenv.Program("git"), testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		files := filepath.Join(w.home, "files")
		for _, line := range []string{
			"mkdir -p " + files + " && cd " + files + " && git init -q src && cd src && echo hi > f && git add f && git -c user.name=t -c user.email=t@t commit -qm x",
			"git clone -q --bare " + files + "/src " + files + "/repo.git && git -C " + files + "/repo.git update-server-info",
			"head -c 50000000 /dev/urandom > " + files + "/large",
		} {
			if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", line, err, out)
			}
		}
		policy := granting(`"allowedDomains": ["good.example"]`)
		for _, argv := range [][]string{
			{"git", "clone", "-q", "http://good.example/files/repo.git", "one"},
			plainly("git", "clone", "-q", "http://good.example/files/repo.git", "two"),
		} {
			if got := w.under(policy, argv...); got.status != 0 {
				t.Errorf("%q: %+v", argv, got)
			}
		}
		want, err := os.ReadFile(filepath.Join(files, "large"))
		if err != nil {
			t.Fatal(err)
		}
		for _, argv := range [][]string{
			{"curl", "-sSo", "large", "http://good.example/files/large"},
			plainly("curl", "-sSo", "large", "https://good.example/files/large", "--cacert", w.ca),
		} {
			if got := w.under(policy, argv...); got.status != 0 {
				t.Errorf("%q: %+v", argv, got)
			}
			f, err := os.Open(filepath.Join(w.dir, "large"))
			if err != nil {
				t.Fatal(err)
			}
			data, _ := io.ReadAll(f)
			f.Close()
			if !bytes.Equal(data, want) {
				t.Errorf("%q: %d bytes of %d, or others", argv, len(data), len(want))
			}
		}
	})
}
