package transport

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/server/token"
)

// tokenProtocol is the beginning of a WebSocket subprotocol that carries a token,
// because pages cannot set the header Authorization of a WebSocket.
const tokenProtocol = "bearer."

// authenticated passes on requests of which it is known who sent them.
func (t *Transport) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, refused := t.identify(r)
		if refused != nil {
			if refused.status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="bailey"`)
			}
			reject(w, r, refused)
			return
		}
		note(r.Context(), c)
		if refused := t.pace.check(w, c); refused != nil {
			reject(w, r, refused)
			return
		}
		next.ServeHTTP(w, r.WithContext(caller.With(r.Context(), c)))
	})
}

// identify finds out who sent a request. A token that does not hold is refused
// even where none is needed: who sends one means to be that owner.
func (t *Transport) identify(r *http.Request) (caller.Caller, *refusal) {
	text, given := bearer(r)
	if !given {
		if peer := peerOf(r.Context()); peer.own {
			return caller.Local(t.config.LocalOwner), nil
		}
		return caller.Caller{}, unauthenticated("token_missing", errors.New("a token is needed"))
	}
	if t.config.Tokens == nil {
		return caller.Caller{}, unauthenticated("token_invalid", token.ErrInvalid)
	}
	c, err := t.config.Tokens.Find(r.Context(), text)
	if errors.Is(err, token.ErrInvalid) {
		return caller.Caller{}, unauthenticated("token_invalid", err)
	}
	if err != nil {
		t.config.Log.ErrorContext(r.Context(), "looking up a token", "error", err)
		return caller.Caller{}, &refusal{http.StatusServiceUnavailable, problem.Unavailable("store_unavailable", errors.New("tokens cannot be looked up now"))}
	}
	return c, nil
}

func unauthenticated(reason string, err error) *refusal {
	return &refusal{http.StatusUnauthorized, problem.New(connect.CodeUnauthenticated, reason, err,
		problem.Remedy("on the server's machine: baileyd token create; then send the header Authorization: Bearer TOKEN"))}
}

// bearer returns the token of a request, if there is one in any place for it.
func bearer(r *http.Request) (string, bool) {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, text, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return "", true // another scheme is a token that does not hold
		}
		return strings.TrimSpace(text), true
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return "", false
	}
	for _, header := range r.Header.Values("Sec-WebSocket-Protocol") {
		for protocol := range strings.SplitSeq(header, ",") {
			if text, ok := strings.CutPrefix(strings.TrimSpace(protocol), tokenProtocol); ok {
				return text, true
			}
		}
	}
	return "", false
}

// demanding passes on requests of callers that have a scope.
func demanding(s caller.Scope, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := caller.From(r.Context()).Demand(s); err != nil {
			reject(w, r, refusalOf(err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func refusalOf(err error) *refusal {
	var e *connect.Error
	if !errors.As(err, &e) {
		e = problem.New(connect.CodeInternal, "internal", errors.New("internal error"))
	}
	return &refusal{httpStatus(e.Code()), e}
}

// peer is what is known of the other end of a connection.
type peer struct {
	unix bool // it came over a unix socket
	own  bool // it is a process of the server's own user, outside of any sandbox
}

type peerKey struct{}

func withPeer(ctx context.Context, p peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

func peerOf(ctx context.Context) peer {
	p, _ := ctx.Value(peerKey{}).(peer)
	return p
}
