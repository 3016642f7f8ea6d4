package carillon

import "context"

// Propagator connects the traces of Carillon with those of a program. Both methods use the text of the header traceparent (W3C Trace
// Context), so that this package imports no tracing library. With OpenTelemetry, an implementation passes the text in a
// propagation.MapCarrier to propagation.TraceContext.
type Propagator interface {
	// Extract returns a context in which the trace continues that traceparent names. Workers and webhooks call it before a handler.
	Extract(ctx context.Context, traceparent string) context.Context

	// Inject returns the traceparent of the span in ctx, or "" if there is none. The client calls it before each request.
	Inject(ctx context.Context) (traceparent string)
}

type traceKey struct{}

// Traceparent returns the traceparent of the tick whose handler has ctx, or "" if the tick has none. It needs no [Propagator].
func Traceparent(ctx context.Context) string {
	traceparent, _ := ctx.Value(traceKey{}).(string)
	return traceparent
}

// traced returns the context of a handler: it continues the trace of the tick.
func traced(ctx context.Context, p Propagator, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	ctx = context.WithValue(ctx, traceKey{}, traceparent)
	if p == nil {
		return ctx
	}
	return p.Extract(ctx, traceparent)
}

// outgoing returns the traceparent of a request: that of the span in ctx, otherwise that of the tick whose handler makes the request.
func outgoing(ctx context.Context, p Propagator) string {
	if p != nil {
		if traceparent := p.Inject(ctx); traceparent != "" {
			return traceparent
		}
	}
	return Traceparent(ctx)
}
