package history_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/once"
)

// follower reads a live tail.
type follower struct {
	t    *testing.T
	end  func()
	mu   sync.Mutex
	got  []history.TailTick
	id   string // of the last tick
	sums history.TailSecond
	gaps int
	over chan struct{} // closed when the stream ends
}

// follow opens a tail, and returns once it has begun.
func follow(c dispatchtest.Caller, query, last string) *follower {
	c.T.Helper()
	ctx, cancel := context.WithCancel(c.T.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", c.URL+"/v1/ticks/tail"+query, nil)
	if err != nil {
		c.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		c.T.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		c.T.Fatalf("got %d %s", resp.StatusCode, resp.Header)
	}
	done := make(chan struct{})
	f := &follower{t: c.T, over: done}
	go func() {
		defer close(done)
		defer resp.Body.Close()
		f.read(bufio.NewScanner(resp.Body))
	}()
	f.end = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	c.T.Cleanup(f.end)
	return f
}

// read reads events until the stream ends.
func (f *follower) read(lines *bufio.Scanner) {
	var event, id string
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			event = value
		case "id":
			id = value
		case "data":
			f.take(event, id, []byte(value))
		}
	}
}

func (f *follower) take(event, id string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	switch event {
	case "tick":
		var one history.TailTick
		err = json.Unmarshal(data, &one)
		f.got, f.id = append(f.got, one), id
	case "second":
		var s history.TailSecond
		err = json.Unmarshal(data, &s)
		f.sums.Fired, f.sums.Ended, f.sums.Unshown = f.sums.Fired+s.Fired, f.sums.Ended+s.Ended, f.sums.Unshown+s.Unshown
	case "gap":
		f.gaps++
	default:
		err = fmt.Errorf("there is an event %q", event)
	}
	if err != nil {
		f.t.Errorf("%v: %s", err, data)
	}
}

// lines returns the ticks so far, as kind, workflow, key and state.
func (f *follower) lines() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.got {
		all = append(all, strings.Join([]string{one.Kind, one.Workflow, one.Key, one.State}, " "))
	}
	return all
}

func (f *follower) counted() history.TailSecond {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sums
}

// known waits until a process knows what clients of any process follow: n filters. It tells of no tick before that.
func known(h *dispatchtest.Carillon, d *dispatchtest.Process, n int) {
	h.T.Helper()
	dispatchtest.Until(h.T, "a process knows what is followed", func() bool { return d.Finisher.Tail.Watched(h.Tenant) == n })
}

func trigger(h *dispatchtest.Carillon, workflow, key string) {
	h.T.Helper()
	if _, _, err := h.Dispatch.Control.Trigger(h.T.Context(), h.Tenant, workflow, key, control.TriggerParams{}, once.Request{}); err != nil {
		h.T.Fatal(err)
	}
}

// Ticks are shown as they fire and end, also those of another process, to those whose filter picks them.
func TestTheTailShowsTicksAsTheyFireAndEnd(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	other := h.Process()
	h.Start(other)
	h.Start(h.Dispatch)
	c := h.Open(h.Dispatch).As("acme", "schedules:read")
	for _, key := range []string{"a", "b"} {
		h.Put("w", key, dispatchtest.Rarely("skip"))
	}
	all, one := follow(c, "", ""), follow(c, "?workflow=w&key=b", "")
	failed := follow(c, "?state=skipped", "")
	trigger(h, "w", "a")
	trigger(h, "w", "b")
	trigger(h, "w", "b") // skipped
	for n := 0; n < 2; {
		for _, tick := range h.Lease("w", 10) {
			h.Finish(tick)
			n++
		}
	}
	want := func(f *follower, lines ...string) {
		t.Helper()
		dispatchtest.Until(t, "the lines came", func() bool { return len(f.lines()) >= len(lines) })
		got := f.lines()
		slices.Sort(got)
		slices.Sort(lines)
		if !slices.Equal(got, lines) {
			t.Errorf("got %q, want %q", got, lines)
		}
	}
	want(failed, "ended w b skipped")
	dispatchtest.Until(t, "all is counted", func() bool { s := all.counted(); return s.Fired >= 2 && s.Ended >= 1 })
	want(one, "fired w b running", "ended w b skipped", "ended w b succeeded")
	want(all, "fired w a running", "fired w b running", "ended w b skipped", "ended w a succeeded", "ended w b succeeded")
	for _, line := range all.got {
		if line.TickID == "" || line.LocalTime == "" || line.Kind == "ended" && line.TookMS == nil {
			t.Errorf("got %+v", line)
		}
	}

	// A client that comes again gets what it has missed; one that was away for too long is told so.
	one.end()
	trigger(h, "w", "b")
	h.Finish(h.Lease("w", 1)[0])
	again := follow(c, "?workflow=w&key=b", one.id)
	want(again, "fired w b running", "ended w b succeeded")
	late := follow(c, "", fmt.Sprint(time.Now().Add(-time.Hour).UnixMicro()))
	dispatchtest.Until(t, "the gap is told", func() bool { late.mu.Lock(); defer late.mu.Unlock(); return late.gaps == 1 })

	c.Refused(400, "malformed_header", "", "GET", "/v1/ticks/tail", "", "Last-Event-ID", "x")
	c.Refused(422, "invalid", "/cause", "GET", "/v1/ticks/tail?cause=x", "")
	req, err := http.NewRequestWithContext(t.Context(), "HEAD", c.URL+"/v1/ticks/tail", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	resp, err := c.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _ = resp.Body.Close(); resp.StatusCode != 405 {
		t.Errorf("HEAD: %d", resp.StatusCode)
	}
}

// Of many ticks at once 50 a second are shown, and the others are counted.
func TestTheTailIsBounded(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Put("herd", "first", dispatchtest.Daily(0))
	h.Herd("herd", "first", 999)
	h.Start(h.Dispatch)
	f := follow(c, "", "")
	h.Backdate(h.Tenant)
	dispatchtest.Until(t, "all are counted", func() bool { return f.counted().Fired == 1000 })
	dispatchtest.Until(t, "each is shown, or counted among the others", func() bool { return len(f.lines())+f.counted().Unshown == 1000 })
	if s, n := f.counted(), len(f.lines()); n == 0 || n > 200 || s.Unshown != 1000-n {
		t.Errorf("%d lines, and %+v", n, s)
	}
}

// A filter's counts are exact, also where few of its ticks are shown, and no line of another workflow, state or time comes.
func TestTheTailCountsWhatAFilterPicks(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	other := h.Process()
	h.Start(other)
	c := h.Open(h.Dispatch).As("acme", "ticks:work")
	for _, workflow := range []string{"herd", "noise"} {
		h.Put(workflow, "first", dispatchtest.Daily(0))
		h.Herd(workflow, "first", 399)
	}
	h.Start(h.Dispatch)
	mine, old := follow(c, "?workflow=herd", ""), follow(c, "?workflow=herd&to=2000-01-01T00:00:00Z", "")
	failed, succeeded := follow(c, "?workflow=herd&state=failed", ""), follow(c, "?workflow=herd&state=succeeded&from=2000-01-01T00:00:00Z", "")
	caused := follow(c, "?workflow=herd&cause=manual", "") // what a process knows of ticks has no cause: to it this is the first filter
	for _, d := range []*dispatchtest.Process{h.Dispatch, other} {
		known(h, d, 4)
	}
	h.Backdate(h.Tenant)
	for n := 0; n < 400; {
		for _, tick := range h.Lease("herd", 400-n) {
			if n++; n <= 3 {
				h.End(tick, "fail", false)
			} else {
				h.Finish(tick)
			}
		}
	}
	dispatchtest.Until(t, "all are counted", func() bool { s := mine.counted(); return s.Fired == 400 && s.Ended == 400 })
	dispatchtest.Until(t, "the ends are counted", func() bool { return failed.counted().Ended == 3 && succeeded.counted().Ended == 397 })
	dispatchtest.Until(t, "each of the 800 is shown, or counted among the others", func() bool { return len(mine.lines())+mine.counted().Unshown == 800 })
	dispatchtest.Until(t, "the failed ones are shown", func() bool { return len(failed.lines()) == 3 })
	for _, f := range []*follower{mine, failed, succeeded} {
		for _, line := range f.lines() {
			if !strings.Contains(line, " herd ") {
				t.Errorf("there is a line %q", line)
			}
		}
	}
	if n := len(old.lines()) + old.counted().Fired + len(caused.lines()) + caused.counted().Fired; n != 0 {
		t.Errorf("%d ticks that the filter leaves out", n)
	}
}

// A tail shows nothing of another tenant, and a credential that is limited to workflows follows only those.
func TestATailShowsOnlyWhatItsCredentialAllows(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	site := h.Open(h.Dispatch)
	h.Put("w", "k", dispatchtest.Rarely("allow_all"))
	h.Put("other", "k", dispatchtest.Rarely("allow_all"))
	limited := site.Limited([]string{"w"}, "schedules:read")
	limited.Refused(403, "workflow_not_allowed", "", "GET", "/v1/ticks/tail", "")
	limited.Refused(403, "workflow_not_allowed", "", "GET", "/v1/ticks/tail?workflow=other", "")
	limited.Refused(403, "workflow_not_allowed", "", "GET", "/v1/ticks/tail?key=k", "")
	site.As("acme", "schedules:write").Refused(403, "insufficient_scope", "", "GET", "/v1/ticks/tail", "")
	rival, own := follow(site.As("rival", "schedules:read"), "", ""), follow(limited, "?workflow=w", "")
	trigger(h, "other", "k")
	trigger(h, "w", "k")
	dispatchtest.Until(t, "the line came", func() bool { return slices.Equal(own.lines(), []string{"fired w k running"}) })
	dispatchtest.Until(t, "the second is over", func() bool { return own.counted().Fired == 1 })
	if s := rival.counted(); s != (history.TailSecond{}) || len(rival.lines()) > 0 {
		t.Errorf("the rival got %+v", s)
	}
	h.Exec(`UPDATE tenant SET status = 'suspended' WHERE id = $1`, h.Tenant)
	dispatchtest.Until(t, "the stream of a suspended tenant ends", func() bool {
		select {
		case <-own.over:
			return true
		default:
			return false
		}
	})
}

// A manual tick for later shows no time of firing before it has fired, and the tail shows it when it fires, or when it is cancelled.
func TestATickForLaterHasNotFired(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	c := h.Open(h.Dispatch).Operator()
	h.Put("w", "k", dispatchtest.Rarely("allow_all"))
	f := follow(c, "", "")
	var ids [2]string
	for i, in := range []string{"1s", "1h"} {
		var got struct {
			ID      string     `json:"tick_id"`
			FiredAt *time.Time `json:"fired_at"`
			Late    *int64     `json:"lateness_ms"`
		}
		if err := json.Unmarshal(c.Do("POST", "/v1/workflows/w/schedules/k/trigger", fmt.Sprintf(`{"in": %q}`, in)).Body, &got); err != nil {
			t.Fatal(err)
		}
		if got.FiredAt != nil || got.Late != nil {
			t.Errorf("got %+v", got)
		}
		ids[i] = got.ID
	}
	c.Do("POST", "/v1/ticks/"+ids[1]+"/cancel", "{}")
	dispatchtest.Until(t, "both are shown", func() bool {
		got := f.lines()
		slices.Sort(got)
		return slices.Equal(got, []string{"ended w k cancelled", "fired w k running"})
	})
	for i, want := range []bool{true, false} {
		one, err := h.Dispatch.Reader.Tick(t.Context(), h.Tenant, ids[i])
		if err != nil || (one.FiredAt != nil) != want || (one.LatenessMS != nil) != want {
			t.Errorf("got %+v, %v", one, err)
		}
	}
}

// A note may come before the commit of what it names: the line waits until the row says the same.
func TestATickIsShownAsFiredOnceItsReleaseIsCommitted(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	c := h.Open(h.Dispatch).Operator()
	h.Put("w", "k", dispatchtest.Rarely("buffer_one"))
	trigger(h, "w", "k")
	running := h.Lease("w", 1)[0]
	trigger(h, "w", "k")
	var k ident.TickKey
	if err := h.Pool.QueryRow(t.Context(), `SELECT schedule_id, nominal_at, seq FROM buffered`).Scan(&k.Schedule, &k.At, &k.Seq); err != nil {
		t.Fatal(err)
	}
	f := follow(c, "", "")
	h.Dispatch.Finisher.Tail.Released(h.Tenant, k)
	dispatchtest.Until(t, "the note is counted", func() bool { return f.counted().Fired == 1 })
	if got := f.lines(); len(got) > 0 {
		t.Errorf("before the release: %q", got)
	}
	h.Finish(running)
	dispatchtest.Until(t, "the release is shown", func() bool { return slices.Contains(f.lines(), "fired w k running") })
}
