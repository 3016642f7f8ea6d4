package events_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/events"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

func TestFailuresAreToldOnceAnHour(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Catcher("w", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(500) })
	r, secret := h.Listener(tenants.TickFailed)
	c := h.Open(h.Dispatch).Operator()
	h.Start(h.Dispatch)
	p := dispatchtest.Rarely("allow_all")
	p.Delivery = &policy.Delivery{MaxAttempts: new(1)}
	h.Put("w", "k", p)
	fail := func(n int) {
		t.Helper()
		before := h.Number(`SELECT count(*) FROM dead_letter`)
		for range n {
			dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
		}
		dispatchtest.Until(t, "they have failed", func() bool { return h.Number(`SELECT count(*) FROM dead_letter`) == before+n })
	}
	fail(1)
	dispatchtest.Until(t, "it is told", func() bool { return len(r.Requests()) == 1 })
	first := h.Told(r, secret)[0]
	var data map[string]any
	if err := json.Unmarshal(first.Data, &data); err != nil {
		t.Fatal(err)
	}
	letter := dispatchtest.Get[dispatchtest.Page](c, 200, "GET", "/v1/admin/dead-letters", "").Items[0]
	if first.Type != tenants.TickFailed || first.Cause != "w" || first.Count != 1 ||
		data["key"] != "k" || data["workflow"] != "w" || data["tick_id"] != letter.TickID || data["attempt"] != 1.0 || data["error"] == nil {
		t.Errorf("got %+v %s", first, first.Data)
	}
	fail(3)
	dispatchtest.Until(t, "they are counted", func() bool { return h.Number(`SELECT COALESCE(sum(n), 0) FROM notice`) == 3 })
	if n := len(r.Requests()); n != 1 {
		t.Errorf("%d events within the hour", n)
	}
	h.Exec(`UPDATE notice SET next_at = clock_timestamp()`) // the hour is over
	dispatchtest.Until(t, "they are told", func() bool { return len(r.Requests()) == 2 })
	if second := h.Told(r, secret)[1]; second.Count != 3 || second.ID == first.ID {
		t.Errorf("got %+v", second)
	}
	h.Exec(`UPDATE notice SET next_at = clock_timestamp()`)
	dispatchtest.Until(t, "a quiet cause is forgotten", func() bool {
		return h.Number(`SELECT count(*) FROM notice`)+h.Number(`SELECT count(*) FROM event`) == 0
	})
}

// An event that the endpoint does not accept is sent again unchanged, also by another process. An endpoint that answers 410 to an event is
// disabled, and an event tells another endpoint so.
func TestEventsAreSentUntilTheyAreTaken(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	r, secret := h.Listener(tenants.QuotaSoft)
	r.Answers(500, "not now")
	happens := func(cause string) {
		t.Helper()
		err := tenants.Happened(t.Context(), h.Pool, h.Tenant, tenants.Happening{
			Event: tenants.QuotaSoft, Cause: cause, Data: map[string]any{"quota": cause, "limit": 10, "used": 9},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	happens("schedules")
	first := h.Process()
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "it was sent", func() bool { return len(r.Requests()) > 0 })
	first.Kill()
	sent := len(r.Requests())
	r.Answers(204, "")
	h.Exec(`UPDATE event SET due_at = clock_timestamp()`) // its sender has been silent for long enough
	h.Start(h.Process())
	dispatchtest.Until(t, "it was sent again", func() bool { return len(r.Requests()) > sent })
	dispatchtest.Until(t, "it was taken", func() bool { return h.Number(`SELECT count(*) FROM event`) == 0 })
	if all := h.Told(r, secret); len(all) != 1 || string(all[0].Data) != `{"limit":10,"quota":"schedules","used":9}` {
		t.Errorf("got %+v", all)
	}

	other := dispatchtest.NewReceiver(t)
	made, _, err := h.Dispatch.Pusher.Endpoints.PutEndpoint(t.Context(), h.Tenant, "other", push.EndpointParams{URL: other.URL, Events: []string{tenants.EndpointDisabled}})
	if err != nil {
		t.Fatal(err)
	}
	r.Answers(410, "")
	happens("endpoints")
	dispatchtest.Until(t, "the other is told", func() bool { return len(other.Requests()) == 1 })
	if e := h.Told(other, made.Secret)[0]; e.Cause != "listener" || string(e.Data) != `{"endpoint":"listener","status":410}` {
		t.Errorf("got %+v %s", e, e.Data)
	}
	if e, err := h.Dispatch.Pusher.Endpoints.Endpoint(t.Context(), h.Tenant, "listener"); err != nil || e.State != "disabled" {
		t.Errorf("got %+v, %v", e, err)
	}
	if n := h.Number(`SELECT count(*) FROM audit WHERE action = 'endpoint.disable' AND target = 'endpoints/listener' AND actor = 'carillon'`); n != 1 {
		t.Errorf("it is audited %d times", n)
	}
	happens("api_keys")
	if n := h.Number(`SELECT count(*) FROM notice_delta WHERE cause = 'api_keys'`); n != 0 {
		t.Error("what nobody wants to know is kept")
	}
}

// A tenant may have thousands of causes, such as failing workflows. After a hundred, all further causes are told as one.
func TestCausesAreBounded(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	r, secret := h.Listener(tenants.Events()...)
	r.Answers(503, "") // so that all of them are there at once
	h.Exec(`
		INSERT INTO notice_delta (tenant_id, event, cause, n, schedule_id, nominal_at, seq)
		SELECT $1, 'tick.failed', 'w' || i % 300, 1, i, now(), 0
		FROM generate_series(1, 3000) i`, h.Tenant)
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "all are added up", func() bool { return h.Number(`SELECT count(*) FROM notice_delta`) == 0 })
	dispatchtest.Until(t, "all are told, or wait for their hour", func() bool {
		return h.Number(`SELECT count(*) FROM notice WHERE n > 0 AND next_at <= clock_timestamp()`) == 0
	})
	if n := h.Number(`SELECT count(*) FROM notice`); n != 101 {
		t.Errorf("%d causes, want 101", n)
	}
	if n := h.Number(`SELECT (SELECT sum(n) FROM notice) + (SELECT sum(n) FROM event)`); n != 3000 {
		t.Errorf("%d of 3000 are told of", n)
	}
	dispatchtest.Until(t, "one is sent", func() bool { return len(r.Requests()) > 0 })
	h.Told(r, secret)
}

func TestWhatATenantIsToldOf(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Config.Pause = h.Schedules.PauseFailing
	h.Config.Uses = func(context.Context, tenants.ID) (map[string]tenants.Use, error) {
		return map[string]tenants.Use{"schedules": {Limit: 10, Used: new(8), Soft: true}, "endpoints": {Limit: 10, Used: new(2)}}, nil
	}
	r, secret := h.Listener(tenants.Events()...)
	h.Catcher("failing", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(500) })
	h.Catcher("gone", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(410) })
	d := h.Process()
	h.Start(d)
	failing := dispatchtest.EverySecond()
	failing.Policy = &policy.Policy{PauseAfterFailures: new(1)}
	failing.Delivery = &policy.Delivery{MaxAttempts: new(1)}
	h.Put("failing", "k", failing)
	h.Put("gone", "k", schedules.Params{Spec: dispatchtest.At(15)})
	broken := h.Put("broken", "k", dispatchtest.Rarely("skip"))
	h.Exec(`UPDATE schedule SET status = 'quarantined', cohort_id = NULL WHERE workflow = 'broken'`)
	var got map[string]events.Event
	want := []string{tenants.TickFailed, tenants.ScheduleAutoPaused, tenants.ScheduleQuarantined, tenants.EndpointDisabled, tenants.QuotaSoft}
	dispatchtest.Until(t, "all is told", func() bool {
		got = map[string]events.Event{}
		for _, e := range h.Told(r, secret) {
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
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	const path = "/v1/endpoints/e"
	c.Refused(422, "invalid", "/events/1", "PUT", path, `{"url": "https://example.com/", "events": ["tick.failed", "tick.fired"]}`)
	c.Refused(422, "invalid", "/events/1", "PUT", path, `{"url": "https://example.com/", "events": ["tick.failed", "tick.failed"]}`)
	if made := dispatchtest.Get[push.Endpoint](c, 201, "PUT", path, `{"url": "https://example.com/", "events": ["tzdata.retimed", "quota.soft"]}`); len(made.Events) != 2 {
		t.Errorf("got %+v", made)
	}
}

// The API's pool answers only for the tenant in the context. What a process does by itself has none there.
func TestEventsAreSentByTheEngineItself(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	r, _ := h.Listener(tenants.TickFailed)
	h.Config.API = postgres.NewTenantPool(postgrestest.As(t, h.Pool, postgres.APIRole))
	h.Start(h.Process())
	h.Exec(`
		INSERT INTO event (tenant_id, endpoint, id, event, cause, n, first_at, last_at, due_at)
		SELECT $1, 'listener', 'evt_' || n, 'tick.failed', n::text, 1, now(), now(), now() FROM generate_series(1, 2) n`, h.Tenant)
	dispatchtest.Until(t, "the events are sent and deleted", func() bool { return h.Number(`SELECT count(*) FROM event`) == 0 })
	if n := len(r.Requests()); n != 2 {
		t.Errorf("%d events are sent, want 2", n)
	}
}

// A tenant is told once, a week before an API key expires. What has no end, ends later, has expired or is another tenant's is not told.
func TestAnExpiringKeyIsTold(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	r, secret := h.Listener(tenants.APIKeyExpiring)
	other, err := tenants.Ensure(t.Context(), h.Pool, "other", tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range []struct {
		tenant tenants.ID
		id     string
		in     any
	}{{h.Tenant, "key_soon", "6 days"}, {h.Tenant, "key_later", "8 days"}, {h.Tenant, "key_never", nil}, {h.Tenant, "key_over", "-1 hour"}, {other.ID, "key_theirs", "6 days"}} {
		h.Exec(`INSERT INTO api_key (tenant_id, id, name, hash, scopes, expires_at, created_by) VALUES ($1, $2, 'ci', $3, '{}', now() + $4::interval, 'ann')`, key.tenant, key.id, []byte{byte(i)}, key.in)
	}
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "the tenant is told", func() bool { return len(r.Requests()) > 0 })
	dispatchtest.Until(t, "all that expire are noted", func() bool { return h.Number(`SELECT count(*) FROM api_key WHERE told_at IS NOT NULL`) == 3 })
	all := h.Told(r, secret)
	if len(all) != 1 || all[0].Cause != "key_soon" || all[0].Count != 1 || !strings.Contains(string(all[0].Data), `"name":"ci"`) && !strings.Contains(string(all[0].Data), `"name" : "ci"`) {
		t.Fatalf("got %+v", all)
	}
	var data struct {
		APIKey    string    `json:"api_key"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	if err := json.Unmarshal(all[0].Data, &data); err != nil || data.APIKey != "key_soon" || data.ExpiresAt.Before(time.Now().Add(5*24*time.Hour)) {
		t.Errorf("got %s, %v", all[0].Data, err)
	}
	if n := h.Number(`SELECT count(*) FROM api_key WHERE told_at IS NOT NULL AND id IN ('key_later', 'key_never')`); n != 0 {
		t.Errorf("%d keys that do not expire soon are noted", n)
	}
}

// A tenant is told of schedules that have come to their end, together for a workflow, and of each operation that has ended.
func TestEndsOfSchedulesAndOperationsAreTold(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	r, secret := h.Listener(tenants.ScheduleCompleted, tenants.OperationEnded)
	soon := dispatchtest.At(15)
	for _, key := range []string{"a", "b"} {
		h.Put("w", key, schedules.Params{Spec: soon})
	}
	h.Put("w", "goes on", dispatchtest.Rarely("skip"))
	h.Start(h.Dispatch)
	var ids []string
	for _, action := range []string{"retime", "retime"} {
		op, _, err := h.Actions.Act(t.Context(), h.Tenant, schedules.ActionParams{Action: action, Filter: &schedules.ActionFilter{All: true}}, schedules.Changer{By: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		h.Ended(op.ID)
		ids = append(ids, op.ID)
	}
	var completed int64
	ended := map[string]string{}
	dispatchtest.Until(t, "all is told", func() bool {
		completed = 0
		for _, e := range h.Told(r, secret) {
			switch e.Type {
			case tenants.ScheduleCompleted:
				if e.Cause != "w" || !strings.Contains(string(e.Data), `"schedule_id"`) {
					t.Errorf("got %+v %s", e, e.Data)
				}
				completed += e.Count
			case tenants.OperationEnded:
				ended[e.Cause] = string(e.Data)
			}
		}
		return completed >= 1 && len(ended) == 2
	})
	for _, id := range ids {
		if want := `{"kind":"actions","operation_id":"` + id + `","state":"succeeded"}`; ended[id] != want {
			t.Errorf("got %s, want %s", ended[id], want)
		}
	}
	dispatchtest.Until(t, "both schedules are counted", func() bool {
		return h.Number(`SELECT COALESCE(sum(n), 0)::int FROM notice WHERE event = 'schedule.completed'`)+int(completed) >= 2
	})
}
