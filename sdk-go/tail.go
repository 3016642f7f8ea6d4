package carillon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// TailParams select what Tail shows.
type TailParams struct {
	TickScope
	State string // ticks that are in this state when they are shown; empty: any
	After string // the id of the last event of an earlier tail: the tail begins with up to 200 ticks since then; empty: it begins now
}

// TailEvent is an event of a tail. One of Tick, Second and Gap is set.
type TailEvent struct {
	ID     string      // of the last tick that was shown, for TailParams.After
	Tick   *TailTick   // a tick fired or ended
	Second *TailSecond // a second has passed
	Gap    *TailGap    // the client was away for too long: ticks of this time are not shown
}

// TailTick is a tick that fired or ended.
type TailTick struct {
	Kind       string    `json:"kind"` // "fired" or "ended"
	TickID     string    `json:"tick_id"`
	Workflow   string    `json:"workflow"`
	Key        string    `json:"key"`
	Subject    string    `json:"subject"`
	Timestamp  time.Time `json:"timestamp"`         // nominal
	LocalTime  time.Time `json:"local_time"`        // the same instant with the offset of the schedule's zone
	State      string    `json:"state"`             // as in TickRecord
	Reason     string    `json:"reason,omitempty"`  // why it was skipped or cancelled
	LatenessMS int64     `json:"lateness_ms"`       // from the nominal time until it was handed out
	TookMS     *int64    `json:"took_ms,omitempty"` // from then until its end
}

// TailSecond counts the ticks of one second. The server shows at most 50 ticks a second.
type TailSecond struct {
	Fired   int64 `json:"fired"`
	Ended   int64 `json:"ended"`
	Unshown int64 `json:"unshown"` // how many of these had no event of their own
}

// TailGap is a time of which Tail shows no ticks. Read them with [Ticks.List].
type TailGap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// tailSilence is how long a tail waits for a sign of life: the server sends one at least every 15 s.
const tailSilence = 45 * time.Second

// tailPatience is for how long a tail tries to connect again.
const tailPatience = time.Minute

// Tail iterates over ticks as they fire and end, until ctx ends; the loop then just ends. When the connection is lost it connects again and
// continues after the last tick. It tries this for a minute. An error comes once and ends the loop. The token needs the scopes
// schedules:read and ticks:work.
func (t Ticks) Tail(ctx context.Context, p TailParams) iter.Seq2[TailEvent, error] {
	q := query{}
	p.TickScope.add(q)
	q.text("state", p.State)
	return func(yield func(TailEvent, error) bool) {
		last, renewed, connected := p.After, false, time.Now()
		for attempt := 0; ; attempt++ {
			events, err := t.tailOnce(ctx, q, &last, yield)
			if errors.Is(err, errStopped) || ctx.Err() != nil {
				return
			}
			if events > 0 || err == nil {
				attempt, renewed, connected = 0, false, time.Now()
			}
			if refusedBy(err) && t.c.credential.source != nil && !renewed {
				renewed = true // the next attempt has another token
				continue
			}
			if err != nil && (final(err) || t.c.retries < 0 || time.Since(connected) > tailPatience) {
				yield(TailEvent{}, err)
				return
			}
			wait(ctx, pauseAfter(err, min(attempt, 4)))
		}
	}
}

// errStopped says that the loop over a tail has ended.
var errStopped = errors.New("the loop has ended")

// final reports whether another attempt would get the same error.
func final(err error) bool {
	if _, ok := asType[tokenError](err); ok {
		return true
	}
	refused, ok := asType[*Error](err)
	return ok && refused.Status >= 400 && refused.Status < 500 && !refused.passing()
}

// tailOnce follows one connection until it ends. It returns how many events came.
func (t Ticks) tailOnce(ctx context.Context, q query, last *string, yield func(TailEvent, error) bool) (events int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := t.c.request(ctx, http.MethodGet, path("ticks", "tail"), url.Values(q), http.NoBody)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if *last != "" {
		req.Header.Set("Last-Event-ID", *last)
	}
	silence := time.AfterFunc(tailSilence, cancel)
	defer silence.Stop()
	answer, err := t.c.open(req)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	for e, err := range serverSent(answer.Body) {
		if err != nil {
			return events, err
		}
		silence.Reset(tailSilence)
		if e.id != "" {
			*last = e.id
		}
		event := TailEvent{ID: *last}
		known, err := e.into(&event)
		if err != nil {
			return events, err
		}
		if !known {
			continue
		}
		events++
		if !yield(event, nil) {
			return events, errStopped
		}
	}
	return events, nil
}

// sentEvent is one server-sent event; a comment has no name.
type sentEvent struct{ name, id, data string }

// into decodes the event. It reports false for a comment and for an event that a later server sends.
func (e sentEvent) into(event *TailEvent) (known bool, err error) {
	var data any
	switch e.name {
	case "tick":
		event.Tick = &TailTick{}
		data = event.Tick
	case "second":
		event.Second = &TailSecond{}
		data = event.Second
	case "gap":
		event.Gap = &TailGap{}
		data = event.Gap
	default:
		return false, nil
	}
	if err := json.Unmarshal([]byte(e.data), data); err != nil {
		return false, fmt.Errorf("carillon: decode an event: %w", err)
	}
	return true, nil
}

// serverSent iterates over the events of a stream, and over its comments.
func serverSent(body io.Reader) iter.Seq2[sentEvent, error] {
	return func(yield func(sentEvent, error) bool) {
		lines := bufio.NewScanner(body)
		lines.Buffer(make([]byte, 0, 4<<10), longestLine)
		var e sentEvent
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ":")
			value = strings.TrimPrefix(value, " ")
			switch {
			case lines.Text() == "":
				if !yield(e, nil) {
					return
				}
				e = sentEvent{}
			case name == "event":
				e.name = value
			case name == "id":
				e.id = value
			case name == "data" && e.data == "":
				e.data = value
			case name == "data":
				e.data += "\n" + value
			}
		}
		if err := lines.Err(); err != nil {
			yield(sentEvent{}, fmt.Errorf("carillon: the stream was cut: %w", err))
		}
	}
}
