package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// restAfterDoubt is how long a key is left alone after an attempt to change it had no answer. By then the request has arrived or is
// lost, even through a stopped process or a slow connection.
const restAfterDoubt = 20 * time.Second

// writer is a client of one tenant. It creates and changes schedules, one operation at a time.
type writer struct {
	*client
	rand    *rand.Rand
	history *history
	keys    []*owned
	made    int
	writes  int
	holiday string    // the dates of the tenant's calendar
	settled time.Time // when the calendar applies everywhere
	often   float64   // the share of schedules that fire many times a minute
}

// owned is a key that a writer may change.
type owned struct {
	name
	def     *definition // nil: deleted
	paused  bool
	lasting bool
	rest    time.Time // the key is left alone until then
}

// The workflows of each tenant, by how their ticks are delivered. Those of bulk and sync are lists of their own.
var pushedWorkflows = []string{"good", "slow", "flaky", "busy", "reset", "later", "batch", "drip", "gone"}

const (
	pulledWorkflow = "pulled"
	bulkWorkflow   = "bulk"
	syncWorkflow   = "sync"
	stolenWorkflow = "stolen"
)

func allWorkflows() []string {
	return append(slices.Clone(pushedWorkflows), pulledWorkflow, bulkWorkflow, syncWorkflow, stolenWorkflow)
}

func path(n name, more ...string) string {
	p := "/v1/workflows/" + url.PathEscape(n.workflow) + "/schedules/" + url.PathEscape(n.key)
	for _, m := range more {
		p += "/" + m
	}
	return p
}

// payload returns a payload that names its tenant and key, and differs from all others.
func (w *writer) payload(key string) string {
	w.writes++
	return fmt.Sprintf(`{"tenant":%q,"key":%q,"n":%d}`, w.tenant, key, w.writes)
}

// fill creates the writer's first schedules: some one by one, some in bulk, some by sync.
func (w *writer) fill(ctx context.Context, n int) error {
	w.holiday = day(time.Now(), 1)
	if _, _, err := w.putCalendar(ctx); err != nil {
		return err
	}
	for i := range n {
		workflow := pulledWorkflow
		switch pick := i % 12; {
		case pick < len(pushedWorkflows):
			workflow = pushedWorkflows[pick]
		case pick == len(pushedWorkflows):
			workflow = stolenWorkflow
		}
		k := w.newKey(workflow)
		if err := w.put(ctx, k); err != nil {
			return err
		}
	}
	if err := w.bulk(ctx, max(1, n/4)); err != nil {
		return err
	}
	return w.sync(ctx)
}

func (w *writer) newKey(workflow string) *owned {
	w.made++
	k := &owned{name: name{w.tenant, workflow, fmt.Sprintf("key/%d %s", w.made, w.tenant)}, lasting: w.rand.IntN(3) > 0}
	w.keys = append(w.keys, k)
	return k
}

// work makes one change after another until ctx ends. An operation that has begun goes on until it is answered or whole ends; the
// lab must heal before that.
func (w *writer) work(ctx, whole context.Context, pause time.Duration) error {
	for ctx.Err() == nil {
		if err := w.step(whole); err != nil {
			return err
		}
		if !sleep(ctx, time.Duration(w.rand.Int64N(int64(2*pause)))) {
			break
		}
	}
	return nil
}

func (w *writer) step(ctx context.Context) error {
	if n := w.rand.IntN(20); n == 0 {
		return w.bulk(ctx, 4+w.rand.IntN(8))
	} else if n == 1 {
		return w.sync(ctx)
	}
	k := w.keys[w.rand.IntN(len(w.keys))]
	if time.Now().Before(k.rest) || k.workflow == syncWorkflow || k.def != nil && k.def.timing.out.named && time.Now().Before(w.settled) {
		return nil
	}
	if w.rand.IntN(60) == 0 {
		return w.edit(ctx)
	}
	if k.def == nil {
		return w.put(ctx, k)
	}
	if !k.lasting { // a schedule that ends by itself is only created and deleted
		return w.remove(ctx, k)
	}
	switch w.rand.IntN(12) {
	case 0, 1:
		return w.put(ctx, k)
	case 2:
		return w.touch(ctx, k)
	case 3, 4:
		return w.patch(ctx, k)
	case 5, 6:
		return w.pause(ctx, k)
	case 7, 8:
		return w.resume(ctx, k)
	case 9:
		return w.remove(ctx, k)
	default:
		return w.trigger(ctx, k)
	}
}

// begin records that an operation begins.
func (w *writer) begin(k name, kind, body string) *operation {
	o := &operation{Tenant: w.tenant, Workflow: k.workflow, Key: k.key, Kind: kind, Body: body, Start: time.Now()}
	w.history.add(o)
	return o
}

// end records how the operation ended. If an attempt did its work but its answer was lost, the next attempt gets the status gone.
func (o *operation) end(a answer, tries, gone int) {
	o.End, o.Tries, o.Status = time.Now(), tries, a.status
	switch {
	case a.ok(), gone != 0 && a.status == gone && tries > 1:
		o.Outcome = okay
	case tries > 1:
		o.Outcome = maybe
	default:
		o.Outcome = refused
	}
}

// run requests an operation on one key until it is answered. gone is the status that end explains.
func (w *writer) run(ctx context.Context, k *owned, o *operation, method, path string, gone int) error {
	a, tries, err := w.until(ctx, method, path, []byte(o.Body))
	if err != nil {
		o.End, o.Tries, o.Outcome = time.Now(), tries, maybe
		return err
	}
	o.end(a, tries, gone)
	if a.ok() {
		var s stored
		if json.Unmarshal(a.body, &s) == nil {
			o.Schedule, o.Version = s.ID, s.Version
		}
	}
	if tries > 1 {
		k.rest = time.Now().Add(restAfterDoubt)
	}
	if o.Outcome == okay {
		k.def, k.paused = o.after, o.pause
	}
	return nil
}

// put stores the schedule with another definition.
func (w *writer) put(ctx context.Context, k *owned) error {
	return w.define(ctx, k, w.redraw(k), k.paused)
}

// redraw draws another definition. A schedule that exists keeps its overlap and missed policies.
func (w *writer) redraw(k *owned) definition {
	d := w.draw(k.lasting, w.payload(k.key))
	if k.def != nil {
		d.overlap, d.missed = k.def.overlap, k.def.missed
	}
	w.fit(k.workflow, &d)
	return d
}

// lingering are the workflows whose ticks may take longer than the time to the next tick.
var lingering = []string{"slow", "later", "drip", stolenWorkflow}

// fit makes ticks that wait for the one before less frequent than their ends. Otherwise more and more would wait.
func (w *writer) fit(workflow string, d *definition) {
	if d.overlap == "buffer_all" && slices.Contains(lingering, workflow) {
		d.timing.thin(w.rand)
	}
}

// draw draws a definition. It names no calendar while an edit of the calendar may not be in force yet.
func (w *writer) draw(lasting bool, payload string) definition {
	d := draw(w.rand, time.Now(), lasting, w.often, payload)
	switch {
	case !d.timing.out.named:
	case time.Now().Before(w.settled):
		d.timing.out = exclusion{}
	default:
		d.timing.out.holiday = w.holiday
	}
	return d
}

func (w *writer) putCalendar(ctx context.Context) (answer, int, error) {
	applied := w.history.edit(w.tenant, w.holiday, time.Now())
	a, tries, err := w.until(ctx, http.MethodPut, "/v1/calendars/"+calendarName, fmt.Appendf(nil, `{"dates":%s}`, quoted(w.holiday)))
	if err == nil {
		applied(time.Now())
	}
	return a, tries, err
}

// edit puts other days into the tenant's calendar, with or without today. That changes the timing of all schedules that name it.
func (w *writer) edit(ctx context.Context) error {
	now := time.Now()
	if now.Before(w.settled) {
		return nil
	}
	if today := day(now, 0); strings.Contains(w.holiday, today) {
		w.holiday = day(now, 1)
	} else {
		w.holiday = today + day(now, 2)
	}
	var ops []*operation
	var keys []*owned
	for _, k := range w.keys {
		if k.def == nil || !k.def.timing.out.named {
			continue
		}
		d := *k.def
		d.timing.out.holiday = w.holiday
		o := w.begin(k.name, "calendar", w.holiday)
		o.after, o.pause, o.slow = &d, k.paused, true
		ops, keys = append(ops, o), append(keys, k)
	}
	a, tries, err := w.putCalendar(ctx)
	for i, o := range ops {
		if o.end(a, tries, 0); err != nil {
			o.Outcome = maybe
		}
		if o.Outcome == okay {
			keys[i].def = o.after
		}
	}
	w.settled = time.Now().Add(inForceWithin + restAfterDoubt)
	return err
}

// touch puts the stored definition with another payload: the timing goes on.
func (w *writer) touch(ctx context.Context, k *owned) error {
	d := *k.def
	d.payload = w.payload(k.key)
	return w.define(ctx, k, d, k.paused)
}

func (w *writer) define(ctx context.Context, k *owned, d definition, paused bool) error {
	o := w.begin(k.name, "put", d.body())
	o.after, o.pause = &d, paused
	return w.run(ctx, k, o, http.MethodPut, path(k.name), 0)
}

// patch changes the timing alone, or the payload alone.
func (w *writer) patch(ctx context.Context, k *owned) error {
	d := *k.def
	body := ""
	if w.rand.IntN(2) == 0 {
		d.payload = w.payload(k.key)
		body = `{"payload":` + d.payload + `}`
	} else {
		fresh := w.draw(true, "")
		d.timing, d.jitter = fresh.timing, fresh.jitter
		w.fit(k.workflow, &d)
		body = `{"spec":` + d.replacing() + `}`
	}
	o := w.begin(k.name, "patch", body)
	o.after, o.pause = &d, k.paused
	return w.run(ctx, k, o, http.MethodPatch, path(k.name), 0)
}

// replacing returns the spec with a null for each absent member, so that a merge patch replaces the whole spec, exclude too.
func (d definition) replacing() string {
	text := d.spec()
	if head, out, excludes := strings.Cut(text, `"exclude":{`); excludes {
		text = head + `"exclude":{`
		for _, member := range []string{"dates", "calendars", "named"} {
			if !strings.HasPrefix(out, `"`+member+`":`) {
				text += `"` + member + `":null,`
			}
		}
		text += out
	}
	for _, member := range []string{"intervals", "cron", "rrule", "at", "start_at", "end_at", "max_ticks", "jitter", "exclude"} {
		if !strings.Contains(text, `"`+member+`":`) {
			text = strings.TrimSuffix(text, "}") + `,"` + member + `":null}`
		}
	}
	return text
}

func (w *writer) pause(ctx context.Context, k *owned) error {
	o := w.begin(k.name, "pause", `{}`)
	o.after, o.pause = k.def, true
	return w.run(ctx, k, o, http.MethodPost, path(k.name, "pause"), 0)
}

func (w *writer) resume(ctx context.Context, k *owned) error {
	o := w.begin(k.name, "resume", `{}`)
	o.after = k.def
	return w.run(ctx, k, o, http.MethodPost, path(k.name, "resume"), 0)
}

func (w *writer) remove(ctx context.Context, k *owned) error {
	o := w.begin(k.name, "delete", "")
	return w.run(ctx, k, o, http.MethodDelete, path(k.name), http.StatusNotFound)
}

// trigger requests one tick now, with an Idempotency-Key that makes all attempts the same request.
func (w *writer) trigger(ctx context.Context, k *owned) error {
	o := w.begin(k.name, "trigger", `{}`)
	o.after, o.pause = k.def, k.paused
	once := fmt.Sprintf("%s-%d-%d", w.tenant, o.Number, o.Start.UnixNano())
	for {
		a, tries, err := w.until(ctx, http.MethodPost, path(k.name, "trigger"), []byte(`{}`), "Idempotency-Key", once)
		o.Tries += tries
		if err != nil {
			o.End, o.Outcome = time.Now(), maybe
			return err
		}
		if a.status == http.StatusConflict && sleep(ctx, 500*time.Millisecond) { // the last attempt is still under way
			continue
		}
		o.end(a, o.Tries, 0)
		var t tick
		if a.ok() && json.Unmarshal(a.body, &t) == nil {
			o.Tick, o.Schedule = t.TickID, t.ScheduleID
		}
		if o.Tries > 1 {
			k.rest = time.Now().Add(restAfterDoubt)
		}
		return nil
	}
}

// workAll makes all writers work until ctx ends.
func workAll(ctx, whole context.Context, writers []*writer, pause time.Duration) error {
	all, whole := errgroup.WithContext(whole)
	for _, w := range writers {
		all.Go(func() error { return w.work(ctx, whole, pause) })
	}
	return all.Wait()
}
