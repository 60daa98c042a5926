package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/bailey-sandbox/bailey/internal/version"
)

// flushTime bounds how long the end of a server waits for a collector.
const flushTime = 3 * time.Second

// openSpans returns where spans go, and what ends that; nil if nobody wants them.
// Everything but the address is as the variables of OpenTelemetry say.
func openSpans(ctx context.Context, endpoint string, log *slog.Logger) (spans trace.TracerProvider, end func(), err error) {
	if endpoint == "" && (!configured() || os.Getenv("OTEL_TRACES_EXPORTER") == "none" || os.Getenv("OTEL_SDK_DISABLED") == "true") {
		return nil, func() {}, nil
	}
	var options []otlptracehttp.Option
	if endpoint != "" {
		options = append(options, otlptracehttp.WithEndpointURL(endpoint))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, nil, err
	}
	what, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "bailey-server"), attribute.String("service.version", version.Version)), resource.WithFromEnv())
	if err != nil {
		return nil, nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("spans are lost", "error", err) }))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(what))
	return provider, func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTime)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("spans are lost", "error", err)
		}
	}, nil
}

// configured says whether the environment names a collector.
func configured() bool {
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}
