package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/carillonhq/carillon/tenants"
)

// traceSettings are the settings of traces that this program reads. They have the names that OpenTelemetry gives them. The SDK reads the
// others, such as headers and certificates, from the environment itself.
type traceSettings struct {
	Exporter       tracesExporter `env:"OTEL_TRACES_EXPORTER" help:"where traces go: otlp or none; without it, otlp if an endpoint is set, else none"`
	Endpoint       string         `env:"OTEL_EXPORTER_OTLP_ENDPOINT" help:"the collector of traces, such as http://collector:4318"`
	TracesEndpoint string         `env:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" help:"the collector of traces, if it is not that of other signals; for HTTP with its path"`
	Protocol       otlpProtocol   `env:"OTEL_EXPORTER_OTLP_PROTOCOL" help:"the protocol to the collector: http/protobuf (the default), http/json or grpc"`
	TracesProtocol otlpProtocol   `env:"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL" help:"the protocol to the collector of traces, if it is not that of other signals"`
	Sampler        sampler        `env:"OTEL_TRACES_SAMPLER" help:"which traces are exported: parentbased_always_on (the default), parentbased_traceidratio, parentbased_always_off, always_on, traceidratio or always_off"`
	SamplerArg     ratio          `env:"OTEL_TRACES_SAMPLER_ARG" help:"the part of the traces that a sampler with traceidratio exports: 0 to 1"`
	Disabled       truth          `env:"OTEL_SDK_DISABLED" help:"true: no traces, whatever the other variables say"`
}

// on reports whether spans are exported.
func (s traceSettings) on() bool {
	if s.Disabled {
		return false
	}
	return s.Exporter == "otlp" || s.Exporter == "" && (s.Endpoint != "" || s.TracesEndpoint != "")
}

// tracer returns a Tracer, or nil if no spans are exported.
func (s traceSettings) tracer(ids ident.Codec, log *slog.Logger) (*trace.Tracer, error) {
	if !s.on() {
		return nil, nil
	}
	return trace.New(context.Background(), trace.Options{
		GRPC: cmp.Or(s.TracesProtocol, s.Protocol) == "grpc", Process: processName(), Version: thisEdition().Version, IDs: ids, Log: log,
	})
}

// tracedRoutes are the requests that get a span, by method and route, with its name: those that make a tick, now or later.
var tracedRoutes = map[string]string{
	"PUT /v1/workflows/:workflow/schedules/:key":          "put",
	"POST /v1/workflows/:workflow/schedules/:key/trigger": "trigger",
}

// traced makes the spans of requests. It does nothing if no spans are exported: the request then carries its own traceparent.
func traced(t *trace.Tracer) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		if !t.On() {
			return next
		}
		return func(c echo.Context) error {
			name := tracedRoutes[c.Request().Method+" "+c.Path()]
			if name == "" {
				return next(c)
			}
			ctx, span := t.Request(c.Request().Context(), name, trace.Facts{Tenant: int32(tenants.From(c)), Workflow: c.Param("workflow")})
			c.SetRequest(c.Request().WithContext(ctx))
			err := next(c)
			f, ours := errors.AsType[*fault.Error](err)
			span.End(err != nil && (!ours || f.Status >= 500))
			return err
		}
	}
}

type tracesExporter string

func (e *tracesExporter) UnmarshalText(text []byte) error { return oneOf(e, text, "otlp", "none") }

type otlpProtocol string

func (p *otlpProtocol) UnmarshalText(text []byte) error {
	return oneOf(p, text, "http/protobuf", "http/json", "grpc")
}

type sampler string

func (s *sampler) UnmarshalText(text []byte) error {
	return oneOf(s, text, "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio")
}

func oneOf[T ~string](value *T, text []byte, known ...string) error {
	if !slices.Contains(known, string(text)) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(known, ", "))
	}
	*value = T(text)
	return nil
}

// ratio is a number from 0 to 1.
type ratio float64

func (r *ratio) UnmarshalText(text []byte) error {
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(0 <= v && v <= 1) {
		return fmt.Errorf("%q is not a number from 0 to 1", text)
	}
	*r = ratio(v)
	return nil
}

// truth is true for "true" in any case. As OpenTelemetry requires, it is false for every other text.
type truth bool

func (t *truth) UnmarshalText(text []byte) error {
	*t = truth(strings.EqualFold(string(text), "true"))
	return nil
}
