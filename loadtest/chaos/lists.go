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

// line is one line of the answer to a bulk or a sync.
type line struct {
	Line       int             `json:"line"`
	Result     string          `json:"result"`
	ScheduleID string          `json:"schedule_id"`
	Summary    json.RawMessage `json:"summary"`
}

// batch is the request of a bulk or a sync. Each key has an operation, and each listed key a line of the body.
type batch struct {
	body bytes.Buffer
	keys []*owned
	ops  []*operation
}

// defineLine begins the operation of a line that gives k a definition.
func (w *writer) defineLine(b *batch, kind string, k *owned, d definition) {
	o := w.begin(k.name, kind, d.body(k.workflow, k.key))
	o.after, o.pause = &d, k.paused && k.def != nil
	fmt.Fprintln(&b.body, o.Body)
	b.keys, b.ops = append(b.keys, k), append(b.ops, o)
}

// adopt gives the keys whose operations succeeded their new state.
func (b *batch) adopt() {
	for i, o := range b.ops {
		if o.Outcome == okay {
			b.keys[i].def, b.keys[i].paused = o.after, o.pause
		}
	}
}

// bulk creates and changes n schedules with one request.
func (w *writer) bulk(ctx context.Context, n int) error {
	var b batch
	for range n {
		var k *owned
		if old := w.keys[w.rand.IntN(len(w.keys))]; old.workflow == bulkWorkflow && time.Now().After(old.rest) && !slices.Contains(b.keys, old) {
			k = old
		} else {
			k = w.newKey(bulkWorkflow)
			k.lasting = true
		}
		w.defineLine(&b, "bulk", k, w.redraw(k))
	}
	lines, err := w.send(ctx, "/v1/schedules/bulk", &b)
	if err != nil {
		return err
	}
	for _, answered := range lines {
		if answered.Line < 1 || answered.Line > len(b.ops) {
			continue
		}
		o := b.ops[answered.Line-1]
		if o.Schedule = answered.ScheduleID; answered.Result == "error" {
			o.end(answer{status: http.StatusUnprocessableEntity, known: true}, o.Tries, 0)
		}
	}
	b.adopt()
	return nil
}

// send sends a batch until the whole answer arrives, and returns its lines without the summary.
func (w *writer) send(ctx context.Context, path string, b *batch) ([]line, error) {
	for tries := 0; ; {
		a, more, err := w.until(ctx, http.MethodPost, path, b.body.Bytes(), "Content-Type", "application/x-ndjson")
		tries += more
		var lines []line
		if err == nil {
			var whole bool
			lines, whole = answeredLines(a.body)
			if a.ok() && !whole && sleep(ctx, 200*time.Millisecond) { // it was cut
				continue
			}
		}
		for i, o := range b.ops {
			o.end(a, tries, 0)
			if tries > 1 {
				b.keys[i].rest = time.Now().Add(restAfterDoubt)
			}
		}
		return lines, err
	}
}

// answeredLines returns the lines of an answer, and whether the summary that ends it is there.
func answeredLines(body []byte) (lines []line, whole bool) {
	for text := range bytes.Lines(body) {
		var l line
		if json.Unmarshal(text, &l) != nil {
			continue
		}
		if l.Summary != nil {
			whole = true
		} else {
			lines = append(lines, l)
		}
	}
	return lines, whole
}

// sync replaces the writer's synchronized list: most schedules stay, half of them with a new definition; the others are deleted, and
// new ones fill the list up.
func (w *writer) sync(ctx context.Context) error {
	present, resting := w.synced()
	if resting {
		return nil // a list is left alone as a whole
	}
	b := w.drawSync(present)
	listed := len(b.keys)
	for _, k := range present {
		if !slices.Contains(b.keys[:listed], k) {
			b.keys, b.ops = append(b.keys, k), append(b.ops, w.begin(k.name, "sync", "(left out)"))
		}
	}
	lines, err := w.send(ctx, "/v1/schedules/sync?workflow="+syncWorkflow+"&unlisted=delete", b)
	if err != nil {
		return err
	}
	for _, answered := range lines {
		if answered.Line < 1 || answered.Line > listed {
			continue
		}
		o := b.ops[answered.Line-1]
		if o.Schedule = answered.ScheduleID; answered.Result == "error" {
			return fmt.Errorf("a line of a sync was bad: %s", o.Body)
		}
	}
	b.adopt()
	return nil
}

// synced returns the keys of the synchronized list that exist, and whether one of the list must be left alone.
func (w *writer) synced() (present []*owned, resting bool) {
	for _, k := range w.keys {
		if k.workflow != syncWorkflow {
			continue
		}
		if time.Now().Before(k.rest) {
			return nil, true
		}
		if k.def != nil {
			present = append(present, k)
		}
	}
	return present, false
}

// drawSync draws the lines of a sync: two in three of the present schedules, and new ones up to six.
func (w *writer) drawSync(present []*owned) *batch {
	b := &batch{}
	for _, k := range present {
		if w.rand.IntN(3) > 0 {
			d := *k.def
			if w.rand.IntN(2) == 0 {
				d = w.redraw(k)
			}
			w.defineLine(b, "sync", k, d)
		}
	}
	for n := 6 - len(b.keys); n > 0; n-- {
		k := w.newKey(syncWorkflow)
		k.lasting = true
		w.defineLine(b, "sync", k, w.redraw(k))
	}
	return b
}
