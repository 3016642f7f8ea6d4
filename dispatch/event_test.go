package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/dispatch/events"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// told are the events that a receiver got, each once, and checks that each is as the document says and is signed.
func (h *house) told(r *receiver, secret string) (all []events.Event) {
	h.t.Helper()
	seen := map[string]string{}
	for _, got := range r.requests() {
		if got.signedBy(h.t, secret) != "yes" {
			h.t.Errorf("not signed: %s", got.body)
		}
		apitest.Fits(h.t, "Event", got.body)
		var e events.Event
		if err := json.Unmarshal(got.body, &e); err != nil {
			h.t.Fatal(err)
		}
		if id := got.header.Get("Webhook-Id"); id != e.ID {
			h.t.Errorf("webhook-id is %q, and the event's id %q", id, e.ID)
		}
		if before, again := seen[e.ID]; again {
			if before != string(got.body) {
				h.t.Errorf("sent again as another: %s, then %s", before, got.body)
			}
			continue
		}
		seen[e.ID] = string(got.body)
		all = append(all, e)
	}
	return all
}

// listener is an endpoint of the house's tenant that is told of some events.
func (h *house) listener(events ...string) (r *receiver, secret string) {
	h.t.Helper()
	r = newReceiver(h.t)
	e, _, err := h.dispatch.Pusher.PutEndpoint(h.t.Context(), h.tenant, "listener", push.EndpointParams{URL: r.URL, Events: events})
	if err != nil {
		h.t.Fatal(err)
	}
	return r, e.Secret
}

func TestFailuresAreToldOnceAnHour(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.catcher("w", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(500) })
	r, secret := h.listener(tenants.TickFailed)
	c := h.open(h.dispatch).operator()
	h.start(h.dispatch)
	p := rarely("allow_all")
	p.Delivery = &policy.Delivery{MaxAttempts: new(1)}
	h.put("w", "k", p)
	fail := func(n int) {
		t.Helper()
		before := h.number(`SELECT count(*) FROM dead_letter`)
		for range n {
			get[history.Tick](c, 202, "POST", trigger, "")
		}
		until(t, "they have failed", func() bool { return h.number(`SELECT count(*) FROM dead_letter`) == before+n })
	}
	fail(1)
	until(t, "it is told", func() bool { return len(r.requests()) == 1 })
	first := h.told(r, secret)[0]
	var data map[string]any
	if err := json.Unmarshal(first.Data, &data); err != nil {
		t.Fatal(err)
	}
	letter := get[page](c, 200, "GET", "/v1/admin/dead-letters", "").Items[0]
	if first.Type != tenants.TickFailed || first.Cause != "w" || first.Count != 1 ||
		data["key"] != "k" || data["workflow"] != "w" || data["tick_id"] != letter.TickID || data["attempt"] != 1.0 || data["error"] == nil {
		t.Errorf("got %+v %s", first, first.Data)
	}
	fail(3)
	until(t, "they are counted", func() bool { return h.number(`SELECT COALESCE(sum(n), 0) FROM notice`) == 3 })
	if n := len(r.requests()); n != 1 {
		t.Errorf("%d events within the hour", n)
	}
	h.exec(`UPDATE notice SET next_at = clock_timestamp()`) // the hour is over
	until(t, "they are told", func() bool { return len(r.requests()) == 2 })
	if second := h.told(r, secret)[1]; second.Count != 3 || second.ID == first.ID {
		t.Errorf("got %+v", second)
	}
	h.exec(`UPDATE notice SET next_at = clock_timestamp()`)
	until(t, "a quiet cause is forgotten", func() bool {
		return h.number(`SELECT count(*) FROM notice`)+h.number(`SELECT count(*) FROM event`) == 0
	})
}

// An event that is not taken is sent again, the same, also by another process; one that the endpoint does not want
// disables it, which others are told.
func TestEventsAreSentUntilTheyAreTaken(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	r, secret := h.listener(tenants.QuotaSoft)
	r.answers(500, "not now")
	happens := func(cause string) {
		t.Helper()
		err := tenants.Happened(t.Context(), h.pool, h.tenant, tenants.Happening{
			Event: tenants.QuotaSoft, Cause: cause, Data: map[string]any{"quota": cause, "limit": 10, "used": 9},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	happens("schedules")
	first := h.process()
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "it was sent", func() bool { return len(r.requests()) > 0 })
	first.Kill()
	r.answers(204, "")
	h.exec(`UPDATE event SET due_at = clock_timestamp()`) // its sender has been silent for long enough
	h.start(h.process())
	sent := len(r.requests())
	until(t, "it was sent again", func() bool { return len(r.requests()) > sent })
	until(t, "it was taken", func() bool { return h.number(`SELECT count(*) FROM event`) == 0 })
	if all := h.told(r, secret); len(all) != 1 || string(all[0].Data) != `{"limit":10,"quota":"schedules","used":9}` {
		t.Errorf("got %+v", all)
	}

	other := newReceiver(t)
	made, _, err := h.dispatch.Pusher.PutEndpoint(t.Context(), h.tenant, "other", push.EndpointParams{URL: other.URL, Events: []string{tenants.EndpointDisabled}})
	if err != nil {
		t.Fatal(err)
	}
	r.answers(410, "")
	happens("endpoints")
	until(t, "the other is told", func() bool { return len(other.requests()) == 1 })
	if e := h.told(other, made.Secret)[0]; e.Cause != "listener" || string(e.Data) != `{"endpoint":"listener","status":410}` {
		t.Errorf("got %+v %s", e, e.Data)
	}
	if e, err := h.dispatch.Pusher.Endpoint(t.Context(), h.tenant, "listener"); err != nil || e.State != "disabled" {
		t.Errorf("got %+v, %v", e, err)
	}
	if n := h.number(`SELECT count(*) FROM audit WHERE action = 'endpoint.disable' AND target = 'endpoints/listener' AND actor = 'carillon'`); n != 1 {
		t.Errorf("it is audited %d times", n)
	}
	happens("api_keys")
	if n := h.number(`SELECT count(*) FROM happening WHERE cause = 'api_keys'`); n != 0 {
		t.Error("what nobody wants to know is kept")
	}
}

// Causes without end, as of a thousand workflows that fail, are told as one beyond a hundred.
func TestCausesAreBounded(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	r, secret := h.listener(tenants.Events()...)
	r.answers(503, "") // so that all of them are there at once
	h.exec(`
		INSERT INTO happening (tenant_id, event, cause, n)
		SELECT $1, 'tick.failed', 'w' || i % 300, 1
		FROM generate_series(1, 3000) i`, h.tenant)
	h.start(h.dispatch)
	until(t, "all are added up", func() bool { return h.number(`SELECT count(*) FROM happening`) == 0 })
	until(t, "all are told, or wait for their hour", func() bool {
		return h.number(`SELECT count(*) FROM notice WHERE n > 0 AND next_at <= clock_timestamp()`) == 0
	})
	if n := h.number(`SELECT count(*) FROM notice`); n != 101 {
		t.Errorf("%d causes, want 101", n)
	}
	if n := h.number(`SELECT (SELECT sum(n) FROM notice) + (SELECT sum(n) FROM event)`); n != 3000 {
		t.Errorf("%d of 3000 are told of", n)
	}
	until(t, "one is sent", func() bool { return len(r.requests()) > 0 })
	h.told(r, secret)
}

func TestWhatATenantIsToldOf(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.config.Pause = h.schedules.PauseFailing
	h.config.Uses = func(context.Context, tenants.ID) (map[string]tenants.Use, error) {
		return map[string]tenants.Use{"schedules": {Limit: 10, Used: new(8), Soft: true}, "endpoints": {Limit: 10, Used: new(2)}}, nil
	}
	r, secret := h.listener(tenants.Events()...)
	h.catcher("failing", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(500) })
	h.catcher("gone", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(410) })
	d := h.process()
	h.start(d)
	failing := everySecond()
	failing.Policy = &policy.Policy{PauseAfterFailures: new(1)}
	failing.Delivery = &policy.Delivery{MaxAttempts: new(1)}
	h.put("failing", "k", failing)
	h.put("gone", "k", schedules.Params{Spec: at(5)})
	broken := h.put("broken", "k", rarely("skip"))
	h.exec(`UPDATE schedule SET status = 'quarantined', cohort_id = NULL WHERE workflow = 'broken'`)
	var got map[string]events.Event
	want := []string{tenants.TickFailed, tenants.ScheduleAutoPaused, tenants.ScheduleQuarantined, tenants.EndpointDisabled, tenants.QuotaSoft}
	until(t, "all is told", func() bool {
		got = map[string]events.Event{}
		for _, e := range h.told(r, secret) {
			got[e.Type] = e
		}
		return !slices.ContainsFunc(want, func(name string) bool { return got[name].ID == "" })
	})
	for name, says := range map[string]string{
		tenants.ScheduleAutoPaused:  "failing",
		tenants.ScheduleQuarantined: "broken",
		tenants.EndpointDisabled:    "gone",
		tenants.QuotaSoft:           "schedules",
	} {
		if got[name].Cause != says {
			t.Errorf("%s: got %+v", name, got[name])
		}
	}
	for name, data := range map[string]string{
		tenants.ScheduleQuarantined: fmt.Sprintf(`{"key":"k","schedule_id":%q,"workflow":"broken"}`, broken.ID),
		tenants.QuotaSoft:           `{"limit":10,"quota":"schedules","used":8}`,
	} {
		if string(got[name].Data) != data {
			t.Errorf("%s: got %s, want %s", name, got[name].Data, data)
		}
	}
}

func TestWhichEventsAnEndpointIsToldIsChecked(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.open(h.dispatch).operator()
	const path = "/v1/endpoints/e"
	c.refused(422, "invalid", "/events/1", "PUT", path, `{"url": "https://example.com/", "events": ["tick.failed", "tick.fired"]}`)
	c.refused(422, "invalid", "/events/1", "PUT", path, `{"url": "https://example.com/", "events": ["tick.failed", "tick.failed"]}`)
	if made := get[push.Endpoint](c, 201, "PUT", path, `{"url": "https://example.com/", "events": ["tzdata.retimed", "quota.soft"]}`); len(made.Events) != 2 {
		t.Errorf("got %+v", made)
	}
}

// The API's pool answers only for the tenant in the context. What a process does by itself has none there.
func TestEventsAreSentByTheEngineItself(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	r, _ := h.listener(tenants.TickFailed)
	h.config.API = postgres.NewWall(postgrestest.As(t, h.pool, postgres.APIRole))
	h.start(h.process())
	h.exec(`
		INSERT INTO event (tenant_id, endpoint, id, event, cause, n, first_at, last_at, due_at)
		SELECT $1, 'listener', 'evt_' || n, 'tick.failed', n::text, 1, now(), now(), now() FROM generate_series(1, 2) n`, h.tenant)
	until(t, "the events are sent and deleted", func() bool { return h.number(`SELECT count(*) FROM event`) == 0 })
	if n := len(r.requests()); n != 2 {
		t.Errorf("%d events are sent, want 2", n)
	}
}
