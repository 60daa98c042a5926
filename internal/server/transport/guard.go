package transport

import (
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// guard refuses requests that a web page could have made a browser send: from a
// foreign origin, under a name that somebody else's DNS made point here, or with
// a content type for which browsers ask nobody's leave. A token is needed
// besides; this holds for whoever has one in a browser, and for what needs none.
func (t *Transport) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, check := range []func(*http.Request) *refusal{t.checkHost, t.checkOrigin, checkContentType} {
			if refused := check(r); refused != nil {
				reject(w, r, refused)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// refusal is an error with the status that it has in plain HTTP.
type refusal struct {
	status int
	err    *connect.Error
}

// checkHost refuses names that are not the server's. An address is its own proof:
// only names can be made to point elsewhere. No browser reaches a unix socket.
func (t *Transport) checkHost(r *http.Request) *refusal {
	if peerOf(r.Context()).unix {
		return nil
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil || slices.ContainsFunc(t.config.Hosts, func(name string) bool { return strings.EqualFold(name, host) }) {
		return nil
	}
	return &refusal{http.StatusMisdirectedRequest, problem.New(connect.CodePermissionDenied, "unknown_host",
		fmt.Errorf("the server is not called %q", host),
		problem.Remedy("use an address or localhost, or start the server with --host %s", host))}
}

// checkOrigin refuses pages of other sites. Programs that are no browsers send no
// Origin.
func (t *Transport) checkOrigin(r *http.Request) *refusal {
	origin := r.Header.Get("Origin")
	if origin == "" {
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
			return foreign("another site")
		}
		return nil
	}
	if len(r.Header.Values("Origin")) == 1 && (slices.Contains(t.config.Origins, origin) || sameOrigin(origin, r)) {
		return nil
	}
	return foreign(origin)
}

func sameOrigin(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return err == nil && u.Scheme == scheme && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

func foreign(origin string) *refusal {
	return &refusal{http.StatusForbidden, problem.New(connect.CodePermissionDenied, "foreign_origin",
		fmt.Errorf("pages of %q may not call this server", origin),
		problem.Remedy("start the server with --origin, if they should"))}
}

// checkContentType refuses the types that a page may send to any server without
// asking it first.
func checkContentType(r *http.Request) *refusal {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.ContentLength == 0 {
		return nil
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil, kind == "text/plain", kind == "application/x-www-form-urlencoded", strings.HasPrefix(kind, "multipart/"):
		return &refusal{http.StatusUnsupportedMediaType, problem.New(connect.CodeInvalidArgument, "content_type",
			errors.New("a body needs a content type that says what it is"),
			problem.Remedy("send Content-Type: application/json, or application/octet-stream for files and archives"))}
	}
	return nil
}
