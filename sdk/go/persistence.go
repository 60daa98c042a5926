package sdk

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	mathrand "math/rand/v2"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/propagation"
)

// attempts is how often a request is sent at most.
const attempts = 4

// persistence adds the token and the span that the context has, and sends requests that answer once again while the
// server cannot be reached or says that it may be. The key makes that safe: what
// a request changes is changed once.
type persistence struct{ token string }

var _ connect.Interceptor = (*persistence)(nil)

// WrapUnary implements connect.Interceptor.
func (p *persistence) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		p.authorize(req.Header().Set)
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(req.Header()))
		if req.Header().Get("Idempotency-Key") == "" {
			req.Header().Set("Idempotency-Key", newKey())
		}
		for attempt := 1; ; attempt++ {
			res, err := next(ctx, req)
			if err == nil || !retryable(err) || attempt == attempts {
				return res, err
			}
			if err := pause(ctx, attempt); err != nil {
				return nil, err
			}
		}
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (p *persistence) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		p.authorize(conn.RequestHeader().Set)
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(conn.RequestHeader()))
		return conn
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (p *persistence) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func (p *persistence) authorize(set func(key, value string)) {
	if p.token != "" {
		set("Authorization", "Bearer "+p.token)
	}
}

// retryable tells whether the same request may succeed later. A connection that
// broke says nothing about the server, which may be the next one already.
func retryable(err error) bool {
	if p := Problem(err); p != nil {
		return p.GetRetryable()
	}
	return connect.CodeOf(err) == connect.CodeUnavailable && !errors.Is(err, context.Canceled)
}

// pause waits before another attempt, longer each time, and not all at once.
func pause(ctx context.Context, attempt int) error {
	wait := 50 * time.Millisecond << attempt
	t := time.NewTimer(wait/2 + mathrand.N(wait))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newKey() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
