package gate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"

	"github.com/bailey-sandbox/bailey/internal/gate/hello"
	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
)

// protocols that can be looked at inside TLS.
const (
	protocolHTTP1 = "http/1.1"
	protocolHTTP2 = "h2"
)

// inspect opens a TLS connection: the client speaks to the gate, which has a
// certificate for the host, and the gate to the server, whose certificate it
// verifies. Both speak the same version of HTTP.
func (t *tunnel) inspect(q rules.Query, h hello.Hello) error {
	ca, err := t.gate.authority(t.config.AuthorityDir)
	if err != nil {
		return t.refuse(speechTLS, err)
	}
	named := q.Host
	if h.ServerName != "" {
		if named, err = hostname.Parse(h.ServerName); err != nil {
			return t.refuse(speechTLS, err) // cannot be: it was checked
		}
	}
	cert, err := ca.Certificate(named)
	if err != nil {
		return t.refuse(speechTLS, err)
	}
	dial := func() (*leg, error) { return t.dialTLS(q, named, h.Protocols) }
	up, failed := dial()
	protocol := protocolHTTP1
	if failed == nil {
		t.address = up.address
		protocol = up.Conn.(*tls.Conn).ConnectionState().NegotiatedProtocol
	}
	client := tls.Server(t.client, &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: offered(h.Protocols, protocol)})
	ctx, cancel := context.WithTimeout(t.ctx, greetingTime)
	defer cancel()
	if err := client.HandshakeContext(ctx); err != nil {
		if up != nil {
			_ = up.Close()
		}
		return fmt.Errorf("the client does not trust the gate: %w", err)
	}
	if failed != nil {
		// Said in HTTP, where a person gets to read it.
		t.serveOrigin(t.wireOf(client), q, nil, func() (*leg, error) { return nil, failed })
		return errReported
	}
	if protocol == protocolHTTP2 {
		t.serveHTTP2(client, q, up, dial)
		return errReported
	}
	t.serveOrigin(t.wireOf(client), q, up, func() (*leg, error) { return t.dialTLS(q, named, []string{protocolHTTP1}) })
	return errReported
}

// dialTLS connects to the server, and speaks one of the protocols that the
// client does.
func (t *tunnel) dialTLS(q rules.Query, named hostname.Host, protocols []string) (*leg, error) {
	up := t.takeUp()
	if up == nil || !isOpen(up.Conn) {
		var err error
		if up, err = t.dial(q, t.grant); err != nil {
			return nil, err
		}
	}
	var offer []string
	for _, p := range []string{protocolHTTP2, protocolHTTP1} {
		if slices.Contains(protocols, p) {
			offer = append(offer, p)
		}
	}
	secure := tls.Client(up.wire, &tls.Config{ServerName: named.String(), RootCAs: t.gate.options.Roots, NextProtos: offer})
	ctx, cancel := context.WithTimeout(t.ctx, dialTime)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = up.Close()
		return nil, fmt.Errorf("%s: %w", q.Host.Join(q.Port), handshakeError(err))
	}
	return &leg{wire: newWire(secure), address: up.address, free: up.free}, nil
}

// handshakeError says what a person can do something about.
func handshakeError(err error) error {
	var verify *tls.CertificateVerificationError
	if errors.As(err, &verify) {
		return fmt.Errorf("the server's certificate is not trusted: %w", verify.Err)
	}
	return plainError(err)
}

// offered is what the client is offered: the one protocol that the server
// speaks, if the client knows any.
func offered(protocols []string, protocol string) []string {
	if protocol == "" {
		protocol = protocolHTTP1
	}
	if !slices.Contains(protocols, protocol) {
		return nil
	}
	return []string{protocol}
}
