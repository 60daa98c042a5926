// Package dial goes to a server by its address, with nothing between that sends again.
package dial

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// To returns an address as net/http wants it, and a client that goes there over a
// transport, which becomes its own. The address is unix:/PATH, http://HOST:PORT or
// https://HOST:PORT. A token is sent with every request, unless it is empty.
func To(address, token string, transport *http.Transport) (base string, client *http.Client, err error) {
	base = strings.TrimRight(address, "/")
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		base, transport.Proxy = "http://localhost", nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	} else if !strings.HasPrefix(base, "http://") && !strings.HasPrefix(base, "https://") {
		return "", nil, fmt.Errorf("%q is no address: use unix:/PATH, http://HOST:PORT or https://HOST:PORT", address)
	}
	return base, &http.Client{Transport: bearer{transport, token}}, nil
}

// bearer adds the token.
type bearer struct {
	*http.Transport
	token string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.Transport.RoundTrip(r)
}
