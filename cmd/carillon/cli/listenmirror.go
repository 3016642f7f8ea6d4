package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/forward"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// mirror sends a copy of each tick that fires, until ctx ends.
func (l *listener) mirror(ctx context.Context) (err error) {
	var group errgroup.Group
	group.SetLimit(l.concurrency)
	defer func() { _ = group.Wait() }() // its functions return no errors
	connected := func() { l.s.Note("ready   waiting for ticks; Ctrl-C ends it") }
	for e, err := range follow(ctx, l.s, query("workflow", l.workflow), connected) {
		if err != nil {
			return err
		}
		if e.Name != eventTick {
			noteUnshown(l.s, e)
			continue
		}
		o, err := output.Read([]byte(e.Data))
		if err != nil {
			return err
		}
		if o.At("kind").String() != "fired" || !strings.HasPrefix(o.At("key").String(), l.prefix) {
			continue
		}
		group.Go(func() error {
			l.results <- l.copy(ctx, o)
			return nil
		})
	}
	return nil
}

// copy sends a copy of a tick. What the server keeps of the tick has its payload; the schedule's next tick has the rest.
func (l *listener) copy(ctx context.Context, fired output.Object) forwarded {
	r := named(fired)
	r.At = l.s.Env.Now()
	record, _, err := fetch(ctx, l.s, api.Request{Path: api.Path("v1", "ticks", r.TickID)})
	if err != nil {
		return failedToCopy(r, err)
	}
	sample, err := sampleOf(ctx, l.s, target{r.Workflow, r.Key})
	if err != nil {
		return failedToCopy(r, err)
	}
	_, body, err := forward.Copy(record, sample)
	if err != nil {
		return failedToCopy(r, err)
	}
	return l.send(ctx, r, body, http.Header{forward.MirrorHeader: {"1"}})
}

func failedToCopy(r forwarded, err error) forwarded {
	r.err, r.Error = err, err.Error()
	return r
}

// sampleOf returns the next tick of a schedule as it would be sent, or nil if there is none.
func sampleOf(ctx context.Context, s *command.Session, t target) (json.RawMessage, error) {
	raw, _, err := fetch(ctx, s, api.Request{Path: t.path("sample")})
	if api.HasStatus(err, http.StatusNotFound) || api.HasStatus(err, http.StatusConflict) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var sample struct{ Body json.RawMessage }
	err = json.Unmarshal(raw, &sample)
	return sample.Body, err
}
