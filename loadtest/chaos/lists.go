package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// line is one line of the answer to bulk and sync.
type line struct {
	Line       int             `json:"line"`
	Result     string          `json:"result"`
	ScheduleID string          `json:"schedule_id"`
	Summary    json.RawMessage `json:"summary"`
}

// bulk makes and changes some schedules at once.
func (w *writer) bulk(ctx context.Context, n int) error {
	var body bytes.Buffer
	var keys []*owned
	var ops []*operation
	for range n {
		var k *owned
		if old := w.keys[w.rand.IntN(len(w.keys))]; old.workflow == bulkWorkflow && time.Now().After(old.rest) && !slices.Contains(keys, old) {
			k = old
		} else {
			k = w.newKey(bulkWorkflow)
			k.lasting = true
		}
		d := w.redraw(k)
		o := w.begin(k.name, "bulk", d.body(k.workflow, k.key))
		o.after, o.pause = &d, k.paused && k.def != nil
		fmt.Fprintln(&body, o.Body)
		keys, ops = append(keys, k), append(ops, o)
	}
	lines, err := w.lines(ctx, "/v1/schedules/bulk", body.Bytes(), ops, keys)
	if err != nil {
		return err
	}
	for _, l := range lines {
		if l.Line < 1 || l.Line > len(ops) {
			continue
		}
		o := ops[l.Line-1]
		if o.Schedule = l.ScheduleID; l.Result == "error" {
			o.end(answer{status: http.StatusUnprocessableEntity, known: true}, o.Tries, 0)
		}
	}
	for i, o := range ops {
		if o.Outcome == okay {
			keys[i].def, keys[i].paused = o.after, o.pause
		}
	}
	return nil
}

// lines sends a body of lines until an answer came whole.
func (w *writer) lines(ctx context.Context, p string, body []byte, ops []*operation, keys []*owned) ([]line, error) {
	for tries := 0; ; {
		a, more, err := w.until(ctx, http.MethodPost, p, body, "Content-Type", "application/x-ndjson")
		tries += more
		var lines []line
		whole := false
		if err == nil {
			for text := range bytes.Lines(a.body) {
				var l line
				if json.Unmarshal(text, &l) == nil {
					whole = whole || l.Summary != nil
					if l.Summary == nil {
						lines = append(lines, l)
					}
				}
			}
			if a.ok() && !whole && sleep(ctx, 200*time.Millisecond) { // it was cut
				continue
			}
		}
		for i, o := range ops {
			o.end(a, tries, 0)
			if tries > 1 {
				keys[i].rest = time.Now().Add(restAfterDoubt)
			}
		}
		return lines, err
	}
}

// sync makes the writer's list be another one: half of it stays, the rest is deleted, and some is new.
func (w *writer) sync(ctx context.Context) error {
	var body bytes.Buffer
	var keys []*owned
	var ops []*operation
	listed := map[*owned]bool{}
	list := func(k *owned, d definition) {
		o := w.begin(k.name, "sync", d.body(k.workflow, k.key))
		o.after, o.pause = &d, k.paused && k.def != nil
		fmt.Fprintln(&body, o.Body)
		keys, ops, listed[k] = append(keys, k), append(ops, o), true
	}
	var present []*owned
	for _, k := range w.keys {
		if k.workflow != syncWorkflow {
			continue
		}
		if time.Now().Before(k.rest) {
			return nil // a list is left alone as a whole
		}
		if k.def != nil {
			present = append(present, k)
		}
	}
	for _, k := range present {
		if w.rand.IntN(3) > 0 {
			d := *k.def
			if w.rand.IntN(2) == 0 {
				d = w.redraw(k)
			}
			list(k, d)
		}
	}
	for n := 6 - len(keys); n > 0; n-- {
		k := w.newKey(syncWorkflow)
		k.lasting = true
		list(k, w.redraw(k))
	}
	for _, k := range present {
		if !listed[k] {
			o := w.begin(k.name, "sync", "(left out)")
			keys, ops = append(keys, k), append(ops, o)
		}
	}
	lines, err := w.lines(ctx, "/v1/schedules/sync?workflow="+syncWorkflow+"&unlisted=delete", body.Bytes(), ops, keys)
	if err != nil {
		return err
	}
	for _, l := range lines {
		if l.Line >= 1 && l.Line <= len(listed) {
			ops[l.Line-1].Schedule = l.ScheduleID
			if l.Result == "error" {
				return fmt.Errorf("a line of a sync was bad: %s", ops[l.Line-1].Body)
			}
		}
	}
	for i, o := range ops {
		if o.Outcome == okay {
			keys[i].def, keys[i].paused = o.after, o.pause
		}
	}
	return nil
}
