package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// workers are workers of the SDK: two for each tenant, one of which refuses some ticks.
type workers struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// balanced sends requests to each API in turn.
type balanced struct {
	c    *client
	base http.RoundTripper
}

// RoundTrip sends the request to the API whose turn it is.
func (b balanced) RoundTrip(r *http.Request) (*http.Response, error) {
	apis := b.c.lab.apis()
	r = r.Clone(r.Context())
	r.URL.Host = apis[int(b.c.next.Add(1))%len(apis)]
	r.Host = r.URL.Host
	return b.base.RoundTrip(r)
}

func startWorkers(ctx context.Context, lab *Lab, clients []*client) (*workers, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &workers{cancel: cancel}
	for _, c := range clients {
		for i := range 2 {
			sdk, err := carillon.New(carillon.Config{
				URL: "http://" + lab.apis()[0],
				TokenSource: func(context.Context) (carillon.AccessToken, error) {
					token, err := lab.token(c.tenant)
					return carillon.AccessToken{Token: token}, err
				},
				HTTPClient: &http.Client{Transport: balanced{c, c.http.Transport}},
				Timeout:    answerWithin,
			})
			if err != nil {
				w.stop()
				return nil, err
			}
			name := fmt.Sprintf("worker-%d", i+1)
			worker := carillon.NewWorker(sdk, carillon.WorkerConfig{
				Name: name, Lease: 10 * time.Second, Wait: 5 * time.Second, ShutdownTimeout: 5 * time.Second, Concurrency: 50,
				Log: slog.New(slog.DiscardHandler), // it would only log that the server is killed
			})
			for _, workflow := range []string{pulledWorkflow, syncWorkflow} {
				carillon.Handle(worker, workflow, func(ctx context.Context, t carillon.Tick[json.RawMessage]) error {
					return lab.handle(ctx, c.tenant, name, t)
				})
			}
			w.done.Go(func() {
				for ctx.Err() == nil { // it also returns when its first lease is refused
					_ = worker.Run(ctx)
					sleep(ctx, time.Second)
				}
			})
		}
		w.done.Go(func() { lab.steal(ctx, c) })
	}
	return w, nil
}

func (w *workers) stop() {
	w.cancel()
	w.done.Wait()
}

// handle handles a tick for a worker.
func (l *Lab) handle(ctx context.Context, tenant, worker string, t carillon.Tick[json.RawMessage]) error {
	r := &receipt{Tenant: tenant, At: time.Now(), Where: worker, Signed: true, ID: t.TickID, Outcome: taken, tick: tick{
		TickID: t.TickID, ScheduleID: t.ScheduleID, Workflow: t.Workflow, Key: t.Key, Timestamp: t.Timestamp, LastTimestamp: t.LastTimestamp,
		Upcoming: t.Upcoming, FiredAt: t.FiredAt, Attempt: t.Attempt, Occurrence: t.Occurrence, MissedCount: int(t.MissedCount), Cause: t.Cause,
		Version: t.ScheduleVersion, LeaseToken: t.LeaseToken, Payload: t.Payload,
	}}
	sleep(ctx, time.Duration(hashed(t.TickID)%200)*time.Millisecond)
	var err error
	switch {
	case ctx.Err() != nil: // the tick was cancelled or its lease lost, or the worker stops: nothing was done
		r.Outcome, err = letLie, ctx.Err()
	case worker == "worker-2" && t.Attempt <= 2 && hashed(t.TickID)%6 == 0 && !l.healed.Load():
		r.Outcome, err = turnedOff, errUnhandled
	}
	r.Done = time.Now()
	l.ledger.add(r)
	return err
}

// steal leases ticks and completes most of them, after it has tried the token of another tick, which must be refused. It does nothing with
// the others until their leases have ended. Then their own tokens must be refused, too.
func (l *Lab) steal(ctx context.Context, c *client) {
	for sleep(ctx, 200*time.Millisecond) {
		a := c.do(ctx, http.MethodPost, "/v1/ticks/lease", fmt.Appendf(nil, `{"workflows":[%q],"max":20,"lease":"10s","wait":"2s","worker":"thief"}`, stolenWorkflow))
		began := time.Now()
		var leased struct{ Ticks []tick }
		if !a.ok() || json.Unmarshal(a.body, &leased) != nil || len(leased.Ticks) == 0 {
			continue
		}
		late := false
		for i, t := range leased.Ticks {
			r := &receipt{Tenant: c.tenant, At: began, Where: "thief", Signed: true, ID: t.TickID, Outcome: letLie, tick: t}
			wrong := leased.Ticks[(i+1)%len(leased.Ticks)]
			switch {
			case t.Attempt == 1 && hashed(t.TickID)%3 == 0 && !l.healed.Load():
				late = true
			default:
				if wrong.TickID != t.TickID {
					l.mustRefuse(ctx, c, t.TickID, wrong.LeaseToken, "another tick's token")
				}
				l.ledger.acting.RLock()
				a := c.do(ctx, http.MethodPost, "/v1/ticks/"+t.TickID+"/complete", fmt.Appendf(nil, `{"lease_token":%q}`, t.LeaseToken))
				if a.ok() || !a.known {
					r.Outcome = taken
				}
				if !a.known {
					r.Outcome = cutOff
				}
				r.Done = time.Now()
				l.ledger.add(r)
				l.ledger.acting.RUnlock()
				continue
			}
			r.Done = time.Now()
			l.ledger.add(r)
		}
		if !late || !sleep(ctx, time.Until(began.Add(10*time.Second+500*time.Millisecond))) {
			continue
		}
		for _, t := range leased.Ticks {
			if t.Attempt == 1 && hashed(t.TickID)%3 == 0 {
				l.mustRefuse(ctx, c, t.TickID, t.LeaseToken, "a token of a lease that has ended")
			}
		}
	}
}

// mustRefuse complains if the server accepts an invalid token.
func (l *Lab) mustRefuse(ctx context.Context, c *client, id, token, what string) {
	a := c.do(ctx, http.MethodPost, "/v1/ticks/"+id+"/complete", fmt.Appendf(nil, `{"lease_token":%q}`, token))
	if a.known && a.status != http.StatusConflict && a.status != http.StatusNotFound {
		l.ledger.complain(fmt.Sprintf("I7 %s completed tick %s of tenant %s: %d %.200s", what, id, c.tenant, a.status, a.body))
	}
}
