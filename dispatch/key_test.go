package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/subjects"
	"github.com/carillonhq/carillon/tenants"
)

func (h *house) putKey(key string, p subjects.KeyParams) {
	h.t.Helper()
	if _, _, _, err := h.subjects.PutKey(h.t.Context(), h.tenant, key, p, "tester", version.Precondition{}); err != nil {
		h.t.Fatal(err)
	}
}

func timeOfDay(at time.Time) string { return at.UTC().Format("15:04") }

// following is a spec that names times, of the key's zone.
func following(times ...time.Time) schedules.Params {
	s := calendar.Spec{Timezone: "@key"}
	for _, at := range times {
		s.At = append(s.At, at.UTC().Format(time.RFC3339))
	}
	return schedules.Params{Spec: s}
}

func TestTicksInQuietHoursAreSkipped(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	now := time.Now()
	h.putKey("k", subjects.KeyParams{Timezone: "Etc/UTC", QuietHours: &subjects.QuietHours{From: timeOfDay(now.Add(-time.Hour)), To: timeOfDay(now.Add(time.Hour)), Then: "skip"}})
	p := everySecond()
	p.Spec.Timezone = "@key"
	h.put("w", "k", p)
	until(t, "ticks are recorded", func() bool { return len(h.history("w", "k")) > 1 })
	for _, tick := range h.history("w", "k") {
		if tick.State != "skipped" || tick.Reason != "quiet_hours" || tick.Cause != "schedule" {
			t.Errorf("got %+v", tick)
		}
	}
	if _, _, err := h.dispatch.Control.Trigger(t.Context(), h.tenant, "w", "k", control.TriggerParams{}, once.Request{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the manual tick runs", func() bool {
		return h.number(`SELECT count(*)::int FROM tick WHERE cause = 1 AND state = 1`) == 1
	})
	h.putKey("k", subjects.KeyParams{Timezone: "Etc/UTC"})
	until(t, "ticks are handed out again, though the manual one runs still", func() bool {
		return h.number(`SELECT count(*)::int FROM tick WHERE cause = 0 AND reason = 1`) > 0
	})
}

func TestTheLastTickInQuietHoursComesAtTheirEnd(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	now := time.Now().UTC().Truncate(time.Minute)
	end := now.Add(-10 * time.Minute)
	h.putKey("k", subjects.KeyParams{Timezone: "Etc/UTC", QuietHours: &subjects.QuietHours{From: timeOfDay(end.Add(-4 * time.Hour)), To: timeOfDay(end)}})
	first, second, third := end.Add(-3*time.Hour), end.Add(-2*time.Hour), end.Add(-time.Hour)
	h.put("w", "k", following(first, second, third, now.Add(48*time.Hour)))
	// As if the sweep had slept since before the first.
	h.exec(`UPDATE member SET from_at = $1`, first.Add(-time.Hour))
	h.exec(`UPDATE cohort SET next_at = $1, due_at = $2`, first, end)
	h.start(h.dispatch)
	until(t, "a tick is recorded", func() bool { return len(h.history("w", "k")) > 0 })
	ticks := h.history("w", "k")
	if len(ticks) != 1 || !ticks[0].Timestamp.Equal(third) || ticks[0].MissedCount != 2 || ticks[0].State != "running" {
		t.Errorf("got %+v", ticks)
	}
	if h.number(`SELECT count(*)::int FROM cohort WHERE next_at = $1 AND due_at >= next_at`, now.Add(48*time.Hour)) != 1 {
		t.Error("the cohort does not wait for its next time")
	}
}

func TestACohortThatIsWokenInQuietHoursSleepsOn(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	now := time.Now().UTC().Truncate(time.Minute)
	h.putKey("k", subjects.KeyParams{Timezone: "Etc/UTC", QuietHours: &subjects.QuietHours{From: timeOfDay(now.Add(-4 * time.Hour)), To: timeOfDay(now.Add(2 * time.Hour))}})
	h.put("w", "k", following(now.Add(-time.Hour), now.Add(time.Hour)))
	h.exec(`UPDATE member SET from_at = $1`, now.Add(-2*time.Hour))
	h.exec(`UPDATE cohort SET next_at = $1, due_at = $1`, now.Add(-time.Hour))
	h.start(h.dispatch)
	until(t, "it sleeps until the hours end", func() bool {
		return h.number(`SELECT count(*)::int FROM cohort WHERE due_at = $1 AND next_at = $2`, now.Add(2*time.Hour), now.Add(-time.Hour)) == 1
	})
	if ticks := h.history("w", "k"); len(ticks) != 0 {
		t.Errorf("got %+v", ticks)
	}
	// Another spec: what waited is recorded, and does not come.
	h.put("w", "k", following(now.Add(time.Hour), now.Add(3*time.Hour)))
	until(t, "what waited is recorded", func() bool { return len(h.history("w", "k")) == 1 })
	if tick := h.history("w", "k")[0]; tick.State != "skipped" || tick.Reason != "quiet_hours" || !tick.Timestamp.Equal(now.Add(-time.Hour)) {
		t.Errorf("got %+v", tick)
	}
}

func TestADailyTickThatComesTooSoonAfterAFlightIsSuperseded(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	for _, c := range []struct {
		key  string
		ago  time.Duration
		want string
	}{{"soon", 19 * time.Hour, "superseded"}, {"late", 21 * time.Hour, ""}} {
		h.putKey(c.key, subjects.KeyParams{Timezone: "Asia/Tokyo"})
		at := time.Now().UTC().Add(4 * time.Second)
		p := schedules.Params{Spec: calendar.Spec{Timezone: "@key", Cron: calendar.StringList{fmt.Sprintf("%d %d %d * * *", at.Second(), at.Minute(), at.Hour())}}}
		h.put("w", c.key, p)
		h.exec(`UPDATE schedule_state st SET last_at = $1, seen_at = $1 FROM schedule s WHERE s.id = st.schedule_id AND s.key = $2`, at.Truncate(time.Second).Add(-c.ago), c.key)
		h.putKey(c.key, subjects.KeyParams{Timezone: "Etc/UTC"})
		until(t, "the tick is recorded", func() bool { return len(h.history("w", c.key)) > 0 })
		if tick := h.history("w", c.key)[0]; tick.Reason != c.want || (tick.State == "skipped") != (c.want != "") || !tick.Timestamp.Equal(at.Truncate(time.Second)) {
			t.Errorf("%s: got %+v", c.key, tick)
		}
	}
}

func TestAKeyIsErasedWhileItsTicksRun(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	p := everySecond()
	p.Policy = &policy.Policy{Overlap: "buffer_all"}
	h.put("w", "k", p)
	h.put("w", "bystander", p)
	until(t, "ticks run and wait", func() bool { return len(h.history("w", "k")) > 2 })
	worker := h.open(h.dispatch).operator()
	leased := worker.leaseAll(2)
	receipt, err := h.subjects.Erase(t.Context(), h.tenant, "k", "ann", version.Precondition{})
	if err != nil {
		t.Fatal(err)
	}
	if receipt.Counts.Schedules != 1 || receipt.Counts.Ticks < 3 || receipt.ErasedBy != "ann" || len(receipt.KeyHash) != 64 {
		t.Errorf("got %+v", receipt)
	}
	for _, tick := range leased {
		path, token := "/v1/ticks/"+tick.TickID, fmt.Sprintf(`"lease_token": %q`, tick.LeaseToken)
		if tick.Key == "bystander" {
			if got := worker.do("POST", path+"/complete", "{"+token+"}"); got.status != 204 {
				t.Errorf("another's tick: got %d %s", got.status, got.body)
			}
			continue
		}
		for _, got := range []answer{
			worker.do("POST", path+"/complete", "{"+token+`, "result": {"mail": "ann@example.com"}}`),
			worker.do("POST", path+"/fail", "{"+token+`, "error": "no"}`),
			worker.do("POST", path+"/heartbeat", "{"+token+"}"),
			worker.do("GET", path, ""),
		} {
			if got.status != 404 && got.status != 409 {
				t.Errorf("got %d %s", got.status, got.body)
			}
		}
	}
	until(t, "the other goes on", func() bool { return h.number(`SELECT occurrence::int FROM schedule_state`) > 1 })
	other := h.number(`SELECT id::int FROM schedule`)
	for _, table := range []string{"tick", "attempt", "held", "buffered", "dead_letter", "schedule_state", "member", "revision"} {
		if n := h.number(`SELECT count(*)::int FROM `+table+` WHERE schedule_id <> $1`, other); n != 0 {
			t.Errorf("%s has %d rows of the erased", table, n)
		}
	}
}

func TestAnErasureThatWasCutIsFinished(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	h.put("w", "k", everySecond())
	until(t, "a tick runs", func() bool { return len(h.history("w", "k")) > 0 })
	h.exec(`
		INSERT INTO erasure (tenant_id, key_hash, key, erased_by, began_at, schedule_ids)
		SELECT tenant_id, '\x00', 'k', 'ann', now() - interval '1 hour', ARRAY[id] FROM schedule`)
	h.exec(`DELETE FROM member`)
	h.exec(`DELETE FROM schedule_state`)
	h.exec(`DELETE FROM schedule`)
	if err := h.subjects.FinishErasures(t.Context(), h.pool); err != nil {
		t.Fatal(err)
	}
	if n := h.number(`SELECT count(*)::int FROM erasure WHERE erased_at IS NOT NULL AND key IS NULL AND ticks > 0`); n != 1 {
		t.Error("it is not finished")
	}
	if n := h.number(`SELECT count(*)::int FROM tick`); n != 0 {
		t.Errorf("%d ticks are left", n)
	}
}

// An erasure that cannot be read does not stop that of the next tenant.
func TestAnErasureThatFailsStopsNoOther(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	other, err := tenants.Ensure(t.Context(), h.pool, "other", tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	h.exec(`
		INSERT INTO erasure (tenant_id, key_hash, key, erased_by, began_at, schedule_ids)
		VALUES ($1, '\x00', NULL, 'ann', now() - interval '2 hours', '{}'), ($2, '\x00', 'k', 'ann', now() - interval '1 hour', '{}')`, h.tenant, other.ID)
	if err := h.subjects.FinishErasures(t.Context(), h.pool); err == nil {
		t.Error("nothing is said of the one that fails")
	}
	if n := h.number(`SELECT count(*)::int FROM erasure WHERE tenant_id = $1 AND erased_at IS NOT NULL`, other.ID); n != 1 {
		t.Error("the other tenant's is not finished")
	}
}

// Kept answers are searched in parts, and an erasure that was cut goes on behind the last part.
func TestKeptAnswersAreSearchedInParts(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(`
		INSERT INTO idempotency (tenant_id, route, key, body_hash, status, answer)
		SELECT $1, 'POST /v1/workflows/w/schedules/' || CASE WHEN n % 600 = 0 THEN 'k' ELSE 'bystander' END || '/trigger',
			to_char(n, '0000'), '', 200, CASE WHEN n = 1 THEN '{"id":1,"key":"k"}' ELSE '{"key":"bystander"}' END::bytea
		FROM generate_series(0, 1300) AS g (n)`, h.tenant)
	receipt, err := h.subjects.Erase(t.Context(), h.tenant, "k", "ann", version.Precondition{})
	if err != nil {
		t.Fatal(err)
	}
	if left := h.number(`SELECT count(*)::int FROM idempotency`); receipt.Counts.Answers != 4 || left != 1297 {
		t.Errorf("%d are erased, %d are left", receipt.Counts.Answers, left)
	}
	if n := h.number(`SELECT count(*)::int FROM erasure WHERE key IS NULL AND answer_route IS NULL AND answer_key IS NULL`); n != 1 {
		t.Error("the erasure keeps where it searched")
	}
	h.exec(`
		INSERT INTO erasure (tenant_id, key_hash, key, erased_by, began_at, schedule_ids, answer_route, answer_key)
		SELECT tenant_id, '\x00', 'bystander', 'ann', now() - interval '1 hour', '{}', route, key
		FROM idempotency
		ORDER BY route, key
		OFFSET 699
		LIMIT 1`)
	if err := h.subjects.FinishErasures(t.Context(), h.pool); err != nil {
		t.Fatal(err)
	}
	if left := h.number(`SELECT count(*)::int FROM idempotency`); left != 700 {
		t.Errorf("%d are left, 700 were searched before", left)
	}
}

func TestARenamedKeyKeepsItsHistory(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	h.put("w", "k", everySecond())
	until(t, "a tick runs", func() bool { return len(h.history("w", "k")) > 0 })
	before := h.history("w", "k")
	if _, _, err := h.subjects.Rename(t.Context(), h.tenant, "k", subjects.RenameParams{To: "n"}, once.Request{}); err != nil {
		t.Fatal(err)
	}
	after := h.history("w", "n")
	if after[0].TickID != before[0].TickID || after[0].Key != "n" {
		t.Errorf("got %+v", after[0])
	}
	until(t, "it goes on", func() bool { return len(h.history("w", "n")) > len(before) })
}
