package transport

import (
	"context"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// instrumentation is what spans of this package are known to come from.
const instrumentation = "github.com/bailey-sandbox/bailey/internal/server/transport"

// parent is the context of a request, below the span that the client says it has.
func (t *Transport) parent(r *http.Request) context.Context {
	if t.config.Spans == nil {
		return r.Context()
	}
	return propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
}

// traced makes a span of every request, also of those that are refused.
func (t *Transport) traced() connect.Interceptor {
	if t.config.Spans == nil {
		return around(func(ctx context.Context, _ connect.Spec, next func(context.Context) error) error { return next(ctx) })
	}
	tracer := t.config.Spans.Tracer(instrumentation)
	return around(func(ctx context.Context, spec connect.Spec, next func(context.Context) error) error {
		service, method, _ := strings.Cut(strings.TrimPrefix(spec.Procedure, "/"), "/")
		ctx, span := tracer.Start(ctx, service+"/"+method, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("rpc.system", "connect_rpc"), attribute.String("rpc.service", service), attribute.String("rpc.method", method),
			attribute.String("bailey.request.id", requestID(ctx))))
		defer span.End()
		err := next(ctx)
		if err != nil {
			span.SetAttributes(attribute.String("rpc.connect_rpc.error_code", connect.CodeOf(err).String()), attribute.String("bailey.reason", problem.Of(err).GetReason()))
			span.SetStatus(codes.Error, err.Error())
		}
		return err
	})
}
