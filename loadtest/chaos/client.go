package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// answerWithin bounds an attempt at a request. After it the outcome is unknown to the client.
const answerWithin = 8 * time.Second

// client sends requests of one tenant, to each API in turn. It repeats none by itself.
type client struct {
	lab    *Lab
	tenant string
	http   *http.Client
	next   *atomic.Int64
}

// answer is the result of one attempt. known is false without an answer, or if the answer does not show whether the change was made.
type answer struct {
	known  bool
	status int
	body   []byte
	err    error
}

func (a answer) ok() bool { return a.known && a.status/100 == 2 }

func newClient(lab *Lab, tenant string) *client {
	transport := &http.Transport{DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext, MaxIdleConnsPerHost: 16, IdleConnTimeout: 10 * time.Second}
	return &client{lab: lab, tenant: tenant, http: &http.Client{Transport: transport}, next: new(atomic.Int64)}
}

// do makes one attempt.
func (c *client) do(ctx context.Context, method, path string, body []byte, headers ...string) (a answer) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	apis := c.lab.apis()
	at := apis[int(c.next.Add(1))%len(apis)]
	request, err := http.NewRequestWithContext(ctx, method, "http://"+at+path, bytes.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	token, err := c.lab.token(c.tenant)
	if err != nil {
		return answer{err: err}
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.http.Do(request)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	a.status = response.StatusCode
	if a.body, a.err = io.ReadAll(response.Body); a.err != nil {
		return a
	}
	// After a server error or a shed request the outcome is unknown, and another attempt makes sense.
	a.known = a.status < 500 && a.status != http.StatusTooManyRequests
	return a
}

// until makes attempts until one has a known outcome, and returns their number.
func (c *client) until(ctx context.Context, method, path string, body []byte, headers ...string) (a answer, tries int, err error) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		tries++
		if a = c.do(ctx, method, path, body, headers...); a.known {
			return a, tries, nil
		}
		if a.status == http.StatusInternalServerError {
			c.lab.internal.Add(1)
		}
		if tries%20 == 0 && c.lab.healed.Load() {
			c.lab.say("%s %s of %s: %d tries, the last one got %d %.200s %v", method, path, c.tenant, tries, a.status, a.body, a.err)
		}
		if !sleep(ctx, wait) {
			return a, tries, ctx.Err()
		}
	}
}

// get reads a resource, with as many attempts as necessary.
func get[T any](ctx context.Context, c *client, path string, query url.Values) (into T, err error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	a, _, err := c.until(ctx, http.MethodGet, path, nil)
	if err != nil {
		return into, err
	}
	if !a.ok() {
		return into, fmt.Errorf("GET %s: %d: %.300s", path, a.status, a.body)
	}
	return into, json.Unmarshal(a.body, &into)
}

// page is one page of a list.
type page[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor"`
}

// all reads a whole list.
func all[T any](ctx context.Context, c *client, path string, query url.Values) (items []T, err error) {
	query.Set("limit", "1000")
	for {
		p, err := get[page[T]](ctx, c, path, query)
		if err != nil {
			return nil, err
		}
		items = append(items, p.Items...)
		if p.NextCursor == nil {
			return items, nil
		}
		query.Set("cursor", *p.NextCursor)
	}
}

// sleep waits, and reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// tick is a tick of a message or of the record, in a struct of the lab's own.
type tick struct {
	TickID        string          `json:"tick_id"`
	ScheduleID    string          `json:"schedule_id"`
	Workflow      string          `json:"workflow"`
	Key           string          `json:"key"`
	Timestamp     time.Time       `json:"timestamp"`
	LastTimestamp *time.Time      `json:"last_timestamp"`
	Upcoming      []time.Time     `json:"upcoming"`
	FiredAt       time.Time       `json:"fired_at"`
	EndedAt       *time.Time      `json:"ended_at"`
	Attempt       int             `json:"attempt"`
	Occurrence    *int64          `json:"occurrence"`
	MissedCount   int             `json:"missed_count"`
	Cause         string          `json:"cause"`
	State         string          `json:"state"`
	Reason        string          `json:"reason"`
	Version       int64           `json:"schedule_version"`
	LeaseToken    string          `json:"lease_token"`
	Payload       json.RawMessage `json:"payload"`
}

func (t *tick) name(tenant string) name { return name{tenant, t.Workflow, t.Key} }

// timed reports whether the spec named the tick's time, not a client.
func (t *tick) timed() bool { return t.Cause != "manual" && t.Cause != "backfill" }

// stored is a schedule as a list shows it.
type stored struct {
	ID       string     `json:"id"`
	Workflow string     `json:"workflow"`
	Key      string     `json:"key"`
	Version  int64      `json:"version"`
	Status   string     `json:"status"`
	NextAt   *time.Time `json:"next_at"`
}
