// Package authority is the certificate authority that signs for hosts whose TLS
// the gate opens. Each user has one, made on first use and kept outside of every
// sandbox; only sandboxes are told to trust it. Its key never leaves the machine,
// and nothing of it is the same for two users.
package authority

import (
	"container/list"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
)

const (
	lifetime = 10 * 365 * 24 * time.Hour
	// renewal is how long before its end an authority is replaced.
	renewal = 30 * 24 * time.Hour
	// leafLifetime is short: a leaf is made anew in every gate.
	leafLifetime = 7 * 24 * time.Hour
	// skew is how much slower a clock inside may go.
	skew = 24 * time.Hour

	maxLeaves = 1024
)

// Authority signs certificates.
type Authority struct {
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	leafKey *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves map[hostname.Host]*list.Element
	recent *list.List // of *leaf, the latest first
}

type leaf struct {
	host hostname.Host
	cert *tls.Certificate
}

// Certificate returns a certificate for a host, with the chain up to the
// authority.
func (a *Authority) Certificate(host hostname.Host) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if place := a.leaves[host]; place != nil {
		l := place.Value.(*leaf)
		if time.Now().Before(l.cert.Leaf.NotAfter.Add(-skew)) {
			a.recent.MoveToFront(place)
			return l.cert, nil
		}
		a.forget(place)
	}
	cert, err := a.sign(host)
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", host, err)
	}
	a.leaves[host] = a.recent.PushFront(&leaf{host, cert})
	if a.recent.Len() > maxLeaves {
		a.forget(a.recent.Back())
	}
	return cert, nil
}

func (a *Authority) forget(place *list.Element) {
	delete(a.leaves, place.Value.(*leaf).host)
	a.recent.Remove(place)
}

// PEM is the certificate that a sandbox has to trust.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: typeCertificate, Bytes: a.cert.Raw})
}

func (a *Authority) sign(host hostname.Host) (*tls.Certificate, error) {
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{Organization: []string{organization}},
		NotBefore:    now.Add(-skew),
		NotAfter:     earlier(now.Add(leafLifetime), a.cert.NotAfter),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if host.IsAddr() {
		template.IPAddresses = []net.IP{host.Addr().AsSlice()}
	} else {
		template.DNSNames = []string{host.Name()}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.leafKey.Public(), a.key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: a.leafKey, Leaf: parsed}, nil
}

const organization = "Bailey network gate"

// generate makes a new authority, as it is kept in a file.
func generate(owner string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{organization}, CommonName: "Bailey sandboxes of " + owner},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	data := pem.EncodeToMemory(&pem.Block{Type: typeKey, Bytes: secret})
	return append(data, pem.EncodeToMemory(&pem.Block{Type: typeCertificate, Bytes: cert})...), nil
}

const (
	typeKey         = "PRIVATE KEY"
	typeCertificate = "CERTIFICATE"
)

// parse reads what generate made.
func parse(data []byte) (*Authority, error) {
	key, rest := pem.Decode(data)
	cert, _ := pem.Decode(rest)
	if key == nil || cert == nil || key.Type != typeKey || cert.Type != typeCertificate {
		return nil, errors.New("not a key and its certificate")
	}
	parsed, err := x509.ParseCertificate(cert.Bytes)
	if err != nil {
		return nil, err
	}
	secret, err := x509.ParsePKCS8PrivateKey(key.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := secret.(*ecdsa.PrivateKey)
	if !ok || !parsed.IsCA || !signer.PublicKey.Equal(parsed.PublicKey) {
		return nil, errors.New("the key and the certificate do not belong together")
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return &Authority{cert: parsed, key: signer, leafKey: leafKey, leaves: map[hostname.Host]*list.Element{}, recent: list.New()}, nil
}

func serialNumber() (*big.Int, error) {
	const bits = 127
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), bits))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
