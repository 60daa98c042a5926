package sandbox

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	gate "github.com/bailey-sandbox/bailey/internal/gate/launch"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// bundles are where systems keep the certificates they trust.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
}

// openAuthority finds the certificate authority of the network gate, has it made
// if there is none, and puts its certificate beside those that the host trusts.
func openAuthority(dir string, environ []string) (*spec.Authority, error) {
	certificate := filepath.Join(dir, "authority.crt")
	if _, err := os.Stat(certificate); err != nil {
		if err := gate.MakeAuthority(dir); err != nil {
			return nil, err
		}
	}
	a := &spec.Authority{Dir: dir, Bundle: filepath.Join(dir, "bundle.crt"), Store: filepath.Join(dir, "bundle.jks")}
	var trusted []byte
	for _, name := range bundles {
		real, err := filepath.EvalSymlinks(name)
		if err != nil {
			continue
		}
		a.Replaces = append(a.Replaces, real)
		if trusted == nil {
			trusted, _ = os.ReadFile(real) // without it only the gate's own is trusted
		}
	}
	if name := variable(environ, "SSL_CERT_FILE"); name != "" {
		if data, err := os.ReadFile(name); err == nil {
			trusted = data
		}
	}
	own, err := os.ReadFile(certificate)
	if err != nil {
		return nil, err
	}
	return a, writeBundles(a, append(append(bytes.TrimSpace(trusted), '\n'), own...))
}

// writeBundles writes the certificates in both formats, the second before the
// first, which says that both are there.
func writeBundles(a *spec.Authority, data []byte) error {
	old, err := os.ReadFile(a.Bundle)
	if err == nil && bytes.Equal(old, data) {
		if _, err := os.Stat(a.Store); err == nil {
			return nil
		}
	}
	if err := replaceBundle(a.Store, javaStore(data)); err != nil {
		return err
	}
	return replaceBundle(a.Bundle, data)
}

// variable is the value of a variable, of several the last.
func variable(environ []string, name string) (value string) {
	for _, v := range environ {
		if rest, ok := strings.CutPrefix(v, name+"="); ok {
			value = rest
		}
	}
	return value
}

// replaceBundle replaces a file at once: a sandbox that stands shows the old one.
func replaceBundle(name string, data []byte) error {
	fresh := name + "." + strconv.Itoa(os.Getpid())
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync() // whether it is there is all that is looked at next time
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(fresh, name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	return nil
}
