package cli

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/url"
	"time"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/events"
)

const (
	silence       = 45 * time.Second // a connection that is silent for so long is dead: the server sends a comment every 15 s
	firstPause    = 500 * time.Millisecond
	longestPause  = 10 * time.Second
	tailPath      = "/v1/ticks/tail"
	eventTick     = "tick"
	eventSecond   = "second"
	eventGap      = "gap"
	lastEventID   = "Last-Event-ID"
	mediaOfEvents = "text/event-stream"
)

// follow returns the events of the live tail until ctx ends, which is no error. If the connection breaks it connects again, and the
// server resumes after the last event. The first connection must succeed. connected is called after it.
func follow(ctx context.Context, s *command.Session, query url.Values, connected func()) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		last, lost := "", false
		for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
			got := false
			for e, err := range connect(ctx, s, query, last, func() {
				if !got {
					got, pause = true, firstPause
					connected()
					connected = func() {}
				}
				if lost {
					lost = false
					s.Note("connected again")
				}
			}) {
				if err != nil {
					if ctx.Err() == nil && (last == "" && !got || !passing(err)) {
						yield(e, err)
						return
					}
					if ctx.Err() == nil && !lost {
						lost = true
						s.Note("the connection broke (%v): connecting again", err)
					}
					break
				}
				if e.ID != "" {
					last = e.ID
				}
				if !yield(e, nil) {
					return
				}
			}
			if sleep(ctx, pause) != nil {
				return
			}
		}
	}
}

// passing reports whether a new connection may succeed after this error.
func passing(err error) bool {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p.Status == 429 || p.Status >= 500
	}
	return true
}

// connect returns the events of one connection. opened is called when the server has accepted it.
func connect(ctx context.Context, s *command.Session, query url.Values, last string, opened func()) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		header := map[string]string{"Accept": mediaOfEvents}
		if last != "" {
			header[lastEventID] = last
		}
		answer, err := s.API.Stream(ctx, api.Request{Path: tailPath, Query: query, Header: header}, nil)
		if err != nil {
			yield(events.Event{}, err)
			return
		}
		defer answer.Body.Close()
		opened()
		watch := time.AfterFunc(silence, cancel)
		defer watch.Stop()
		for e, err := range events.Read(watched{answer.Body, watch}) {
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// watched is a reader that resets a timer after each read.
type watched struct {
	io.Reader
	watch *time.Timer
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.watch.Reset(silence)
	return n, err
}
