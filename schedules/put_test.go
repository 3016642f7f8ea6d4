package schedules_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/calendars"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

// A put without a note keeps the note. A null deletes it.
func TestANoteIsTakenAway(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	noted := `{"spec":{"cron":"0 12 * * *"},"note":"n"}`
	without := `{"note" : null,"spec":{"cron":"0 12 * * *"}}`
	e.Want(201, "", "PUT", schedulestest.SchedulePath, noted)
	if got := e.Want(200, "", "PUT", schedulestest.SchedulePath, schedulestest.DailyBody); got.Doc["note"] != "n" {
		t.Errorf("not sent, got %s", got.Body)
	}
	if got := e.Want(200, "", "PUT", schedulestest.SchedulePath, without); got.Doc["note"] != nil || got.Header.Get("ETag") != `"2"` {
		t.Errorf("sent as null, got %s", got.Body)
	}
	e.Want(200, "", "PUT", schedulestest.SchedulePath, noted)
	e.Ask("POST", schedulestest.BulkPath, `{"workflow":"w","key":"a",`+strings.TrimPrefix(without, "{"), "Content-Type", "application/x-ndjson")
	if got := e.Want(200, "", "GET", schedulestest.SchedulePath, ""); got.Doc["note"] != nil {
		t.Errorf("sent as null in a line, got %s", got.Body)
	}
	if got := e.Want(200, "", "PUT", schedulestest.SchedulePath, `{"spec":{"cron":"0 12 * * *"},"payload":{"note":null}}`); got.Header.Get("ETag") != `"5"` {
		t.Errorf("a payload's own note, got %s", got.Body)
	}
}

// A calendar is deleted while a PUT names it. The PUT fails with a fault of the client.
func TestAPutThatLosesItsCalendarIsRefused(t *testing.T) {
	t.Parallel()
	for status, p := range map[string]schedules.Params{
		"active": schedulestest.DailyExcept("off"),
		"paused": func() schedules.Params { p := schedulestest.DailyExcept("off"); p.Status = "paused"; return p }(),
	} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			h := schedulestest.New(t)
			if _, _, err := h.Calendars.Put(t.Context(), h.Acme, "off", calendars.Params{}, "ann"); err != nil {
				t.Fatal(err)
			}
			tx, err := h.Pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			for _, sql := range []string{ // as a deletion does it
				`UPDATE calendar_revision SET revision = revision + 1`,
				`UPDATE calendar SET until = (SELECT revision FROM calendar_revision), ended_at = clock_timestamp()`,
			} {
				if _, err := tx.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			done := make(chan error, 1)
			go func() {
				_, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: "k"}, p, "ann", version.Precondition{})
				done <- err
			}()
			waits(h, done)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			schedulestest.WantFault(t, <-done, 422, "unknown_calendar")
		})
	}
}

// waits blocks until a connection waits for a lock, or until done receives the end of the call.
func waits(h *schedulestest.Fixture, done chan error) {
	h.T.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for schedulestest.One[int](h, `SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = current_database()`) == 0 {
		select {
		case err := <-done:
			done <- err
			return
		case <-h.T.Context().Done():
			h.T.Fatal("nothing waits for a lock")
		case <-again.C:
		}
	}
}

func TestPutArms(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	s := h.Put("a", schedules.Params{Spec: schedulestest.Cron("0 12 * * *"), Payload: web.Raw(`{"b":1, "a":1e999}`), Labels: map[string]string{"plan": "pro"}, Note: new("n")})
	if s.Version != 1 || s.Status != policy.Active || s.NextAt == nil || len(s.Upcoming) != 5 || !s.NextAt.Equal(s.Upcoming[0]) || s.UpdatedBy != "ann" {
		t.Errorf("got %+v", s)
	}
	next := schedulestest.One[time.Time](h, `SELECT next_at FROM cohort WHERE due_at = next_at`)
	if !next.Equal(*s.NextAt) {
		t.Errorf("the cohort is due at %s, the schedule at %s", next, s.NextAt)
	}
	if diff := cmp.Diff(s, h.Get("a")); diff != "" {
		t.Errorf("put -, get +:\n%s", diff)
	}
	if got := h.Get("a"); string(got.Payload) != `{"b":1, "a":1e999}` {
		t.Errorf("got payload %s", got.Payload)
	}
	if want := (policy.Policy{Overlap: "skip", Missed: "last", MaxLateness: "24h", OnExpired: "skip", PauseAfterFailures: new(0)}); cmp.Diff(want, s.Policy) != "" {
		t.Errorf("got policy %+v", s.Policy)
	}
	if n := schedulestest.One[int](h, `SELECT count(*) FROM workflow WHERE name = 'w' AND endpoint IS NULL`); n != 1 {
		t.Errorf("%d workflows are registered", n)
	}
}

func TestPutOfTheSameWritesNothing(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	p := schedules.Params{
		Spec: schedulestest.Cron("0 12 * * *"), Payload: web.Raw(`{"n": 1.0}`), Labels: map[string]string{"a": "b"}, Note: new("n"),
		Policy: &policy.Policy{MaxLateness: "90m"}, Delivery: &policy.Delivery{Retention: &policy.Retention{Failed: "2d"}},
	}
	rows := `SELECT string_agg(x, ' ' ORDER BY x) FROM (
		SELECT 's' || xmin || ctid AS x FROM schedule UNION ALL SELECT 'm' || xmin || ctid FROM member UNION ALL
		SELECT 'c' || xmin || ctid FROM cohort UNION ALL SELECT 'w' || xmin || ctid FROM workflow UNION ALL
		SELECT 'r' || xmin || ctid FROM revision UNION ALL SELECT 't' || xmin || ctid FROM schedule_state) AS rows`
	first := h.Put("a", p)
	before := schedulestest.One[string](h, rows)
	p.Policy = &policy.Policy{MaxLateness: "1h30m"}
	p.Status, p.Note = policy.Active, nil
	second, made, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: "a"}, p, "somebody else", version.Precondition{})
	if err != nil || made {
		t.Fatal(made, err)
	}
	if after := schedulestest.One[string](h, rows); after != before {
		t.Errorf("rows were %s, are %s", before, after)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("first -, second +:\n%s", diff)
	}
}

func TestPutOfAnotherPayloadKeepsTheTiming(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	first := h.Put("a", schedules.Params{Spec: calendar.Spec{Intervals: []calendar.Interval{{Every: "7m", Mode: "fixed_rate"}}}, Payload: web.Raw(`1`)})
	member := schedulestest.One[string](h, `SELECT member::text || xmin FROM member`)
	second := h.Put("a", schedules.Params{Spec: first.Spec, Payload: web.Raw(` 1.0 `), Labels: map[string]string{"x": ""}})
	if second.Version != 2 || string(second.Payload) != ` 1.0 ` || !second.NextAt.Equal(*first.NextAt) || second.ID != first.ID {
		t.Errorf("got %+v", second)
	}
	if after := schedulestest.One[string](h, `SELECT member::text || xmin FROM member`); after != member {
		t.Errorf("the member was %s, is %s", member, after)
	}
	if got := schedulestest.One[string](h, `SELECT payload || version || ended_by FROM revision`); got != "11ann" {
		t.Errorf("got revision %s", got)
	}
}

func TestPutOfAnotherTimingIsRetimedFromNow(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	first := h.Put("a", schedulestest.ByCron("0 12 * * *"))
	second := h.Put("a", schedulestest.ByCron("30 12 * * *"))
	if second.Version != 2 || second.NextAt.Equal(*first.NextAt) || second.NextAt.Minute() != 30 {
		t.Errorf("got %+v", second)
	}
	if n := schedulestest.One[int](h, `SELECT count(*) FROM member m JOIN schedule s ON s.cohort_id = m.cohort_id AND s.id = m.schedule_id`); n != 1 || schedulestest.One[int](h, `SELECT count(*) FROM member`) != 1 {
		t.Errorf("%d members of its cohort", n)
	}
	if back := h.Put("a", schedulestest.ByCron("0 12 * * *")); !back.NextAt.Equal(*first.NextAt) || back.Version != 3 {
		t.Errorf("got %+v", back)
	}
	third := h.Put("a", schedules.Params{Spec: schedulestest.Cron("0 12 * * *"), Policy: &policy.Policy{Missed: "all"}})
	if got := schedulestest.One[string](h, `SELECT c.missed FROM schedule s JOIN cohort c ON c.id = s.cohort_id`); got != "all" || third.Policy.Missed != "all" {
		t.Errorf("its cohort's missed is %s", got)
	}
}

func TestSchedulesOfOneTimingShareACohort(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Put("a", schedulestest.Spec(calendar.Spec{Timezone: "UTC", Cron: calendar.StringList{"0 12 * * 1-5"}}))
	h.Put("b", schedulestest.Spec(calendar.Spec{Cron: calendar.StringList{"00 12 * * MON-FRI"}}))
	h.Put("c", schedulestest.Spec(calendar.Spec{Cron: calendar.StringList{"0 12 * * 5,4,3,2,1"}}))
	cohort := schedulestest.One[int64](h, `SELECT cohort_id FROM schedule WHERE key = 'a'`)
	a := h.Put("a", schedulestest.Spec(calendar.Spec{Cron: calendar.StringList{"0 12 * * MON-FRI"}})) // the same, written differently
	if a.Version != 2 || schedulestest.One[int64](h, `SELECT cohort_id FROM schedule WHERE key = 'a'`) != cohort {
		t.Errorf("got version %d of another cohort", a.Version)
	}
	if got := schedulestest.One[string](h, `SELECT count(DISTINCT cohort_id) || ' ' || count(*) FROM member`); got != "1 3" {
		t.Errorf("got %s cohorts and members, want 1 3", got)
	}
	if n := schedulestest.One[int](h, `SELECT count(*) FROM cohort`); n != 1 {
		t.Errorf("there are %d cohorts", n)
	}
	if _, _, err := h.Schedules.Put(h.Theirs(), policy.Name{Tenant: h.Other, Workflow: "w", Key: "a"}, schedulestest.ByCron("0 12 * * 1-5"), "x", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	if n := schedulestest.One[int](h, `SELECT count(*) FROM cohort`); n != 2 {
		t.Errorf("two tenants have %d cohorts", n)
	}
}

func TestFirstTicksAreEachSchedulesOwn(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	interval := func(first string) schedules.Params {
		return schedulestest.Spec(calendar.Spec{Intervals: []calendar.Interval{{Every: "1h", Mode: "fixed_rate", First: first}}})
	}
	for i := range 4 {
		after, now := h.Put(fmt.Sprint("after", i), interval("after")), h.Put(fmt.Sprint("now", i), interval("now"))
		if wait := after.NextAt.Sub(after.CreatedAt); wait < time.Hour || wait > time.Hour+time.Second {
			t.Errorf("first after: comes after %s", wait)
		}
		if wait := now.NextAt.Sub(now.CreatedAt); wait < 0 || wait > time.Second {
			t.Errorf("first now: comes after %s", wait)
		}
	}
}

func TestPutHoldsPreconditions(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	put := func(pre version.Precondition, minute int) error {
		_, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: "a"}, schedulestest.ByCron(fmt.Sprint(minute, " 1 * * *")), "ann", pre)
		return err
	}
	match := func(versions ...int64) version.Precondition {
		return version.Precondition{IfMatch: version.Of(versions...)}
	}
	anything := version.Any()
	schedulestest.WantFault(t, put(match(1), 1), 412, "version_mismatch")
	schedulestest.WantFault(t, put(version.Precondition{IfMatch: anything}, 1), 412, "version_mismatch")
	if err := put(version.Precondition{IfNoneMatch: anything}, 1); err != nil {
		t.Fatal(err)
	}
	schedulestest.WantFault(t, put(version.Precondition{IfNoneMatch: anything}, 2), 412, "version_mismatch")
	schedulestest.WantFault(t, put(match(2), 2), 412, "version_mismatch")
	if err := put(match(7, 1), 2); err != nil {
		t.Fatal(err)
	}
	if v := h.Get("a").Version; v != 2 {
		t.Errorf("got version %d, want 2", v)
	}
	by := schedules.Changer{By: "bob", Pre: match(1)}
	_, _, err := h.Schedules.Pause(t.Context(), h.Acme, "w", "a", schedules.PauseParams{}, by)
	schedulestest.WantFault(t, err, 412, "version_mismatch")
	_, _, err = h.Schedules.Resume(t.Context(), h.Acme, "w", "a", schedules.ResumeParams{}, by)
	schedulestest.WantFault(t, err, 412, "version_mismatch")
	schedulestest.WantFault(t, h.Schedules.Delete(t.Context(), h.Acme, "w", "a", by), 412, "version_mismatch")
}

func TestPutTellsAllThatIsWrongAtOnce(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	p := schedules.Params{
		Spec:     calendar.Spec{Timezone: "Mars/Base", Cron: calendar.StringList{"61 * * * *"}},
		Policy:   &policy.Policy{Overlap: "perhaps", Missed: "some", MaxLateness: "soon", OnExpired: "cry", PauseAfterFailures: new(-1)},
		Delivery: &policy.Delivery{Queue: "a b", Priority: new(5), Timeout: "2d", MaxAttempts: new(0), Retention: &policy.Retention{Succeeded: "1s", Failed: "x"}},
		Labels:   map[string]string{"a b": "", "ok": strings.Repeat("x", 257)}, Note: new(strings.Repeat("n", 1001)), Status: "completed",
	}
	_, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: "a"}, p, "ann", version.Precondition{})
	var got []string
	for _, f := range schedulestest.WantFault(t, err, 422, "invalid").Fields {
		got = append(got, f.Pointer)
	}
	want := []string{
		"/policy/overlap", "/policy/missed", "/policy/max_lateness", "/policy/on_expired", "/policy/pause_after_failures", "/delivery/queue",
		"/delivery/priority", "/delivery/timeout", "/delivery/max_attempts", "/delivery/retention/succeeded", "/delivery/retention/failed",
		"/labels/a b", "/labels/ok", "/note", "/status", "/spec/timezone", "/spec/cron/0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	_, _, err = h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "a b", Key: ""}, schedulestest.ByCron("* * * * *"), "ann", version.Precondition{})
	if f := schedulestest.WantFault(t, err, 422, "invalid"); len(f.Fields) != 2 || f.Fields[0].Pointer != "/workflow" || f.Fields[1].Pointer != "/key" {
		t.Errorf("got %v", f)
	}
	if n := schedulestest.One[int](h, `SELECT (SELECT count(*) FROM schedule) + (SELECT count(*) FROM workflow) + (SELECT count(*) FROM cohort)`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

func TestPutRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Quotas = tenants.Defaults()
	for name, c := range map[string]struct {
		params schedules.Params
		status int
		code   string
	}{
		"past":             {schedulestest.Spec(calendar.Spec{At: []string{"2020-01-01T00:00:00Z"}}), 422, "never_fires"},
		"no such day":      {schedulestest.ByCron("0 0 30 2 *"), 422, "never_fires"},
		"paused and past":  {schedules.Params{Spec: calendar.Spec{At: []string{"2020-01-01T00:00:00Z"}}, Status: "paused"}, 422, "never_fires"},
		"each second":      {schedulestest.ByCron("* * * * * *"), 422, "interval_too_small"},
		"each half minute": {schedulestest.Spec(calendar.Spec{Intervals: []calendar.Interval{{Every: "30s"}}}), 422, "interval_too_small"},
		"after the run":    {schedulestest.Spec(calendar.Spec{Intervals: []calendar.Interval{{Every: "30s", Mode: "fixed_delay"}}}), 422, "interval_too_small"},
		"a large payload":  {schedules.Params{Spec: schedulestest.Cron("* * * * *"), Payload: web.Raw(`"` + strings.Repeat("x", 65_536) + `"`)}, 413, "payload_too_large"},
		"a large spec":     {schedulestest.ByCron(strings.Repeat("1,", 5000) + "1 * * * *"), 413, "spec_too_large"},
	} {
		_, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: "a"}, c.params, "ann", version.Precondition{})
		f, ok := errors.AsType[*fault.Error](err)
		if !ok || f.Status != c.status || f.Code != c.code {
			t.Errorf("%s: got %v, want %d %s", name, err, c.status, c.code)
		}
	}
	h.Put("a", schedulestest.ByCron("* * * * *")) // once a minute, at the quota
	if n := schedulestest.One[int](h, `SELECT count(*) FROM schedule`); n != 1 {
		t.Errorf("%d schedules were written", n)
	}
}

func TestMaxTicksBoundsASchedule(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	three := schedulestest.Cron("0 12 * * *")
	three.MaxTicks = new(3)
	s := h.Put("a", schedulestest.Spec(three))
	if len(s.Upcoming) != 3 {
		t.Fatalf("upcoming are %v", s.Upcoming)
	}
	if until := schedulestest.One[time.Time](h, `SELECT until_at FROM member`); !until.Equal(s.Upcoming[2]) {
		t.Errorf("it counts until %s, want %s", until, s.Upcoming[2])
	}
	p, err := h.Schedules.Upcoming(t.Context(), h.Acme, "w", "a", 10, time.Time{})
	if err != nil || len(p.Ticks) != 3 || !p.Exhausted {
		t.Errorf("got %v %v", p, err)
	}
	h.Exec(`UPDATE member SET from_at = from_at - interval '2 days', until_at = until_at - interval '2 days'`) // two have come
	if s = h.Put("a", schedules.Params{Spec: three, Payload: web.Raw(`1`)}); len(s.Upcoming) != 1 {
		t.Errorf("after two, upcoming are %v", s.Upcoming)
	}
	if s = h.Pause("a", schedules.PauseParams{}); schedulestest.One[int](h, `SELECT ticks_left FROM schedule`) != 1 {
		t.Errorf("got %d left, want 1", schedulestest.One[int](h, `SELECT ticks_left FROM schedule`))
	}
	if p, _ = h.Schedules.Upcoming(t.Context(), h.Acme, "w", "a", 10, time.Time{}); len(p.Ticks) != 1 {
		t.Errorf("paused, got %v", p)
	}
	if s = h.Resume("a", schedules.ResumeParams{}); len(s.Upcoming) != 1 {
		t.Errorf("resumed, upcoming are %v", s.Upcoming)
	}
	three.MaxTicks = new(4)
	if s = h.Put("a", schedulestest.Spec(three)); len(s.Upcoming) != 4 {
		t.Errorf("with another limit, upcoming are %v", s.Upcoming)
	}
	h.Put("b", schedulestest.Spec(calendar.Spec{Cron: calendar.StringList{"0 12 * * *"}, MaxTicks: new(100_000)}))
}

func TestDeletedAndMadeAgainIsAnotherSchedule(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	first := h.Put("a", schedulestest.ByCron("0 12 * * *"))
	h.Exec(`UPDATE schedule_state SET last_at = now(), fired = 7`)
	h.Delete("a")
	_, err := h.Schedules.Get(t.Context(), h.Acme, "w", "a")
	schedulestest.WantFault(t, err, 404, "not_found")
	if got := schedulestest.One[bool](h, `SELECT deleted AND ended_by = 'bob' FROM revision`); !got {
		t.Error("no revision says that it was deleted")
	}
	second, made, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: "a"}, schedulestest.ByCron("0 12 * * *"), "ann", version.Precondition{})
	if err != nil || !made || second.ID == first.ID || second.Version != 1 || second.LastAt != nil || second.Stats.Fired != 0 {
		t.Errorf("got %+v %v", second, err)
	}
	if n := schedulestest.One[int](h, `SELECT count(*) FROM member`); n != 1 {
		t.Errorf("there are %d members", n)
	}
}

func TestMethodsAreScopedToTenant(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	before := h.Put("a", schedulestest.ByCron("0 12 * * *"))
	config := h.Schedules.Config
	config.Pool = h.Pool // without tenant isolation, so that the queries themselves must name the tenant
	config.Forecasts = forecast.New(forecast.Config{Pool: h.Pool, Timings: config.Timings, Quotas: config.Quotas, Log: slog.New(slog.DiscardHandler), Within: time.Minute})
	ctx, s, by := t.Context(), schedules.New(config), schedules.Changer{By: "eve"}
	_, err := s.Get(ctx, h.Other, "w", "a")
	absent := schedulestest.WantFault(t, err, 404, "not_found").Detail
	_, err = s.Get(ctx, h.Other, "w", "nobody")
	if got := schedulestest.WantFault(t, err, 404, "not_found").Detail; got != strings.Replace(absent, `"a"`, `"nobody"`, 1) {
		t.Errorf("got %q for one that is not there and %q for another's", got, absent)
	}
	_, err = s.Upcoming(ctx, h.Other, "w", "a", 5, time.Time{})
	schedulestest.WantFault(t, err, 404, "not_found")
	_, _, err = s.Pause(ctx, h.Other, "w", "a", schedules.PauseParams{}, by)
	schedulestest.WantFault(t, err, 404, "not_found")
	_, _, err = s.Resume(ctx, h.Other, "w", "a", schedules.ResumeParams{}, by)
	schedulestest.WantFault(t, err, 404, "not_found")
	schedulestest.WantFault(t, s.Delete(ctx, h.Other, "w", "a", by), 404, "not_found")
	_, err = s.Workflow(ctx, h.Other, "w")
	schedulestest.WantFault(t, err, 404, "not_found")
	schedulestest.WantFault(t, s.DeleteWorkflow(ctx, h.Other, "w", version.Precondition{}), 404, "not_found")
	if page, _, err := s.List(ctx, h.Other, schedules.Filter{}, 10, ""); err != nil || len(page) != 0 {
		t.Errorf("got %v %v", page, err)
	}
	if page, _, err := s.Workflows(ctx, h.Other, 10, ""); err != nil || len(page) != 0 {
		t.Errorf("got %v %v", page, err)
	}
	if _, made, err := s.Put(ctx, policy.Name{Tenant: h.Other, Workflow: "w", Key: "a"}, schedulestest.ByCron("0 12 * * *"), "eve", version.Precondition{}); err != nil || !made {
		t.Errorf("got %t %v", made, err)
	}
	if diff := cmp.Diff(before, h.Get("a")); diff != "" {
		t.Errorf("it was changed:\n%s", diff)
	}
}
