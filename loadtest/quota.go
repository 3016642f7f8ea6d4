package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	quotaRate    = 100 // requests_per_second of each tenant
	quotaTimes   = 10  // the greedy tenant sends so many times its quota
	quotaOther   = 25  // requests a second of the other
	quotaFor     = 25 * time.Second
	quotaSettles = 5 * time.Second // by then the burst of a full token bucket is spent
	quotaOff     = 0.1             // the admitted requests may differ by this part of the quota
	quotaSlower  = 2               // times
)

// quota lets one tenant send ten times the requests that its quota allows to two processes, while another tenant sends few. It
// measures how many are admitted, and how long the other tenant waits, with the first and alone.
func quota(ctx context.Context, o options, p *progress) (_ *report, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	w, err := openBench(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer w.close()
	one, other, stop, err := w.serveTwo(ctx, "--role", "api")
	if err != nil {
		return nil, err
	}
	defer stop()
	transport := manyConnections()
	defer transport.CloseIdleConnections()
	a := asking{httpClient(transport), []string{"http://" + one.Listen, "http://" + other.Listen}}
	tokens := map[string]string{}
	for _, name := range []string{"greedy", "modest"} {
		if tokens[name], err = w.newTenant(ctx, a, name, fmt.Sprintf(`{"quotas": {"requests_per_second": %d}}`, quotaRate)); err != nil {
			return nil, err
		}
		if err := a.putSchedule(ctx, tokens[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	length := max(2*quotaSettles, time.Duration(float64(quotaFor)*min(1, o.scale)))
	if _, err := a.steadily(ctx, tokens["modest"], quotaOther, 2*time.Second); err != nil { // statements are prepared and caches filled
		return nil, err
	}
	p.say("one tenant alone")
	alone, err := a.steadily(ctx, tokens["modest"], quotaOther, length)
	if err != nil {
		return nil, err
	}
	p.say("beside a tenant that sends %d times its quota", quotaTimes)
	greedy, beside, err := a.bothSteadily(ctx, tokens, length)
	if err != nil {
		return nil, err
	}
	admitted, sent := greedy.admitted(quotaSettles, length)
	seconds := (length - quotaSettles).Seconds()

	r := &report{}
	r.figure("quota_per_second", quotaRate)
	r.figure("asked_per_second", float64(sent)/seconds)
	r.figure("admitted_per_second", float64(admitted)/seconds)
	r.figure("answered_otherwise", float64(greedy.odd+alone.odd+beside.odd))
	r.figure("other_p50_alone_ms", milliseconds(percentile(alone.took, 0.5)))
	r.figure("other_p50_beside_ms", milliseconds(percentile(beside.took, 0.5)))
	r.figure("other_p99_alone_ms", milliseconds(percentile(alone.took, 0.99)))
	r.figure("other_p99_beside_ms", milliseconds(percentile(beside.took, 0.99)))
	part := float64(admitted) / seconds / quotaRate
	r.atMost("admitted_of_quota", part, 1+quotaOff)
	r.atLeast("admitted_of_quota_at_least", part, 1-quotaOff)
	r.atMost("other_refused", float64(alone.refused+beside.refused), 0)
	r.atMost("other_p99_times", float64(percentile(beside.took, 0.99))/float64(max(1, percentile(alone.took, 0.99))), quotaSlower)
	return r, nil
}

// newTenant creates a tenant from the body of the request, and returns a token of it.
func (b *bench) newTenant(ctx context.Context, a asking, name, body string) (token string, err error) {
	platform, err := b.output(ctx, b.env, "token", "--scope", "platform:admin")
	if err != nil {
		return "", err
	}
	if status, _, err := a.ask(ctx, 0, http.MethodPut, "/v1/platform/tenants/"+name, platform, body); err != nil || status != http.StatusCreated {
		return "", fmt.Errorf("make tenant %s: %d, %w", name, status, err)
	}
	return b.output(ctx, b.env, "token", "--tenant", name)
}

const quotaPath = "/v1/workflows/w/schedules/k"

// asking sends requests to the processes.
type asking struct {
	client *http.Client
	urls   []string
}

// putSchedule stores the schedule that is read steadily.
func (a asking) putSchedule(ctx context.Context, token string) error {
	if status, _, err := a.ask(ctx, 0, http.MethodPut, quotaPath, token, `{"spec": {"cron": "0 8 * * *"}}`); err != nil || status != http.StatusCreated {
		return fmt.Errorf("put a schedule: %d, %w", status, err)
	}
	return nil
}

// ask sends one request to one of the processes.
func (a asking) ask(ctx context.Context, to int, method, path, token, body string) (status int, header http.Header, err error) {
	answer, err := a.answer(ctx, to, method, path, token, body)
	return answer.status, answer.header, err
}

type answered struct {
	status int
	header http.Header
	body   []byte
}

func (a asking) answer(ctx context.Context, to int, method, path, token, body string) (got answered, err error) {
	request, err := http.NewRequestWithContext(ctx, method, a.urls[to%len(a.urls)]+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return got, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := a.client.Do(request)
	if err != nil {
		return got, err
	}
	defer answer.Body.Close()
	got.status, got.header = answer.StatusCode, answer.Header
	got.body, err = io.ReadAll(answer.Body)
	return got, err
}

// asked is the outcome of requests at a steady rate. Times count from the first request.
type asked struct {
	took    []time.Duration // how long each admitted request took
	at      []time.Duration // when each of these was sent
	refused int
	odd     int // neither admitted nor refused for the rate
	sent    []time.Duration
}

// admitted counts the requests that were sent in a span of time, and those of them that were admitted.
func (a *asked) admitted(from, to time.Duration) (admitted, sent int) {
	within := func(all []time.Duration) (n int) {
		for _, at := range all {
			if at >= from && at < to {
				n++
			}
		}
		return n
	}
	return within(a.at), within(a.sent)
}

const quotaAtATime = 200 // requests of one tenant: if more are under way, the machine is too slow and the next one waits

// bothSteadily lets the greedy tenant ask many times its quota while the modest one asks little.
func (a asking) bothSteadily(ctx context.Context, tokens map[string]string, length time.Duration) (greedy, modest asked, err error) {
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		greedy, err = a.steadily(ctx, tokens["greedy"], quotaTimes*quotaRate, length)
		return err
	})
	both.Go(func() (err error) {
		modest, err = a.steadily(ctx, tokens["modest"], quotaOther, length)
		return err
	})
	err = both.Wait()
	return greedy, modest, err
}

// steadily reads one schedule at a rate, from the processes in turn. It does not wait for an answer before the next request.
func (a asking) steadily(ctx context.Context, token string, perSecond int, length time.Duration) (asked, error) {
	var mu sync.Mutex
	var all asked
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(quotaAtATime)
	began := time.Now()
	for k := range int(length.Seconds() * float64(perSecond)) {
		due := time.Duration(k) * time.Second / time.Duration(perSecond)
		select {
		case <-time.After(time.Until(began.Add(due))):
		case <-ctx.Done():
			return asked{}, group.Wait()
		}
		if time.Since(began) > length+quotaSettles {
			break // the machine is too slow
		}
		group.Go(func() error {
			start := time.Now()
			status, _, err := a.ask(ctx, k, http.MethodGet, quotaPath, token, "")
			if err != nil {
				return err
			}
			took := time.Since(start)
			mu.Lock()
			defer mu.Unlock()
			all.sent = append(all.sent, start.Sub(began))
			switch status {
			case http.StatusOK:
				all.took, all.at = append(all.took, took), append(all.at, start.Sub(began))
			case http.StatusTooManyRequests:
				all.refused++
			default:
				all.odd++
			}
			return nil
		})
	}
	err := group.Wait()
	return all, err
}
