package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillonhq/carillon/tenants"
)

const (
	floodConnections = 64
	floodSlow        = 20 // requests at a time
	floodReads       = 50 // a second
	floodFor         = 20 * time.Second
	floodWithin      = 500 // ms, p99
)

// flood reads for one tenant at a steady rate: alone, beside strangers who ask for readiness and tokens as fast as they can, and
// beside slow requests of another tenant.
func flood(ctx context.Context, o options, p *progress) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	b, err := openBench(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer b.close()
	server, err := b.serve(ctx, "flood", b.env)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	f := &flooded{bench: b, url: "http://" + server.Listen, length: o.lasting(floodFor, 5*time.Second)}
	f.client = httpClient(manyConnections())
	defer f.client.CloseIdleConnections()
	if err := f.prepare(ctx); err != nil {
		return nil, err
	}
	r := &report{}
	for _, phase := range []struct {
		name   string
		beside func(context.Context, func(int)) error
	}{{"alone", nil}, {"beside_flood", f.strangers}, {"beside_slow", f.slow}} {
		p.say("reading %s for %s", strings.ReplaceAll(phase.name, "_", " "), f.length)
		if err := f.measure(ctx, r, phase.name, phase.beside); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// flooded is the tenant that reads, and the others.
type flooded struct {
	*bench
	url                string
	client             *http.Client
	reader, slowTenant string // tokens
	length             time.Duration
}

// prepare makes both tenants, a schedule of the one and the profile of a key of the other.
func (f *flooded) prepare(ctx context.Context) (err error) {
	for name, token := range map[string]*string{"reader": &f.reader, "slow": &f.slowTenant} {
		if _, err := tenants.Ensure(ctx, f.db, name, tenants.Defaults()); err != nil {
			return err
		}
		claims := tenants.Claims{Subject: "loadtest", Tenant: name, Scopes: []string{tenants.SchedulesWrite, tenants.SchedulesRead}, TTL: time.Hour}
		if *token, err = f.minter.Mint(claims, time.Now()); err != nil {
			return err
		}
	}
	for path, one := range map[string]struct{ token, body string }{
		"/v1/workflows/w/schedules/k": {f.reader, `{"spec": {"cron": "0 8 1 1 *"}}`},
		"/v1/subjects/k":              {f.slowTenant, `{"timezone": "Europe/Berlin"}`},
	} {
		if status, err := f.send(ctx, one.token, http.MethodPut, path, one.body); err != nil || status >= 300 {
			return fmt.Errorf("PUT %s: %d %w", path, status, err)
		}
	}
	return nil
}

func (f *flooded) send(ctx context.Context, token, method, path, body string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, method, f.url+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := f.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

// measure reads at a steady rate while beside runs, and notes the answers.
func (f *flooded) measure(ctx context.Context, r *report, name string, beside func(context.Context, func(int)) error) error {
	others, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var took []time.Duration
	refused, statuses := 0, map[int]int{}
	group, ctx := errgroup.WithContext(ctx)
	if beside != nil {
		group.Go(func() error {
			return beside(others, func(status int) { mu.Lock(); statuses[status]++; mu.Unlock() })
		})
	}
	reads, reading := errgroup.WithContext(ctx)
	began := time.Now()
	for k := range int(f.length.Seconds() * floodReads) {
		due := began.Add(time.Duration(k) * time.Second / floodReads)
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
		}
		reads.Go(func() error {
			path := []string{"/v1/schedules", "/v1/workflows/w/schedules/k"}[k%2]
			status, err := f.send(reading, f.reader, http.MethodGet, path, "")
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(due))
			if status != http.StatusOK {
				refused++
			}
			return nil
		})
	}
	err := reads.Wait()
	stop()
	if other := group.Wait(); err == nil {
		err = other
	}
	if err != nil {
		return err
	}
	all := 0
	for _, n := range statuses {
		all += n
	}
	r.figure(name+"_others_per_second", float64(all)/f.length.Seconds())
	r.figure(name+"_p50_ms", milliseconds(percentile(took, 0.5)))
	r.atMost(name+"_p99_ms", milliseconds(percentile(took, 0.99)), floodWithin)
	r.atMost(name+"_reads_refused", float64(refused), 0)
	return nil
}

// strangers request /readyz on half of the connections, and exchange made-up API keys on the others.
func (f *flooded) strangers(ctx context.Context, answered func(status int)) error {
	return f.crowd(ctx, floodConnections, answered, func(i int) (int, error) {
		if i%2 == 0 {
			return f.send(ctx, "", http.MethodGet, "/readyz", "")
		}
		random := rand.Text() + rand.Text()
		return f.send(ctx, "", http.MethodPost, "/v1/token", fmt.Sprintf(`{"api_key": "carillon_key_%s%08x"}`, random, crc32.ChecksumIEEE([]byte(random))))
	})
}

// slow changes a profile whose row another transaction has locked. Each request waits as long as the server allows.
func (f *flooded) slow(ctx context.Context, answered func(status int)) error {
	tx, err := f.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it has changed nothing
	if _, err := tx.Exec(ctx, `SELECT FROM subject_profile WHERE subject = 'k' FOR UPDATE`); err != nil {
		return err
	}
	return f.crowd(ctx, floodSlow, answered, func(int) (int, error) {
		return f.send(ctx, f.slowTenant, http.MethodPut, "/v1/subjects/k", `{"timezone": "Asia/Tokyo"}`)
	})
}

// crowd runs n clients that send one request after another until ctx ends.
func (f *flooded) crowd(ctx context.Context, n int, answered func(status int), send func(i int) (int, error)) error {
	clients := new(errgroup.Group)
	for i := range n {
		clients.Go(func() error {
			for ctx.Err() == nil {
				status, err := send(i)
				if err != nil && ctx.Err() == nil {
					return err
				}
				answered(status)
			}
			return nil
		})
	}
	return clients.Wait()
}
