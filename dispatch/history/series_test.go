package history_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

// total adds up the buckets of a series.
func total(h *dispatchtest.Carillon, f history.SeriesFilter) (sum history.Bucket) {
	h.T.Helper()
	f.To = time.Now().Add(time.Minute)
	f.From = f.To.Add(-2 * time.Hour)
	view, err := h.Dispatch.Reader.Series(h.T.Context(), h.Tenant, f)
	if err != nil {
		h.T.Fatal(err)
	}
	sum.Skipped = map[string]int64{}
	for _, b := range view.Buckets {
		sum.Due, sum.Fired, sum.Succeeded, sum.Failed = sum.Due+b.Due, sum.Fired+b.Fired, sum.Succeeded+b.Succeeded, sum.Failed+b.Failed
		sum.Cancelled, sum.Retried, sum.Missed = sum.Cancelled+b.Cancelled, sum.Retried+b.Retried, sum.Missed+b.Missed
		for reason, n := range b.Skipped {
			sum.Skipped[reason] += n
		}
		counted := int64(0)
		for _, pair := range b.Lateness.Histogram {
			counted += *pair[1]
		}
		if counted != b.Fired || (b.Lateness.P50 == nil) != (counted == 0) {
			h.T.Errorf("the bucket at %s has %d fired ticks, but the histogram %d", b.At, b.Fired, counted)
		}
	}
	return sum
}

func TestTheSeriesIsTheRecords(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	c := h.Catcher("pushed", 1, func(n int, w http.ResponseWriter) {
		if n == 1 {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	defer c.Close()
	trigger := func(workflow string, p control.TriggerParams) {
		t.Helper()
		if _, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, workflow, "k", p, once.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	pushed := dispatchtest.Rarely("allow_all")
	pushed.Delivery = &policy.Delivery{MaxAttempts: new(1)}
	h.Put("pushed", "k", pushed)
	for range 3 {
		trigger("pushed", control.TriggerParams{})
	}
	trigger("pushed", control.TriggerParams{In: "1h"}) // is not due yet
	dispatchtest.Until(t, "three ticks ended", func() bool { return recorded(h).Succeeded+recorded(h).Failed == 3 })

	h.Put("skips", "k", dispatchtest.Rarely("skip"))
	for range 3 {
		trigger("skips", control.TriggerParams{})
	}
	h.End(h.Lease("skips", 1)[0], "fail", true)

	h.Put("waits", "k", dispatchtest.Rarely("buffer_all"))
	for range 2 {
		trigger("waits", control.TriggerParams{})
	}
	h.Finish(h.Lease("waits", 1)[0])
	h.Finish(h.Lease("waits", 1)[0])

	p := dispatchtest.EverySecond()
	p.Policy = &policy.Policy{Overlap: "skip"}
	h.Put("timed", "k", p)
	h.Finish(h.Lease("timed", 1)[0])
	timed := h.History("timed", "k")
	if err := h.Schedules.Delete(t.Context(), h.Tenant, "timed", "k", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "all is opened", func() bool { return len(h.Chunks()) == 0 })
	timed = timed[:1]

	for _, when := range []string{"before", "after"} {
		for _, step := range []time.Duration{time.Minute, 5 * time.Minute, time.Hour} {
			for _, one := range []struct {
				name string
				f    history.SeriesFilter
				want history.Bucket
			}{
				{"pushed", history.SeriesFilter{Workflow: "pushed"}, history.Bucket{Due: 3, Fired: 3, Succeeded: 2, Failed: 1, Skipped: map[string]int64{}}},
				{"its endpoint", history.SeriesFilter{Endpoint: "pushed"}, history.Bucket{Due: 3, Fired: 3, Succeeded: 2, Failed: 1, Skipped: map[string]int64{}}},
				{"both", history.SeriesFilter{Workflow: "pushed", Endpoint: "pushed"}, history.Bucket{Due: 3, Fired: 3, Succeeded: 2, Failed: 1, Skipped: map[string]int64{}}},
				{"skips", history.SeriesFilter{Workflow: "skips"}, history.Bucket{Due: 3, Fired: 1, Retried: 1, Skipped: map[string]int64{"overlap": 2}}},
				{"waits", history.SeriesFilter{Workflow: "waits"}, history.Bucket{Due: 2, Fired: 2, Succeeded: 2, Skipped: map[string]int64{}}},
				{"no such", history.SeriesFilter{Workflow: "pushed", Endpoint: "other"}, history.Bucket{Skipped: map[string]int64{}}},
			} {
				one.f.Step = step
				if diff := cmp.Diff(one.want, total(h, one.f)); diff != "" {
					t.Errorf("%s the fold, %s by %s: %s", when, one.name, step, diff)
				}
			}
			all, use := total(h, history.SeriesFilter{Step: step}), recorded(h)
			if skipped := all.Skipped["overlap"]; all.Due != use.Ticks-1 || all.Succeeded != use.Succeeded || all.Failed != use.Failed || skipped != use.Skipped || all.Cancelled != use.Cancelled {
				t.Errorf("%s the fold, all by %s: %+v, but the record has %+v", when, step, all, use)
			}
			if first := total(h, history.SeriesFilter{Workflow: "timed", Step: step}); first.Due == 0 || first.Fired == 0 || len(timed) == 0 {
				t.Errorf("%s the fold, a timed workflow by %s: %+v", when, step, first)
			}
		}
		if err := h.Dispatch.FoldUse(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A percentile lies between the bounds of the bucket that has the tick of that rank.
func TestPercentilesLieInTheirBucket(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		late := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Hour)/2), 1, 200).Draw(t, "late")
		counts := make([]int64, record.LatenessBuckets+1)
		for _, l := range late {
			b := record.LatenessBucket(time.Duration(l))
			if l > int64(record.LatenessBound(b)) || b > 0 && l <= int64(record.LatenessBound(b-1)) {
				t.Fatalf("%d ns is not in bucket %d", l, b)
			}
			counts[b]++
		}
		p50, p99 := history.Percentile(counts, 0.5), history.Percentile(counts, 0.99)
		if p50 == nil || p99 == nil || *p50 > *p99 {
			t.Fatalf("p50 %v, p99 %v", p50, p99)
		}
		most := 0
		for _, l := range late {
			most = max(most, int(record.LatenessBucket(time.Duration(l))))
		}
		if *p99 > float64(record.LatenessBound(int16(most)).Milliseconds()) {
			t.Fatalf("p99 is %g ms, above the last bucket %d", *p99, most)
		}
	})
	if history.Percentile(make([]int64, record.LatenessBuckets+1), 0.5) != nil {
		t.Error("no tick has a lateness")
	}
	if record.LatenessBucket(1000*time.Hour) != record.LatenessBuckets {
		t.Error("a tick that is later than all bounds has no bucket of its own")
	}
}

func TestStepsOfASeries(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	op := h.Open(h.Dispatch).Operator()
	const path = "/v1/admin/series"
	view := dispatchtest.Get[history.Series](op, 200, "GET", path+"?from=2026-11-21T08:00:30Z&to=2026-11-21T09:00:00Z&step=5m", "")
	if len(view.Buckets) != 12 || view.From != time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC) || view.Step != "5m" {
		t.Errorf("got %+v", view)
	}
	for query, want := range map[string]string{
		"": "1m", "?from=2026-11-01T00:00:00Z&to=2026-11-02T00:00:00Z": "5m", "?from=2026-08-01T00:00:00Z&to=2026-11-02T00:00:00Z": "6h",
	} {
		if got := dispatchtest.Get[history.Series](op, 200, "GET", path+query, ""); got.Step != want || len(got.Buckets) == 0 {
			t.Errorf("%q: step %s with %d buckets, want %s", query, got.Step, len(got.Buckets), want)
		}
	}
	op.Refused(422, "invalid", "/step", "GET", path+"?step=7m", "")
	op.Refused(422, "invalid", "/step", "GET", path+"?step=30s", "")
	op.Refused(422, "invalid", "/step", "GET", path+"?from=2026-01-01T00:00:00Z&to=2026-11-02T00:00:00Z&step=1m", "")
	op.Refused(422, "invalid", "/to", "GET", path+"?from=2026-01-01T00:00:00Z&to=2025-11-02T00:00:00Z", "")
	op.Refused(422, "invalid", "/endpoint", "GET", path+"?endpoint=%20", "")
	h.Open(h.Dispatch).As("acme", "schedules:read").Refused(403, "insufficient_scope", "", "GET", path, "")
}
