package dispatch_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/carillonhq/carillon/internal/trace/tracetest"
	"github.com/carillonhq/carillon/schedules"
)

// A killed process loses no count of the series: they are written in the transactions that write the ticks.
func TestTheSeriesOfAKilledProcessAreWhole(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("counted", 1, nil)
	if err := h.Dispatch.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		h.Put("counted", key, dispatchtest.EverySecond())
	}
	dispatchtest.Until(t, "ticks are sent", func() bool { return len(c.Caught()) >= 8 })
	h.Dispatch.Kill()
	other := h.Process()
	h.Start(other)
	// Deleting a schedule cancels its ticks that have not ended, also those whose endpoint has answered.
	const succeeded = `SELECT count(*) FROM tick WHERE state = 2`
	before := h.Number(succeeded)
	dispatchtest.Until(t, "ticks succeed in the other process", func() bool { return h.Number(succeeded) >= before+8 })
	for _, key := range []string{"a", "b", "c", "d"} {
		if err := h.Schedules.Delete(t.Context(), h.Tenant, "counted", key, schedules.Changer{By: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	const unended = `SELECT (SELECT count(*) FROM tick WHERE state < 2) + (SELECT count(*) FROM chunk WHERE done_at IS NULL)`
	dispatchtest.Until(t, "all ticks ended", func() bool { return h.Number(unended) == 0 })
	for _, fold := range []bool{false, true} {
		if fold {
			if err := other.FoldUse(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		var due, ended int64
		view, err := other.Reader.Series(t.Context(), h.Tenant, history.SeriesFilter{From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Minute), Step: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range view.Buckets {
			due, ended = due+b.Due, ended+b.Succeeded
		}
		recorded, done := h.Number(`SELECT count(*) FROM tick`), h.Number(succeeded)
		if due != int64(recorded) || ended != int64(done) || done < before+8 {
			t.Errorf("folded: %t: the series have %d due and %d succeeded ticks, but %d are recorded and %d succeeded", fold, due, ended, recorded, done)
		}
	}
}

// exported reports whether a collector has spans of all these names.
func exported(collector *tracetest.Collector, names ...string) bool {
	have := map[string]bool{}
	for _, span := range collector.Spans() {
		have[span.Name] = true
	}
	return !slices.ContainsFunc(names, func(name string) bool { return !have[name] })
}

// A tick that another process takes over continues the trace of its sweep: its endpoint is sent the same traceparent again.
func TestATickThatIsTakenOverKeepsItsTrace(t *testing.T) {
	h := dispatchtest.New(t)
	collector := tracetest.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100") // ms
	process := func(name string) (*dispatchtest.Process, *trace.Tracer) {
		traces, err := trace.New(t.Context(), trace.Options{Process: name, Version: "v1", IDs: h.Config.IDs, Log: h.Config.Log})
		if err != nil {
			t.Fatal(err)
		}
		h.Config.Name, h.Config.Traces = name, traces
		return h.Process(), traces
	}
	release, first := make(chan struct{}), make(chan struct{})
	c := h.Catcher("hung", 1, nil)
	c.Hang(func(n int) {
		if n == 1 {
			close(first)
			<-release
		}
	})
	killed, tracesOfKilled := process("killed")
	if err := killed.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Put("hung", "k", schedules.Params{Spec: dispatchtest.At(5)})
	<-first
	killed.Kill()
	close(release)
	heir, tracesOfHeir := process("heir")
	if err := heir.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "it has succeeded", func() bool { return h.History("hung", "k")[0].State == "succeeded" })
	dispatchtest.Until(t, "the spans are exported", func() bool { return exported(collector, "sweep", "open", "tick", "push", "finish") }) // Close may leave some out
	if err := heir.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	tracesOfKilled.Close()
	tracesOfHeir.Close()

	got := c.Caught()
	if len(got) != 2 || got[0].Traceparent != got[1].Traceparent || got[1].Header.Get("Traceparent") != got[0].Traceparent {
		t.Fatalf("got %+v", got)
	}
	sent, ok := trace.Parse(got[1].Traceparent)
	if !ok || !sent.Sampled() {
		t.Fatalf("got the traceparent %s", got[1].Traceparent)
	}
	if shown := h.History("hung", "k")[0].Traceparent; shown != got[0].Traceparent {
		t.Errorf("the tick shows %s", shown)
	}
	made := map[string][]string{}                      // processes, by the name of the span
	parents, sweep := map[[8]byte][8]byte{}, [8]byte{} // of the spans above the tick
	for _, span := range collector.Spans() {
		if [16]byte(span.TraceId) != sent.Trace {
			continue
		}
		made[span.Name] = append(made[span.Name], span.Resource["service.instance.id"])
		switch span.Name {
		case "sweep":
			sweep = [8]byte(span.SpanId)
		case "open", "tick":
			parents[[8]byte(span.SpanId)] = [8]byte(span.ParentSpanId)
		case "push", "finish":
			if [8]byte(span.ParentSpanId) != sent.Span {
				t.Errorf("a %s is not under the tick: %v", span.Name, span)
			}
		}
	}
	if above := parents[parents[sent.Span]]; sweep == [8]byte{} || above != sweep {
		t.Errorf("the tick's opening is under %x, want the sweep %x", above, sweep)
	}
	if len(made["sweep"]) != 1 || made["sweep"][0] != "killed" || len(made["finish"]) != 1 || made["finish"][0] != "heir" {
		t.Errorf("got spans of %v", made)
	}
}
