package trace

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/carillonhq/carillon/internal/ident"
)

// Tracer makes spans. It is safe for concurrent use. A nil Tracer makes none.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   otel.Tracer
	ids      ident.Codec
	exporter sdk.SpanExporter
	lost     prometheus.Counter
}

// Facts are the attributes of a span. Zero values are left out. Of the texts that clients write, Facts hold only names.
type Facts struct {
	Tenant   int32
	Workflow string
	Endpoint string
	Tick     ident.TickKey
	Attempt  int16
	Ticks    int
	Lane     string
	State    string // of the tick
	Outcome  string // of the attempt
	Status   int    // of the HTTP response
	Bad      bool   // the span ended with a failure
}

// On reports whether spans are made at all.
func (t *Tracer) On() bool { return t != nil }

// Follows reports whether spans under c are made.
func (t *Tracer) Follows(c Context) bool { return t != nil && c.Sampled() && c.Valid() }

// Span is a span that has begun. A nil Span does nothing.
type Span struct{ span otel.Span }

// Begin begins a span that began at a moment. If parent names none, the span begins a trace. It returns nil if t is nil.
func (t *Tracer) Begin(name string, parent Context, began time.Time, f Facts) *Span {
	if t == nil {
		return nil
	}
	_, span := t.tracer.Start(otel.ContextWithRemoteSpanContext(context.Background(), spanContext(parent)), name,
		otel.WithTimestamp(began), otel.WithSpanKind(kindOf(name)), otel.WithAttributes(t.attributes(&f)...))
	return &Span{span}
}

// Request begins the span of a request, under the span that ctx carries. It returns a context that carries the new span. If t is nil, it
// returns ctx.
func (t *Tracer) Request(ctx context.Context, name string, f Facts) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	s := t.Begin(name, From(ctx), time.Now(), f)
	return With(ctx, s.Context()), s
}

// Context returns the span as the parent of others; the zero Context if s is nil. It is not sampled if the span is not exported.
func (s *Span) Context() Context {
	if s == nil {
		return Context{}
	}
	is := s.span.SpanContext()
	return Context{Trace: is.TraceID(), Span: is.SpanID(), Flags: byte(is.TraceFlags())}
}

// End ends the span. A span that is not ended is not exported. bad marks it as failed; the error itself is not exported, because
// it may hold what a client wrote.
func (s *Span) End(bad bool) {
	if s == nil {
		return
	}
	if bad {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}

// Record makes a span that ends now, as a child of parent. It does nothing if t does not follow parent. If self names a span, the new
// span gets its id.
func (t *Tracer) Record(name string, parent, self Context, began time.Time, f Facts) {
	if !t.Follows(parent) {
		return
	}
	ctx := otel.ContextWithRemoteSpanContext(context.Background(), spanContext(parent))
	if self.Valid() {
		ctx = context.WithValue(ctx, selfKey{}, otel.SpanID(self.Span))
	}
	_, span := t.tracer.Start(ctx, name, otel.WithTimestamp(began), otel.WithSpanKind(kindOf(name)), otel.WithAttributes(t.attributes(&f)...))
	if f.Bad {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

func kindOf(name string) otel.SpanKind {
	switch name {
	case "put", "trigger":
		return otel.SpanKindServer
	case "push":
		return otel.SpanKindClient
	}
	return otel.SpanKindInternal
}

// Child returns the context of a new span under c; the zero Context if c names none.
func (c Context) Child() Context {
	if c.Valid() {
		c.Span = newSpanID()
	}
	return c
}

func spanContext(c Context) otel.SpanContext {
	return otel.NewSpanContext(otel.SpanContextConfig{TraceID: c.Trace, SpanID: c.Span, TraceFlags: otel.TraceFlags(c.Flags), Remote: true})
}

func (t *Tracer) attributes(f *Facts) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 8)
	text := func(name, value string) {
		if value != "" {
			all = append(all, attribute.String(name, value))
		}
	}
	number := func(name string, value int) {
		if value != 0 {
			all = append(all, attribute.Int(name, value))
		}
	}
	number("carillon.tenant", int(f.Tenant))
	text("carillon.workflow", f.Workflow)
	text("carillon.endpoint", f.Endpoint)
	if f.Tick.Schedule != 0 {
		text("carillon.tick_id", t.ids.Tick(f.Tick))
	}
	number("carillon.attempt", int(f.Attempt))
	number("carillon.ticks", f.Ticks)
	text("carillon.lane", f.Lane)
	text("carillon.state", f.State)
	text("carillon.outcome", f.Outcome)
	number("http.response.status_code", f.Status)
	return all
}

// selfKey is the context key of the id that a span gets.
type selfKey struct{}

// generator makes the ids of spans: the one that Record asks for, or a random one.
type generator struct{}

func (generator) NewSpanID(ctx context.Context, _ otel.TraceID) otel.SpanID {
	if id, given := ctx.Value(selfKey{}).(otel.SpanID); given {
		return id
	}
	return newSpanID()
}

func (generator) NewIDs(context.Context) (id otel.TraceID, span otel.SpanID) {
	binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], 1+rand.Uint64N(1<<64-1)) // not zero
	return id, newSpanID()
}

func newSpanID() (id [8]byte) {
	binary.NativeEndian.PutUint64(id[:], 1+rand.Uint64N(1<<64-1)) // not zero
	return id
}
