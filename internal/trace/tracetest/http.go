// Package tracetest has a collector of traces for tests: an OTLP receiver over HTTP in the test's own process.
package tracetest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
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

// New starts a Collector.
func New(t *testing.T) *Collector {
	c := &Collector{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
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

// ServeHTTP takes an ExportTraceServiceRequest.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var sent collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = append(c.raw, body...)
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
