package authority

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
)

func open(t testing.TB, dir string) *Authority {
	t.Helper()
	a, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func host(t testing.TB, s string) hostname.Host {
	t.Helper()
	h, err := hostname.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestClientThatTrustsTheAuthorityTrustsItsCertificates(t *testing.T) {
	a := open(t, t.TempDir())
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.PEM()) {
		t.Fatal("no certificate")
	}
	for _, name := range []string{"example.com", "a.b.example.com", "xn--bcher-kva.example", "192.0.2.1", "2001:db8::1"} {
		cert, err := a.Certificate(host(t, name))
		if err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		go func() { _ = tls.Server(far, &tls.Config{Certificates: []tls.Certificate{*cert}}).Handshake() }()
		if err := tls.Client(near, &tls.Config{RootCAs: roots, ServerName: name}).Handshake(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	cert, _ := a.Certificate(host(t, "example.com"))
	if err := cert.Leaf.VerifyHostname("other.com"); err == nil {
		t.Error("a certificate is good for another host")
	}
	if cert.Leaf.IsCA {
		t.Error("a leaf can sign")
	}
}

func TestAuthorityIsKeptAndPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	first, again := open(t, dir), open(t, dir)
	if !bytes.Equal(first.PEM(), again.PEM()) {
		t.Error("a second authority was made")
	}
	for name, want := range map[string]fs.FileMode{"": 0o700 | fs.ModeDir, secretFile: 0o600, CertificateFile: 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%s: got %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	public, _ := os.ReadFile(filepath.Join(dir, CertificateFile))
	if !bytes.Equal(public, first.PEM()) || bytes.Contains(public, []byte("PRIVATE")) {
		t.Errorf("got %s", public)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 2 {
		t.Errorf("something is left: %v", entries)
	}
	other := open(t, t.TempDir())
	if bytes.Equal(first.PEM(), other.PEM()) {
		t.Error("two users share an authority")
	}
}

func TestGatesThatStartAtOnceAgree(t *testing.T) {
	dir := t.TempDir()
	var wait sync.WaitGroup
	certs := make([][]byte, 8)
	for i := range certs {
		wait.Go(func() { certs[i] = open(t, dir).PEM() })
	}
	wait.Wait()
	for _, c := range certs {
		if !bytes.Equal(c, certs[0]) {
			t.Fatal("two authorities were made")
		}
	}
}

func TestSecretThatOthersReachIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"readable": func(dir string) error { return os.Chmod(filepath.Join(dir, secretFile), 0o640) },
		"damaged":  func(dir string) error { return os.WriteFile(filepath.Join(dir, secretFile), []byte("x"), 0o600) },
		"a link": func(dir string) error {
			if err := os.Rename(filepath.Join(dir, secretFile), filepath.Join(dir, "x")); err != nil {
				return err
			}
			return os.Symlink("x", filepath.Join(dir, secretFile))
		},
	} {
		dir := t.TempDir()
		open(t, dir)
		if err := spoil(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); err == nil {
			t.Errorf("%s: it was used", name)
		}
	}
}

func TestCertificatesAreKeptWithinBounds(t *testing.T) {
	a := open(t, t.TempDir())
	first, _ := a.Certificate(host(t, "first.example"))
	if again, _ := a.Certificate(host(t, "first.example")); again != first {
		t.Error("a certificate was made twice")
	}
	for i := range maxLeaves + 10 {
		if _, err := a.Certificate(host(t, fmt.Sprintf("h%d.example", i))); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.leaves) != maxLeaves || a.recent.Len() != maxLeaves {
		t.Errorf("%d certificates are kept", len(a.leaves))
	}
}
