package sdk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
)

// Options say which server to use.
type Options struct {
	// Address is unix:/PATH, http://HOST:PORT or https://HOST:PORT. Empty is
	// $BAILEY_ADDRESS or, if that is empty, a server of this program's own.
	Address string
	// Token is needed on every address but a unix socket of one's own. Empty is
	// $BAILEY_TOKEN.
	Token string
	// Transport carries requests over HTTP; nil is one with default settings.
	Transport *http.Transport
}

// Client is a connection to a server. It may be used by several goroutines. The
// services are all that the server does; the rest of this package is easier.
type Client struct {
	Server    baileyv1connect.ServerServiceClient
	Codebases baileyv1connect.CodebaseServiceClient
	Sandboxes baileyv1connect.SandboxServiceClient
	Execs     baileyv1connect.ExecServiceClient
	Sessions  baileyv1connect.SessionServiceClient
	Files     baileyv1connect.FileServiceClient

	address  string
	http     *http.Client
	embedded *embedded
}

// Connect returns a client of a server. Nothing is sent yet, but if there is no
// address a server is started.
func Connect(o Options) (*Client, error) {
	c := &Client{address: first(o.Address, os.Getenv("BAILEY_ADDRESS"))}
	if c.address == "" {
		var err error
		if c.embedded, err = startEmbedded(); err != nil {
			return nil, err
		}
		c.address = c.embedded.address
	}
	base, transport, err := route(c.address, o.Transport)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.http = &http.Client{Transport: transport}
	options := connect.WithInterceptors(&persistence{token: first(o.Token, os.Getenv("BAILEY_TOKEN"))})
	c.Server = baileyv1connect.NewServerServiceClient(c.http, base, options)
	c.Codebases = baileyv1connect.NewCodebaseServiceClient(c.http, base, options)
	c.Sandboxes = baileyv1connect.NewSandboxServiceClient(c.http, base, options)
	c.Execs = baileyv1connect.NewExecServiceClient(c.http, base, options)
	c.Sessions = baileyv1connect.NewSessionServiceClient(c.http, base, options)
	c.Files = baileyv1connect.NewFileServiceClient(c.http, base, options)
	return c, nil
}

// Address is that of the server.
func (c *Client) Address() string { return c.address }

// Close closes connections, and ends a server that Connect has started with all
// its sandboxes. On another server sandboxes go on.
func (c *Client) Close() error {
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
	if c.embedded != nil {
		return c.embedded.close()
	}
	return nil
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// route returns the address as net/http wants it, and what goes there.
func route(address string, transport *http.Transport) (string, *http.Transport, error) {
	if transport == nil {
		transport = http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = 64
		transport.DisableCompression = true
	}
	path, isUnix := strings.CutPrefix(address, "unix:")
	switch {
	case isUnix:
		transport = transport.Clone()
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
		return "http://localhost", transport, nil
	case strings.HasPrefix(address, "http://"), strings.HasPrefix(address, "https://"):
		return strings.TrimRight(address, "/"), transport, nil
	}
	return "", nil, fmt.Errorf("sdk: %q is no address: use unix:/PATH, http://HOST:PORT or https://HOST:PORT", address)
}

// Problem returns what the server said about an error, or nil if it said nothing:
// a reason to branch on, and what to do about it. The code is connect.CodeOf.
func Problem(err error) *baileyv1.Problem {
	var e *connect.Error
	if !errors.As(err, &e) {
		return nil
	}
	for _, d := range e.Details() {
		if m, err := d.Value(); err == nil {
			if p, ok := m.(*baileyv1.Problem); ok {
				return p
			}
		}
	}
	return nil
}
