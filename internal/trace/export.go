package trace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/loop"
)

// Options say where spans go. The SDK reads what is not here from the environment: the endpoint, headers, certificates, sampler, limits
// and the names of the resource.
type Options struct {
	GRPC    bool // the protocol is grpc, else HTTP
	Process string
	Version string
	IDs     ident.Codec
	Log     *slog.Logger
}

// flushWithin bounds how long Close exports the waiting spans.
const flushWithin = 2 * time.Second

// New returns a Tracer that exports spans by OTLP. It does not connect. Close ends it.
func New(ctx context.Context, o Options) (*Tracer, error) {
	// If OTEL_EXPORTER_OTLP_HEADERS is malformed, the SDK logs its text, which is a secret. So its log is turned off.
	otelapi.SetLogger(logr.Discard())
	otelapi.SetErrorHandler(otelapi.ErrorHandlerFunc(func(error) {}))
	var inner sdk.SpanExporter
	var err error
	if o.GRPC {
		inner, err = otlptracegrpc.New(ctx)
	} else {
		inner, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return nil, errors.New("the exporter of traces cannot be made: check the variables that begin with OTEL_EXPORTER_OTLP_")
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "carillon"), attribute.String("service.version", o.Version), attribute.String("service.instance.id", o.Process)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err), inner.Shutdown(ctx))
	}
	lost := prometheus.NewCounter(prometheus.CounterOpts{Name: "carillon_spans_lost_total", Help: "Spans that the collector did not take."})
	provider := sdk.NewTracerProvider(sdk.WithBatcher(&exporter{SpanExporter: inner, lost: lost, log: o.Log}), sdk.WithResource(about), sdk.WithIDGenerator(generator{}))
	return &Tracer{provider: provider, tracer: provider.Tracer("github.com/carillonhq/carillon"), ids: o.IDs, exporter: inner, lost: lost}, nil
}

// Register registers the metric of lost spans.
func (t *Tracer) Register(r prometheus.Registerer) {
	if t != nil {
		r.MustRegister(t.lost)
	}
}

// Close exports the spans that wait, for at most 2 s, and ends the Tracer.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		_ = t.provider.Shutdown(context.Background()) // the exporter counts what it loses
	}()
	select {
	case <-flushed:
		return
	case <-time.After(flushWithin):
	}
	_ = t.exporter.Shutdown(context.Background()) // it ends the request in flight, and the rest fails at once
	<-flushed
}

// exporter counts and logs the spans that the collector did not accept. The log never has a URL or a text of the collector, because they
// may hold secrets.
type exporter struct {
	sdk.SpanExporter
	lost   prometheus.Counter
	log    *slog.Logger
	rarely loop.Rarely
}

// ExportSpans implements sdk.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	e.lost.Add(float64(len(spans)))
	if e.rarely.Due("export", time.Now()) {
		e.log.Warn("the collector of traces did not take spans", "spans", len(spans), "reason", reason(err))
	}
	return nil
}

func reason(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err.Error()
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return "no answer in time"
	}
	if s, ok := status.FromError(err); ok && s.Code() != codes.Unknown {
		return "grpc status " + s.Code().String()
	}
	return "it refused them"
}
