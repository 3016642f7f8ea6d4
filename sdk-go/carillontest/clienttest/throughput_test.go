package clienttest

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

// busy runs n ticks over HTTP with one worker, whose handler does nothing. It returns how long that took, and the number of requests of
// each kind.
func busy(tb testing.TB, n int) (took time.Duration, leases, finishes int64) {
	tb.Helper()
	server := carillontest.New()
	defer server.Close()
	url := server.Listen()
	_, err := server.Client().Schedules.Put(tb.Context(), "w", "k", carillon.Params{
		Spec: carillon.Every(time.Second), Policy: carillon.Policy{Overlap: "allow_all"}, Payload: Digest{Email: "ada@example.com"},
	})
	if err != nil {
		tb.Fatal(err)
	}
	server.AdvanceBy(time.Duration(n) * time.Second)

	var leased, finished, done atomic.Int64
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	defer transport.CloseIdleConnections()
	c, err := carillon.New(carillon.Config{
		URL: url, Token: carillontest.Token,
		HTTPClient: &http.Client{Transport: wire{transport, func(r *http.Request) error {
			if strings.HasSuffix(r.URL.Path, "/lease") {
				leased.Add(1)
			}
			if strings.HasSuffix(r.URL.Path, "/finish") {
				finished.Add(1)
			}
			return nil
		}}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(tb.Context())
	w := carillon.NewWorker(c, carillon.WorkerConfig{Log: quiet})
	carillon.Handle(w, "w", func(context.Context, carillon.Tick[Digest]) error {
		if done.Add(1) == int64(n) {
			stop()
		}
		return nil
	})
	began := time.Now()
	if err := w.Run(ctx); err != nil {
		tb.Fatal(err)
	}
	took = time.Since(began)
	s, err := server.Client().Schedules.Get(tb.Context(), "w", "k")
	if err != nil || s.Stats.Succeeded != int64(n) || done.Load() != int64(n) {
		tb.Fatalf("got %+v after %d runs, %v; want %d", s.Stats, done.Load(), err, n)
	}
	return took, leased.Load(), finished.Load()
}

// A tenant's workers have a quota of requests, not of ticks: however many ticks there are, a worker reports no more than
// 40 times a second, and leases no more than 40 times with each of its two polls.
func TestManyTicksTakeFewRequests(t *testing.T) {
	t.Parallel()
	const n = 10_000
	took, leases, finishes := busy(t, n)
	if most := 40*took.Seconds() + 10; float64(finishes) > most || float64(leases) > 2*most {
		t.Errorf("%d ticks took %d leases and %d finishes in %s", n, leases, finishes, took)
	}
}

func BenchmarkWorker(b *testing.B) {
	took, leases, finishes := busy(b, max(b.N, 1000))
	b.ReportMetric(float64(max(b.N, 1000))/took.Seconds(), "ticks/s")
	b.ReportMetric(float64(leases), "leases")
	b.ReportMetric(float64(finishes), "finishes")
	b.ReportMetric(0, "ns/op")
}
