package transport

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// around is an interceptor that does the same for requests of every kind. It
// gets the rest of the request as a function.
type around func(ctx context.Context, spec connect.Spec, next func(context.Context) error) error

var _ connect.Interceptor = around(nil)

// WrapUnary implements connect.Interceptor.
func (a around) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (res connect.AnyResponse, err error) {
		err = a(ctx, req.Spec(), func(ctx context.Context) error {
			var err error
			res, err = next(ctx, req)
			return err
		})
		if err != nil {
			return nil, err
		}
		return res, nil
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (a around) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (a around) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return a(ctx, conn.Spec(), func(ctx context.Context) error { return next(ctx, conn) })
	}
}

// finish counts a request and gives its error the form that clients are promised.
func (t *Transport) finish() connect.Interceptor {
	return around(func(ctx context.Context, spec connect.Spec, next func(context.Context) error) error {
		begin := time.Now()
		t.figures.running.WithLabelValues(spec.Procedure).Inc()
		defer t.figures.running.WithLabelValues(spec.Procedure).Dec()
		err := t.present(ctx, spec, guarded(ctx, next))
		t.figures.finished(spec.Procedure, err, time.Since(begin))
		noteProcedure(ctx, spec.Procedure, err)
		if err != nil {
			return err
		}
		return nil
	})
}

// guarded turns a panic into an error: one request's defect is not the end of
// everybody else's.
func guarded(ctx context.Context, next func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return next(ctx)
}

// present returns an error as a client sees it. What nobody meant for clients is
// logged instead.
func (t *Transport) present(ctx context.Context, spec connect.Spec, err error) *connect.Error {
	if err == nil {
		return nil
	}
	var e *connect.Error
	switch {
	case errors.Is(context.Cause(ctx), ErrDraining), errors.Is(err, ErrDraining):
		e = draining()
	case errors.As(err, &e) && e.Code() != connect.CodeInternal && e.Code() != connect.CodeUnknown:
	case errors.Is(err, context.DeadlineExceeded):
		e = problem.New(connect.CodeDeadlineExceeded, "deadline", errors.New("the request's time is over"))
	case errors.Is(err, context.Canceled):
		e = problem.New(connect.CodeCanceled, "canceled", errors.New("the client went away"))
	default:
		t.config.Log.ErrorContext(ctx, "internal error", "request", requestID(ctx), "method", spec.Procedure, "error", err)
		e = problem.New(connect.CodeInternal, "internal", errors.New("something went wrong in the server"),
			problem.Remedy("look for the request id in the server's log"))
	}
	return signed(e, requestID(ctx))
}

// signed returns the error with the request's id in its detail.
func signed(e *connect.Error, id string) *connect.Error {
	p := problem.Of(e)
	if p == nil {
		p = &baileyv1.Problem{Reason: e.Code().String()}
	}
	p.RequestId = id
	return problem.Replace(e, p)
}

// admit refuses what the caller may not do, and new work while the server shuts
// down. Streams of output end at that moment; they can be taken up again.
func (t *Transport) admit() connect.Interceptor {
	return around(func(ctx context.Context, spec connect.Spec, next func(context.Context) error) error {
		m, known := methods[spec.Procedure]
		if !known {
			return problem.Unimplemented("no_such_method", fmt.Errorf("there is no method %s", spec.Procedure))
		}
		if err := caller.From(ctx).Demand(m.scope); err != nil {
			return err
		}
		if t.drain.begun() {
			return draining()
		}
		if spec.StreamType == connect.StreamTypeServer {
			attached, detach := t.drain.attach(ctx)
			defer detach()
			err := next(attached)
			if err != nil && errors.Is(context.Cause(attached), ErrDraining) {
				return draining()
			}
			return err
		}
		return next(ctx)
	})
}
