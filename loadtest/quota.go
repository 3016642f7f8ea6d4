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
	quotaTimes   = 10  // as many does the one ask that asks too much
	quotaOther   = 25  // requests a second of the other
	quotaFor     = 25 * time.Second
	quotaSettles = 5 * time.Second // the burst that a full bucket holds is spent by then
	quotaOff     = 0.1             // of the quota, that more or less may be admitted
	quotaSlower  = 2               // times
)

// quota lets a tenant ask ten times what its quota allows of two processes, beside another that asks little: what is
// admitted, and how long the other waits, beside it and alone.
func quota(ctx context.Context, o options, p *progress) (_ *report, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	w, err := openBench(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer w.close()
	env := append(w.env, "CARILLON_CONNECTIONS=20")
	one, err := w.serve(ctx, "one", env, "--role", "api")
	if err != nil {
		return nil, err
	}
	defer one.stop()
	other, err := w.serve(ctx, "other", env, "--role", "api")
	if err != nil {
		return nil, err
	}
	defer other.stop()
	platform, err := w.output(ctx, env, "token", "--scope", "platform:admin")
	if err != nil {
		return nil, err
	}
	transport := manyConnections()
	defer transport.CloseIdleConnections()
	a := asking{httpClient(transport), []string{"http://" + one.listen, "http://" + other.listen}}
	tokens := map[string]string{}
	for _, name := range []string{"greedy", "modest"} {
		body := fmt.Sprintf(`{"quotas": {"requests_per_second": %d}}`, quotaRate)
		if status, _, err := a.ask(ctx, 0, http.MethodPut, "/v1/platform/tenants/"+name, platform, body); err != nil || status != http.StatusCreated {
			return nil, fmt.Errorf("make tenant %s: %d, %w", name, status, err)
		}
		if tokens[name], err = w.output(ctx, env, "token", "--tenant", name); err != nil {
			return nil, err
		}
		if status, _, err := a.ask(ctx, 0, http.MethodPut, quotaPath, tokens[name], `{"spec": {"cron": "0 8 * * *"}}`); err != nil || status != http.StatusCreated {
			return nil, fmt.Errorf("put a schedule of %s: %d, %w", name, status, err)
		}
	}
	length := max(2*quotaSettles, time.Duration(float64(quotaFor)*min(1, o.scale)))
	if _, err := a.steadily(ctx, tokens["modest"], quotaOther, 2*time.Second); err != nil { // plans are made and caches filled
		return nil, err
	}
	p.say("one tenant alone")
	alone, err := a.steadily(ctx, tokens["modest"], quotaOther, length)
	if err != nil {
		return nil, err
	}
	p.say("beside one that asks %d times its quota", quotaTimes)
	var beside, greedy asked
	both, within := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		greedy, err = a.steadily(within, tokens["greedy"], quotaTimes*quotaRate, length)
		return err
	})
	both.Go(func() (err error) { beside, err = a.steadily(within, tokens["modest"], quotaOther, length); return err })
	if err := both.Wait(); err != nil {
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

const quotaPath = "/v1/workflows/w/schedules/k"

// asking sends requests to processes.
type asking struct {
	client *http.Client
	urls   []string
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

// asked is what came of requests at a steady rate.
type asked struct {
	mu      sync.Mutex
	took    []time.Duration // of those that were admitted
	at      []time.Duration // when these were due, from the beginning on
	refused int
	odd     int // neither admitted nor refused for the rate
	sent    []time.Duration
}

// admitted counts, of a span of time, what was admitted and what was asked.
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

const quotaAtATime = 200 // requests of one tenant: beyond that the machine is too slow, and the next is sent later

// steadily reads one schedule at a rate, from the processes in turn, whether or not the last answer has come.
func (a asking) steadily(ctx context.Context, token string, perSecond int, length time.Duration) (asked, error) {
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
			break // far behind
		}
		group.Go(func() error {
			start := time.Now()
			status, _, err := a.ask(ctx, k, http.MethodGet, quotaPath, token, "")
			if err != nil {
				return err
			}
			took := time.Since(start)
			all.mu.Lock()
			defer all.mu.Unlock()
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
	return asked{took: all.took, at: all.at, refused: all.refused, odd: all.odd, sent: all.sent}, err
}
