package trace_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/carillonhq/carillon/internal/trace/tracetest"
)

func open(t *testing.T, log io.Writer) (*trace.Tracer, *prometheus.Registry) {
	t.Helper()
	return openWith(t, log, false)
}

func openWith(t *testing.T, log io.Writer, grpc bool) (*trace.Tracer, *prometheus.Registry) {
	t.Helper()
	ids, err := ident.New([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	tracer, err := trace.New(t.Context(), trace.Options{GRPC: grpc, Process: "host/1", Version: "v1", IDs: ids, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	tracer.Register(registry)
	return tracer, registry
}

func TestSpansReachTheCollector(t *testing.T) {
	for protocol, collector := range map[string]func(*testing.T) *tracetest.Collector{"http/protobuf": tracetest.New, "grpc": tracetest.NewGRPC} {
		t.Run(protocol, func(t *testing.T) {
			for try := 1; !spansReach(t, collector(t), protocol == "grpc"); try++ {
				if try == 5 {
					t.Fatal("no close was in time")
				}
			}
		})
	}
}

// spansReach records spans and checks what Close exports. It returns false if Close took so long that it may have cut the export.
func spansReach(t *testing.T, c *tracetest.Collector, grpc bool) bool {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_SERVICE_NAME", "ticker")
	tracer, registry := openWith(t, io.Discard, grpc)
	began := time.Now()
	sweep := tracer.Begin("sweep", trace.Context{}, began, trace.Facts{Tenant: 7, Ticks: 2, Lane: "small"})
	chunk := sweep.Context()
	self := chunk.Child()
	tracer.Record("tick", chunk, self, began.Add(-time.Second), trace.Facts{Tenant: 7, Workflow: "digest", Tick: ident.TickKey{Schedule: 3, At: time.Unix(60, 0)}})
	tracer.Record("push", self, trace.Context{}, began.Add(1), trace.Facts{Tenant: 7, Attempt: 2, Status: 503, Outcome: "failed", Bad: true})
	unsampled := chunk
	unsampled.Flags = 0
	tracer.Record("push", unsampled, trace.Context{}, time.Now(), trace.Facts{})
	tracer.Begin("never ended", chunk, time.Now(), trace.Facts{})
	sweep.End(false)
	closing := time.Now()
	tracer.Close()
	if time.Since(closing) >= 2*time.Second {
		return false
	}

	if found, err := registry.Gather(); err != nil || found[0].Metric[0].Counter.GetValue() != 0 {
		t.Errorf("got lost spans: %v, %v", found, err)
	}
	all := c.Spans()
	if len(all) != 3 {
		t.Fatalf("got %d spans", len(all))
	}
	tick, root, push := all[0], all[1], all[2]
	if about := root.Resource; about["service.name"] != "ticker" || about["service.instance.id"] != "host/1" || about["service.version"] != "v1" {
		t.Errorf("got spans of %v", about)
	}
	if [16]byte(root.TraceId) != chunk.Trace || [8]byte(root.SpanId) != chunk.Span || len(root.ParentSpanId) != 0 || !chunk.Sampled() {
		t.Errorf("got the root %v of %s", root, chunk)
	}
	if [8]byte(tick.SpanId) != self.Span || [8]byte(tick.ParentSpanId) != chunk.Span || tick.EndTimeUnixNano-tick.StartTimeUnixNano < uint64(time.Second) {
		t.Errorf("got the tick %v", tick)
	}
	if [8]byte(push.ParentSpanId) != self.Span || push.Status.GetCode() != otlp.Status_STATUS_CODE_ERROR || push.Kind != otlp.Span_SPAN_KIND_CLIENT {
		t.Errorf("got the push %v", push)
	}
	var names []string
	for _, a := range append(tick.Attributes, push.Attributes...) {
		names = append(names, strings.TrimPrefix(a.Key, "carillon."))
	}
	if got := strings.Join(names, " "); got != "tenant workflow tick_id tenant attempt outcome http.response.status_code" {
		t.Errorf("got the attributes %s", got)
	}
	return true
}

// lost waits until spans are counted as lost, and returns how many.
func lost(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		found, err := registry.Gather()
		if err != nil || len(found) != 1 || found[0].GetName() != "carillon_spans_lost_total" {
			t.Fatalf("got %v, %v", found, err)
		}
		if n := found[0].Metric[0].Counter.GetValue(); n > 0 || time.Now().After(deadline) {
			return n
		}
	}
}

// A collector that is away, or refuses, delays nothing and fills no memory. No secret is in the log.
func TestACollectorThatIsAwayDelaysNothing(t *testing.T) {
	hanging := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hanging:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(hanging)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", strings.Replace(server.URL, "://", "://user:secret1@", 1)+"/secret2?key=secret3")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret4, broken secret5")
	var log bytes.Buffer
	tracer, registry := open(t, &log)
	parent, _ := trace.Parse(sent)
	began := time.Now()
	for range 20_000 { // ten times the queue
		tracer.Record("tick", parent, trace.Context{}, began, trace.Facts{Tenant: 1, Workflow: "w"})
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the spans took %s", took)
	}
	began = time.Now()
	tracer.Close()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the close took %s", took)
	}
	if strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "did not take spans") {
		t.Errorf("got the log %s", &log)
	}
	found, err := registry.Gather()
	if err != nil || len(found) != 1 || found[0].GetName() != "carillon_spans_lost_total" || found[0].Metric[0].Counter.GetValue() == 0 {
		t.Errorf("got %v, %v", found, err)
	}
}

func TestARefusalIsLoggedWithoutItsText(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret", http.StatusForbidden) }))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL+"/secret")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1") // spans are exported at once, because Close may cut a slow export
	var log bytes.Buffer
	tracer, registry := open(t, &log)
	tracer.Begin("put", trace.Context{}, time.Now(), trace.Facts{}).End(false)
	n := lost(t, registry)
	tracer.Close()
	if strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "it refused them") || n != 1 {
		t.Errorf("lost %v, got the log %s", n, &log)
	}
}

// If a collector refuses spans by gRPC, the log names the status of its answer, without the text.
func TestARefusalByGRPCIsLoggedByItsStatus(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, served := grpc.NewServer(), make(chan error, 1) // it knows no service
	go func() { served <- server.Serve(listener) }()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1") // spans are exported at once, because Close may cut a slow export
	var log bytes.Buffer
	tracer, registry := openWith(t, &log, true)
	tracer.Begin("put", trace.Context{}, time.Now(), trace.Facts{}).End(false)
	n := lost(t, registry)
	tracer.Close()
	server.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "grpc status Unimplemented") || n != 1 {
		t.Errorf("lost %v, got the log %s", n, &log)
	}
}
