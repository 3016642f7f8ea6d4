package carillon_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const oneTick = "retry: 2000\n\nevent: tick\nid: 5\ndata: {\"kind\":\"fired\",\"tick_id\":\"t1\",\ndata: \"key\":\"k\"}\n\n"

// follow returns the events of a tail as text, until it ends or n have come, and its error.
func follow(ctx context.Context, c *carillon.Client, p carillon.TailParams, n int) (events []string, failed error) {
	for e, err := range c.Ticks.Tail(ctx, p) {
		switch {
		case err != nil:
			return events, err
		case e.Tick != nil:
			events = append(events, e.ID+" "+e.Tick.TickID+" "+e.Tick.Key)
		case e.Second != nil:
			events = append(events, fmt.Sprint(e.ID, " ", e.Second.Fired, " fired"))
		case e.Gap != nil:
			events = append(events, e.ID+" gap")
		}
		if len(events) == n {
			break
		}
	}
	return events, nil
}

func TestATailContinuesAfterTheLastTick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []answer{
			{status: 200, body: oneTick},
			{err: errCut},
			refused(503, "3"),
			{status: 200, body: ": the stream goes on\n\nevent: later\ndata: {}\n\nevent: gap\ndata: {}\n\nevent: second\ndata: {\"fired\":7}\n\n"},
			refused(403, ""),
		}}
		got, err := follow(t.Context(), s.client(t), carillon.TailParams{TickScope: carillon.TickScope{Workflow: "w"}, State: "failed", After: "4"}, 0)
		if want := "[5 t1 k 5 gap 5 7 fired]"; fmt.Sprint(got) != want || !errors.Is(err, carillon.ErrForbidden) {
			t.Errorf("got %q, %v, want %s", got, err, want)
		}
		var sent []string
		for _, r := range s.seen {
			sent = append(sent, r.Header.Get("Last-Event-ID")+" "+r.URL.RawQuery)
		}
		if want := "4 state=failed&workflow=w|5 state=failed&workflow=w|5 state=failed&workflow=w|5 state=failed&workflow=w|5 state=failed&workflow=w"; strings.Join(sent, "|") != want {
			t.Errorf("got %q", sent)
		}
	})
}

func TestATailEndsWithItsLoop(t *testing.T) {
	t.Parallel()
	s := &script{answers: []answer{{status: 200, body: oneTick + oneTick}}}
	if got, err := follow(t.Context(), s.client(t), carillon.TailParams{}, 1); len(got) != 1 || err != nil || len(s.seen) != 1 {
		t.Errorf("got %q, %v after %d requests", got, err, len(s.seen))
	}
}

func TestATailGivesUpAServerThatStaysAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c, err := carillon.New(carillon.Config{URL: "http://carillon.test", HTTPClient: &http.Client{Transport: away{}}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := follow(t.Context(), c, carillon.TailParams{}, 0)
		if took := time.Since(began); len(got) != 0 || !errors.Is(err, errCut) || took < time.Minute || took > 2*time.Minute {
			t.Errorf("got %q, %v after %s", got, err, took)
		}
	})
}

type away struct{}

func (away) RoundTrip(*http.Request) (*http.Response, error) { return nil, errCut }

// A connection that says nothing for 45 s is dead: the tail connects again.
func TestATailNoticesSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		s := &silent{}
		c, err := carillon.New(carillon.Config{URL: "http://carillon.test", HTTPClient: &http.Client{Transport: s}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := follow(ctx, c, carillon.TailParams{}, 0)
		if len(got) != 3 || err != nil || s.connections != 3 {
			t.Errorf("got %q, %v of %d connections", got, err, s.connections)
		}
	})
}

// silent answers one tick and then says nothing until the request ends.
type silent struct {
	mu          sync.Mutex
	connections int
}

func (s *silent) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.connections++
	s.mu.Unlock()
	body := io.MultiReader(strings.NewReader(oneTick), untilDone{r.Context()})
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body), Header: http.Header{}, Request: r}, nil
}

type untilDone struct{ ctx context.Context }

func (u untilDone) Read([]byte) (int, error) {
	<-u.ctx.Done()
	return 0, u.ctx.Err()
}

func TestWaitReportsProgressUntilTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running, cancelled := answer{status: 200, body: `{"id":"op","state":"running","done":3}`}, answer{status: 200, body: `{"id":"op","state":"cancelled","error":null,"ended_at":"2026-01-05T08:00:00Z"}`}
		s := &script{answers: []answer{running, running, refused(503, ""), cancelled}}
		var seen []string
		op, err := s.client(t).Operations.Wait(t.Context(), "op", func(op carillon.Operation) { seen = append(seen, op.State) })
		if fmt.Sprint(seen) != "[running running cancelled]" || op.State != "cancelled" || !errors.Is(err, carillon.ErrOperation) {
			t.Errorf("got %+v, %v, seen %q", op, err, seen)
		}
		s.answers = []answer{{status: 200, body: `{"id":"op","state":"failed","error":"the workflow is gone","ended_at":"2026-01-05T08:00:00Z"}`}}
		if _, err := s.client(t).Operations.Wait(t.Context(), "op", nil); err == nil || !strings.Contains(err.Error(), "the workflow is gone") {
			t.Errorf("got %v", err)
		}
		s.answers = []answer{running, running, running}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if op, err := s.client(t).Operations.Wait(ctx, "op", nil); !errors.Is(err, context.DeadlineExceeded) || op.Done != 3 {
			t.Errorf("got %+v, %v", op, err)
		}
	})
}
