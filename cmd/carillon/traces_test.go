package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/trace/tracetest"
)

// traceWorld is a Carillon of three processes, a client, an endpoint and a worker, which all export spans to one collector.
type traceWorld struct {
	*testing.T
	collector *tracetest.Collector
	api       string // URL
	token     string
	others    otel.Tracer // of the client, the endpoint and the worker
	received  chan string // the traceparents of pushes, in headers and bodies
	endpoint  *httptest.Server
	stops     []func()
}

const secretWord = "correct-horse-battery"

func newTraceWorld(t *testing.T) *traceWorld {
	t.Helper()
	w := &traceWorld{T: t, collector: tracetest.New(t), received: make(chan string, 100)}
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(w.collector.URL+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter), sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "application"))))
	w.others = provider.Tracer("test")
	w.endpoint = httptest.NewServer(http.HandlerFunc(w.receive))
	t.Cleanup(w.endpoint.Close)
	environment := map[string]string{
		"CARILLON_TEST": "main", "DATABASE_URL": postgrestest.URL(t), "CARILLON_ISSUER_KEY": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
		"CARILLON_CONNECTIONS": "12", "CARILLON_CLEAR_SECRETS": "true", "CARILLON_ALLOW_NETWORKS": "127.0.0.0/8", "CARILLON_ALLOW_HTTP": "true",
		"OTEL_EXPORTER_OTLP_ENDPOINT": w.collector.URL, "OTEL_EXPORTER_OTLP_HEADERS": "authorization=" + secretWord,
	}
	for _, part := range []string{"api", "sweep", "dispatch"} {
		environment["OTEL_SERVICE_NAME"] = "carillon-" + part
		listen := w.process(environment, part)
		if part == "api" {
			w.api = "http://" + listen
		}
	}
	getenv := func(name string) string { return environment[name] }
	var platform, acme bytes.Buffer
	if code := run(t.Context(), []string{"token", "--scope", "platform:admin"}, getenv, &platform, io.Discard); code != exitDone {
		t.Fatalf("token ended with %d", code)
	}
	if status, body := call(t, http.MethodPut, w.api+"/v1/platform/tenants/acme", strings.TrimSpace(platform.String()), `{"name": "acme"}`); status != http.StatusCreated {
		t.Fatalf("got %d: %s", status, body)
	}
	if code := run(t.Context(), []string{"token", "--tenant", "acme"}, getenv, &acme, io.Discard); code != exitDone {
		t.Fatalf("token ended with %d", code)
	}
	w.token = strings.TrimSpace(acme.String())
	return w
}

// process runs `carillon serve` as a process of its own, and returns its address.
func (w *traceWorld) process(environment map[string]string, part string) (listen string) {
	w.Helper()
	cmd := exec.Command(os.Args[0], "serve", "--role", part, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--log-format", "json")
	cmd.Env = os.Environ()
	for name, value := range environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.Fatal(err)
	}
	drained, stopped := make(chan struct{}), false
	var log bytes.Buffer
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			w.Error(err)
		}
		<-drained
		if err := cmd.Wait(); err != nil {
			w.Errorf("role %s: %v\n%s", part, err, &log)
		}
		if strings.Contains(log.String(), secretWord) {
			w.Errorf("role %s logged a secret:\n%s", part, &log)
		}
	}
	w.stops = append(w.stops, stop)
	w.Cleanup(stop)
	lines, serving := bufio.NewScanner(said), make(chan string, 1)
	go func() {
		defer close(drained)
		for lines.Scan() {
			log.Write(append(lines.Bytes(), '\n'))
			var line struct{ Msg, Listen string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
				serving <- line.Listen
			}
		}
	}()
	select {
	case listen = <-serving:
		return listen
	case <-drained:
		w.Fatalf("role %s ended: %s", part, &log)
	}
	return ""
}

// receive is the endpoint: it makes a span under the traceparent of the request.
func (w *traceWorld) receive(_ http.ResponseWriter, r *http.Request) {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	_, span := w.others.Start(ctx, "receive", otel.WithSpanKind(otel.SpanKindServer))
	defer span.End()
	var tick struct{ Traceparent string }
	if err := json.NewDecoder(r.Body).Decode(&tick); err != nil {
		w.Error(err)
	}
	w.received <- r.Header.Get("Traceparent")
	w.received <- tick.Traceparent
}

// do makes a request, as part of a trace if traceparent is not empty, and decodes the answer.
func (w *traceWorld) do(method, path, traceparent, body string, into any) {
	w.Helper()
	request, err := http.NewRequestWithContext(w.Context(), method, w.api+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+w.token)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if traceparent != "" {
		request.Header.Set("Traceparent", traceparent)
	}
	answer, err := (&http.Client{Transport: apitest.Transport(w.T, &http.Transport{DisableKeepAlives: true})}).Do(request)
	if err != nil {
		w.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 {
		w.Fatalf("%s %s: got %d, %v: %s", method, path, answer.StatusCode, err, text)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			w.Fatal(err)
		}
	}
}

// trigger triggers a schedule within a span of the client.
func (w *traceWorld) trigger(path string) (tick string) {
	w.Helper()
	_, span := w.others.Start(w.Context(), "client", otel.WithSpanKind(otel.SpanKindClient))
	defer span.End()
	is := span.SpanContext()
	var t struct {
		TickID string `json:"tick_id"`
	}
	w.do(http.MethodPost, path+"/trigger", fmt.Sprintf("00-%s-%s-01", is.TraceID(), is.SpanID()), `{"payload": "`+secretWord+`"}`, &t)
	return t.TickID
}

// lease leases one tick, and completes it within a span of the worker.
func (w *traceWorld) lease(workflow string) {
	w.Helper()
	var leased struct {
		Ticks []struct {
			TickID      string `json:"tick_id"`
			LeaseToken  string `json:"lease_token"`
			Traceparent string
		}
	}
	w.do(http.MethodPost, "/v1/ticks/lease", "", `{"workflows": ["`+workflow+`"], "wait": "60s", "worker": "`+secretWord+`"}`, &leased)
	if len(leased.Ticks) != 1 {
		w.Fatalf("got %v", leased)
	}
	t := leased.Ticks[0]
	_, span := w.others.Start(propagation.TraceContext{}.Extract(w.Context(), propagation.MapCarrier{"traceparent": t.Traceparent}), "work", otel.WithSpanKind(otel.SpanKindConsumer))
	defer span.End()
	w.do(http.MethodPost, "/v1/ticks/"+t.TickID+"/complete", "", `{"lease_token": "`+t.LeaseToken+`", "result": "`+secretWord+`"}`, nil)
}

// A tick's trace leads over processes: from the client's trigger, or from the sweep, to the span of the endpoint or of the worker.
func TestTracesLeadToTheReceiver(t *testing.T) {
	t.Parallel()
	w := newTraceWorld(t)
	const pushed, pulled, later = "/v1/workflows/pushed/schedules/k", "/v1/workflows/pulled/schedules/k", "/v1/workflows/pushed/schedules/later"
	w.do(http.MethodPut, "/v1/endpoints/e", "", `{"url": "`+w.endpoint.URL+`/`+secretWord+`"}`, nil)
	w.do(http.MethodPut, "/v1/workflows/pushed", "", `{"endpoint": "e"}`, nil)
	for _, path := range []string{pushed, pulled} {
		w.do(http.MethodPut, path, "", `{"spec": {"cron": "0 8 1 1 *"}, "payload": "`+secretWord+`"}`, nil)
	}
	tick := w.trigger(pushed)
	header, body := <-w.received, <-w.received
	var shown struct{ Traceparent string }
	w.do(http.MethodGet, "/v1/ticks/"+tick, "", "", &shown)
	if header == "" || body != header || shown.Traceparent != header {
		t.Errorf("got %q in the header, %q in the body, and %q afterwards", header, body, shown.Traceparent)
	}
	w.trigger(pulled)
	w.lease("pulled")
	at := time.Now().Add(8 * time.Second).UTC().Format(time.RFC3339)
	w.do(http.MethodPut, later, "", `{"spec": {"at": ["`+at+`"]}}`, nil)
	<-w.received
	<-w.received
	for _, stop := range w.stops { // a process exports its waiting spans when it stops
		stop()
	}
	for _, want := range []string{
		"client application\n  trigger carillon-api\n    open carillon-dispatch\n    push carillon-dispatch\n    receive application\n    finish carillon-dispatch\n",
		"client application\n  trigger carillon-api\n    open carillon-dispatch\n    lease carillon-api\n    work application\n    finish carillon-api\n",
		"sweep carillon-sweep\n  open carillon-dispatch\n    tick carillon-dispatch\n      push carillon-dispatch\n      receive application\n      finish carillon-dispatch\n",
	} {
		if !w.hasTrace(want) {
			t.Errorf("got no such trace:\n%s", want)
		}
	}
	if t.Failed() {
		t.Logf("the traces:\n%s", strings.Join(w.traces(), "\n"))
	}
	if bytes.Contains(w.collector.Raw(), []byte(secretWord)) || bytes.Contains(w.collector.Raw(), []byte(w.token)) {
		t.Error("a span holds a secret")
	}
	if *update {
		w.draw("../../docs/traces.svg")
	}
}
