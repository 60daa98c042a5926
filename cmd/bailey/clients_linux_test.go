package main

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// Both names lead to the same servers, so that what is refused by name would
// have been answered.
const (
	grantedHost = "granted.example"
	refusedHost = "refused.example"
	siteAddress = "127.0.0.2"
)

func init() {
	for _, name := range []string{grantedHost, refusedHost} {
		hosts[name+"."] = [4]byte{127, 0, 0, 2}
	}
}

// site is the part of the world that unmodified programs are tried against.
type site struct {
	*world
	mux  *http.ServeMux
	vars map[string]string // set inside
	see  []string          // paths that can be read inside besides the default
	ssh  string            // what the policy says about ssh

	demands atomic.Pointer[string] // Authorization without which nobody is served, if not nil
}

// ServeHTTP implements http.Handler.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if want := s.demands.Load(); want != nil && r.Header.Get("Authorization") != *want {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// atSite runs a test in a world with a site on the ports of the web: HTTP/1.1
// and HTTP/2, in the clear and in TLS. Those who are tried are other programs, of
// which the race detector sees nothing.
func atSite(t *testing.T, test func(t *testing.T, s *site)) {
	testenv.Requires(t, testenv.NoRace)
	inWorld(t, func(t *testing.T, w *world) {
		s := &site{world: w, mux: http.NewServeMux(), vars: map[string]string{}}
		both := new(http.Protocols)
		both.SetHTTP1(true)
		both.SetHTTP2(true)
		both.SetUnencryptedHTTP2(true)
		server := &http.Server{Handler: s, Protocols: both, TLSConfig: s.identity(t)}
		go server.Serve(s.door(t, "80"))
		go server.ServeTLS(s.door(t, "443"), "", "")
		t.Cleanup(func() { server.Close() })
		test(t, s)
	})
}

// door is a listener of the site's. The world hears of everybody who comes.
func (s *site) door(t *testing.T, port string) net.Listener {
	t.Helper()
	return &door{s.listen(t, siteAddress+":"+port), s, port}
}

type door struct {
	net.Listener
	site *site
	port string
}

func (d *door) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err == nil {
		d.site.note(&d.site.served, "connection to port "+d.port)
	}
	return c, err
}

// identity is a certificate for both names, by an authority that the variables
// of many programs name inside.
func (s *site) identity(t *testing.T) *tls.Config {
	t.Helper()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of the site"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	own := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: grantedHost}, DNSNames: []string{grantedHost, refusedHost},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
	}
	signer, key := newKey(t), newKey(t)
	root, err := x509.CreateCertificate(rand.Reader, authority, authority, signer.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.CreateCertificate(rand.Reader, own, authority, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	file := s.write("authority.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root})), 0o644)
	for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE", "npm_config_cafile", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"} {
		s.vars[name] = file
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leaf}, PrivateKey: key}}}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// trustTheGate lets programs believe the gate in the site's place, and the gate
// the site.
func (s *site) trustTheGate() {
	file := s.vars["SSL_CERT_FILE"]
	maps.DeleteFunc(s.vars, func(_, value string) bool { return value == file })
	s.env = append(s.env, "SSL_CERT_FILE="+file)
}

// isGivenCredentials tries a client at a site that wants a credential, which the
// gate adds.
func (s *site) isGivenCredentials(t *testing.T, c client) {
	t.Run(c.name+", by a credential", func(t *testing.T) {
		const secret = "ghp_0123456789abcdefghijABCDEFGHIJ456789"
		s.trustTheGate()
		s.env = append(s.env, "SITE_TOKEN="+secret)
		want := "Bearer " + secret
		s.demands.Store(&want)
		network := `"allowedDomains": ["` + grantedHost + `"], "inject": [{"hosts": ["` + grantedHost + `"], "bearer": true, "fromEnv": "SITE_TOKEN"}]`
		s.succeeds(t, c, func(host string) result { return s.under(s.policy(network), c.argv(host)...) })
	})
}

// inspected grants the host, and opens its TLS.
const inspected = `"rules": [{"host": "` + grantedHost + `", "action": "allow", "inspect": true}]`

// python lets programs inside import the packages that scripts/test installs.
func (s *site) python(t *testing.T) {
	t.Helper()
	dir := pythonPackages(t)
	s.vars["PYTHONPATH"], s.vars["PYTHONDONTWRITEBYTECODE"] = dir, "1"
	s.see = append(s.see, dir)
}

// pythonPackages is where scripts/test installed them. They belong to the
// system's Python, whichever comes first in PATH.
func pythonPackages(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("BAILEY_TEST_PYTHON")
	if dir == "" {
		dir = filepath.Join(testenv.ModuleRoot(t), ".cache", "python")
	}
	return dir
}

const systemPython = "/usr/bin/python3"

// program copies a file of testdata/clients into the project.
func (s *site) program(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "clients", name))
	if err != nil {
		t.Fatal(err)
	}
	return s.write(name, string(text), 0o644)
}

// policy grants one of the two names, or what network says, and the site's
// addresses.
func (s *site) policy(network string) string {
	if network == "" {
		network = `"allowedDomains": ["` + grantedHost + `"]`
	}
	set, _ := json.Marshal(s.vars)
	see, _ := json.Marshal(append([]string{}, s.see...))
	return fmt.Sprintf(`{"network": {"allowedCIDRs": ["127.0.0.0/8"], %s}, "env": {"set": %s}, "filesystem": {"allowRead": %s}, "ssh": {%s}}`,
		network, set, see, s.ssh)
}

// client is a program that is tried with a host that is granted and with one
// that is not.
type client struct {
	name    string
	argv    func(host string) []string
	network string               // grants, if others than the usual
	works   func(r result) error // whether it did what it should; nil: status 0
	fix     string               // what would allow the other host, if not the usual
}

// reaches tries clients with the variables that name a proxy and without.
func (s *site) reaches(t *testing.T, clients ...client) {
	for _, c := range clients {
		for _, variables := range []bool{true, false} {
			s.tries(t, c, variables)
		}
	}
}

// tries runs a client with either host. What is refused is told with the name
// and with the line that would allow it, and neither the name server nor the
// site hears of it.
func (s *site) tries(t *testing.T, c client, variables bool) {
	t.Run(fmt.Sprintf("%s, variables %v", c.name, variables), func(t *testing.T) {
		call := func(host string) result {
			argv := c.argv(host)
			if !variables {
				argv = plainly(argv...)
			}
			return s.under(s.policy(c.network), argv...)
		}
		s.succeeds(t, c, call)
		s.isRefused(t, cmp.Or(c.fix, `network.allowedDomains: "`+refusedHost+`"`), call)
	})
}

func (s *site) succeeds(t *testing.T, c client, call func(host string) result) {
	t.Helper()
	s.heard()
	got := call(grantedHost)
	err := error(nil)
	if got.status != 0 {
		err = fmt.Errorf("status %d", got.status)
	} else if c.works != nil {
		err = c.works(got)
	}
	if err != nil {
		t.Errorf("granted: %v\n%s\n%s", err, got.stdout, got.stderr)
	}
	if _, served := s.heard(); len(served) == 0 {
		t.Error("granted: nobody came to the site")
	}
}

func (s *site) isRefused(t *testing.T, fix string, call func(host string) result) {
	t.Helper()
	got := call(refusedHost)
	if got.status == 0 {
		t.Errorf("refused, but the status is 0: %+v", got)
	}
	for _, text := range []string{"denied: connect " + refusedHost, fix} {
		if !strings.Contains(got.stderr, text) {
			t.Errorf("refused: stderr does not say %q:\n%s", text, got.stderr)
		}
	}
	s.wasNotDisturbed(t)
}

// wasNotDisturbed checks that nothing arrived, and that nobody asked for the
// name that is refused.
func (s *site) wasNotDisturbed(t *testing.T) {
	t.Helper()
	questions, served := s.heard()
	if len(served) > 0 || slices.Contains(questions, refusedHost+".") {
		t.Errorf("refused, but the name server was asked for %q and the site saw %q", questions, served)
	}
}

// prints is a client that worked if it printed this.
func prints(want string) func(result) error {
	return func(r result) error {
		if !strings.Contains(r.stdout, want) {
			return fmt.Errorf("it does not print %q", want)
		}
		return nil
	}
}

// leaves is a client that worked if it left these files, with these contents.
func (s *site) leaves(files map[string]string) func(result) error {
	return func(result) error {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			path := filepath.Join(s.dir, name)
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if string(data) != files[name] {
				return fmt.Errorf("%s holds %q", name, data)
			}
			if err := os.Remove(path); err != nil {
				return err
			}
		}
		return nil
	}
}
