package history

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/dispatch/tail"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

const (
	tailFor     = time.Hour // then the client comes again
	tailPing    = 15 * time.Second
	tailDelay   = 2 * time.Second  // within which a tick that fired is shown
	tailWrite   = 10 * time.Second // for one write: a client that does not read is cut
	eventStream = "text/event-stream"
)

// tail streams ticks as they fire and end, as server-sent events (HTML Living Standard, section 9.2).
func (h recordHandler) tail(c echo.Context) error {
	f, err := tailFilter(c)
	if err != nil {
		return err
	}
	after, err := lastEvent(c.Request().Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	ctx, tenant := c.Request().Context(), tenants.From(c)
	one, err := h.follow(ctx, tenant, f)
	if err != nil {
		return err
	}
	client, leave, err := h.Reader.tail.Follow(ctx, tenant, one.picks())
	if err != nil {
		return err
	}
	defer leave()
	s := newEvents(c, one)
	if s.begin() == nil && (after.IsZero() || s.resume(ctx, after) == nil) {
		s.stream(ctx, client) // the answer has begun: an error only ends it
	}
	return nil
}

// stream sends events until ctx or the credential ends, or the client does not read.
func (s *events) stream(ctx context.Context, client *tail.Client) {
	second, ping, check := time.NewTicker(time.Second), time.NewTicker(tailPing), time.NewTicker(tenants.AuthorityEvery)
	defer second.Stop()
	defer ping.Stop()
	defer check.Stop()
	var err error
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case <-web.Stopping(ctx):
			return
		case <-client.Stirred():
			note, missed := client.Take()
			if missed {
				err = s.resume(ctx, time.UnixMicro(s.last))
			}
			if err == nil {
				err = s.note(ctx, note)
			}
		case <-second.C:
			if err = s.note(ctx, tail.Note{}); err == nil { // ticks that were not visible may be so now
				err = s.second()
			}
		case <-ping.C:
			err = s.write(": the stream goes on\n\n")
		case <-check.C:
			if err = tenants.CheckAuthority(ctx); err == nil {
				err = s.follower.refresh(ctx)
				client.Pick(ctx, s.follower.picks())
			}
		}
	}
}

// tailFilter reads the query of a tail. A token that is limited to workflows must name one of them.
func tailFilter(c echo.Context) (f Filter, err error) {
	f, err = tickFilter(c)
	if who := tenants.Caller(c); err == nil && who.Workflows != nil && !who.MayUse(f.Workflow) {
		err = tenants.WorkflowNotAllowed(f.Workflow)
	}
	return f, err
}

// lastEvent reads the id of the last event that the client got; the zero time: it got none.
func lastEvent(id string) (time.Time, error) {
	if id == "" {
		return time.Time{}, nil
	}
	at, err := strconv.ParseInt(id, 10, 64)
	if err != nil || at < 0 {
		return time.Time{}, fault.Malformed("malformed_header", "Last-Event-ID is not an id of an event of this stream")
	}
	return time.UnixMicro(at).UTC(), nil
}

// events writes the server-sent events of one client.
type events struct {
	response *echo.Response
	conn     *http.ResponseController
	follower *follower
	last     int64 // the latest moment up to which the client got all, in microseconds since 1970
}

func newEvents(c echo.Context, f *follower) *events {
	return &events{response: c.Response(), conn: http.NewResponseController(c.Response()), follower: f, last: time.Now().UnixMicro()}
}

// begin sends the head of the answer.
func (s *events) begin() error {
	head := s.response.Header()
	head.Set(echo.HeaderContentType, eventStream)
	head.Set(echo.HeaderCacheControl, "no-store")
	head.Set("X-Accel-Buffering", "no") // nginx would keep events back
	s.response.WriteHeader(http.StatusOK)
	return s.write("retry: 2000\n\n")
}

// write sends text at once.
func (s *events) write(text string) error {
	_ = s.conn.SetWriteDeadline(time.Now().Add(tailWrite)) // the recorder of a test has none
	if _, err := s.response.Write([]byte(text)); err != nil {
		return err
	}
	return s.conn.Flush()
}

// send sends one event. With an id, the client comes again from that moment on.
func (s *events) send(event string, id bool, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	line := ""
	if id {
		line = fmt.Sprintf("id: %d\n", s.last)
	}
	return s.write(fmt.Sprintf("event: %s\n%sdata: %s\n\n", event, line, text))
}

// note sends the ticks of a note.
func (s *events) note(ctx context.Context, n tail.Note) error {
	lines, err := s.follower.take(ctx, n)
	if err != nil {
		return err
	}
	return s.ticks(lines)
}

func (s *events) ticks(lines []TailTick) error {
	for _, line := range lines {
		s.last = max(s.last, line.at.UnixMicro())
		if err := s.send("tick", true, line); err != nil {
			return err
		}
	}
	return nil
}

// second sends the counts of a second. A client without ticks gets an id by it, a little in the past: a tick may be on its way.
func (s *events) second() error {
	s.last = max(s.last, time.Now().Add(-tailDelay).UnixMicro())
	return s.send("second", true, s.follower.endSecond())
}

// resume sends what a client has missed since a moment.
func (s *events) resume(ctx context.Context, after time.Time) error {
	now := time.Now().UTC()
	gap := TailGap{From: after.UTC()}
	if reach := now.Add(-tailReach); after.Before(reach) {
		after = reach
	}
	lines, from, err := s.follower.since(ctx, after)
	if err != nil {
		return err
	}
	s.last = after.UnixMicro()
	if gap.To = from.UTC(); gap.To.After(gap.From) {
		if err := s.send("gap", false, gap); err != nil {
			return err
		}
	}
	return s.ticks(lines)
}
