package server

import (
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/bailey-sandbox/bailey/internal/keeper"
)

// instrumentation is what spans of this package are known to come from.
const instrumentation = "github.com/bailey-sandbox/bailey/internal/server"

// tracer makes spans if the request of a context is traced.
func tracer(ctx context.Context) trace.Tracer {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return noop.Tracer{}
	}
	return span.TracerProvider().Tracer(instrumentation)
}

// traced does a part of what a request wants for a sandbox, in a span of its own.
func traced(ctx context.Context, name, sandbox string, kind trace.SpanKind, part func() error) error {
	_, span := tracer(ctx).Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attribute.String("bailey.sandbox.id", sandbox)))
	defer span.End()
	err := part()
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, name)
	}
	return err
}

// traceStart begins the span of a command, below one of the keeper's part, which
// is returned and ends when the command runs. The command is told its own, as
// programs that trace themselves expect it, unless it was told another.
func (e *execution) traceStart(ctx context.Context, request *keeper.Exec) trace.Span {
	ctx, keeping := tracer(ctx).Start(ctx, "keeper start", trace.WithSpanKind(trace.SpanKindClient))
	ctx = e.trace(ctx)
	const variable = "TRACEPARENT="
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	told := slices.ContainsFunc(request.Env, func(v string) bool { return strings.HasPrefix(v, variable) })
	if parent := carrier.Get("traceparent"); keeping.IsRecording() && parent != "" && !told {
		request.Env = append(request.Env, variable+parent)
	}
	return keeping
}

// trace begins the span of a command. What it runs is not told: command lines have
// secrets.
func (e *execution) trace(ctx context.Context) context.Context {
	ctx, e.span = tracer(ctx).Start(ctx, "exec", trace.WithAttributes(
		attribute.String("bailey.sandbox.id", e.box.id), attribute.String("bailey.exec.id", e.id), attribute.String("bailey.session.id", e.session)))
	return ctx
}

// traceEnd ends the span of a command that has ended, or could not be started.
// One that was taken over from another server has none.
func (e *execution) traceEnd(err error) {
	if e.span == nil {
		return
	}
	defer e.span.End()
	if err != nil {
		e.span.RecordError(err)
		e.span.SetStatus(codes.Error, "not started")
		return
	}
	used := e.exit.GetRusage()
	e.span.SetAttributes(
		attribute.Int("process.exit.code", int(e.exit.GetCode())), attribute.String("bailey.signal", e.exit.GetSignal()), attribute.Bool("bailey.timed_out", e.exit.GetTimedOut()),
		attribute.Float64("bailey.cpu.user", used.GetUserTime().AsDuration().Seconds()), attribute.Float64("bailey.cpu.system", used.GetSystemTime().AsDuration().Seconds()),
		attribute.Int64("bailey.memory.max", used.GetMaxRssBytes()))
	if e.exit.GetError() != "" {
		e.span.SetStatus(codes.Error, e.exit.GetError())
	}
}
