// Package tracetest has a collector of traces for tests: an OTLP receiver over HTTP or gRPC in the test's own process.
package tracetest

import (
	"slices"
	"sync"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
)

// Span is a span as it was exported, with the attributes of its resource.
type Span struct {
	*otlp.Span
	Resource map[string]string
}

// Collector keeps the spans that are exported to URL until the test ends.
type Collector struct {
	URL string

	mu    sync.Mutex
	spans []Span
	raw   []byte
}

// Spans returns the spans so far, in the order of their starts.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.spans)
	slices.SortStableFunc(all, func(a, b Span) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
	return all
}

// Raw returns the bytes of all requests.
func (c *Collector) Raw() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.raw)
}

// add keeps the spans of a request.
func (c *Collector) add(raw []byte, sent *collector.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = append(c.raw, raw...)
	for _, r := range sent.ResourceSpans {
		about := map[string]string{}
		for _, a := range r.Resource.Attributes {
			about[a.Key] = a.Value.GetStringValue()
		}
		for _, scope := range r.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, Span{s, about})
			}
		}
	}
}
