package schedulestest

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// UpsertBulk stores lines for acme and returns the result of each line.
func (h *Fixture) UpsertBulk(text string) (results []bulk.Result, sum bulk.Summary) {
	h.T.Helper()
	sum, err := h.InBulk.Upsert(h.T.Context(), h.Acme, "ann", io.NopCloser(strings.NewReader(text)), func(batch []bulk.Result) error {
		results = append(results, batch...)
		return nil
	})
	if err != nil {
		h.T.Fatal(err)
	}
	return results, sum
}

// NDJSON returns lines as the body of a bulk request.
func NDJSON(t testing.TB, lines ...bulk.Line) string {
	t.Helper()
	var b strings.Builder
	for _, l := range lines {
		text, err := web.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(text, '\n'))
	}
	return b.String()
}

// DrawLine draws a line of one of four keys. Many lines are alike, and some have a fault.
func DrawLine(w string) *rapid.Generator[bulk.Line] {
	daily := EachDay("UTC")
	specs := []calendar.Spec{
		Cron(daily), Cron(daily), Cron("30 4 * * 1"),
		{Cron: calendar.StringList{daily}, Timezone: "America/New_York", Jitter: "30s"},
		{Cron: calendar.StringList{daily}, MaxTicks: new(3)}, {Cron: calendar.StringList{daily}, MaxTicks: new(5)},
		{Cron: calendar.StringList{daily}, Timezone: "Mars/Olympus"},
		Cron("0 0 30 2 *"), Cron("*/30 * 1 1 *"), {}, // no time of theirs comes while this runs
		delayFrom("5h", nil), delayFrom("6h", nil), delayFrom("5h", new(2)),
	}
	return rapid.Custom(func(rt *rapid.T) bulk.Line {
		l := bulk.Line{Workflow: w, Key: new(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "key"))}
		if l.Spec = specs[0]; rapid.Bool().Draw(rt, "another spec") {
			l.Spec = rapid.SampledFrom(specs).Draw(rt, "spec")
		}
		l.Status = rapid.SampledFrom([]string{"", "", "", "", "", "active", "paused"}).Draw(rt, "status")
		l.Note = rapid.SampledFrom([]*string{nil, nil, nil, nil, new("n"), new("m")}).Draw(rt, "note")
		l.Payload = rapid.SampledFrom([]web.Raw{nil, nil, nil, nil, web.Raw(`{"n": 1}`), web.Raw(`{"n": 1.0}`)}).Draw(rt, "payload")
		l.Labels = rapid.SampledFrom([]map[string]string{nil, nil, {"plan": "pro"}}).Draw(rt, "labels")
		l.Policy = rapid.SampledFrom([]*policy.Policy{nil, nil, nil, nil, nil, nil, {Missed: "all"}, {Overlap: "allow_all"}, {Overlap: "no"}}).Draw(rt, "policy")
		return l
	})
}

// delayFrom returns a spec whose first tick does not depend on the time of the put.
func delayFrom(every string, most *int) calendar.Spec {
	return calendar.Spec{Intervals: []calendar.Interval{{Every: every, Mode: "fixed_delay"}}, StartAt: new("2060-01-01T00:00:00Z"), MaxTicks: most}
}

// ChangeBetween makes the same change to the schedules of both tenants, as other requests and the sweep do between two upserts.
func (h *Fixture) ChangeBetween(rt *rapid.T, w string) {
	h.Quotas = tenants.Wide()
	if rapid.Bool().Draw(rt, "strict") {
		h.Quotas.SmallestIntervalSeconds = 3600
	}
	key := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "whose")
	what := rapid.IntRange(0, 7).Draw(rt, "what")
	for _, tenant := range []tenants.ID{h.Acme, h.Other} {
		ctx, by := h.As(tenant), schedules.Changer{By: "bob"}
		switch what { // a change that is not possible fails for both tenants
		case 0:
			_ = h.Schedules.Delete(ctx, tenant, w, key, by)
		case 1:
			_, _, _ = h.Schedules.Pause(ctx, tenant, w, key, schedules.PauseParams{Note: new("why")}, by)
		case 2, 3:
			_, _, _ = h.Schedules.Pause(ctx, tenant, w, key, schedules.PauseParams{Until: new(time.Now().Add(48 * time.Hour).Truncate(24 * time.Hour))}, by)
			if what == 3 {
				h.Exec(`UPDATE schedule SET paused_until = date_trunc('minute', now()) WHERE tenant_id = $1 AND workflow = $2 AND paused_until IS NOT NULL`, tenant, w)
			}
		case 4:
			h.Exec(`UPDATE schedule SET status = 'quarantined', cohort_id = NULL, paused_at = NULL, paused_until = NULL, paused_by = NULL WHERE tenant_id = $1 AND workflow = $2 AND key = $3`, tenant, w, key)
			h.Exec(`DELETE FROM member WHERE schedule_id IN (SELECT id FROM schedule WHERE status = 'quarantined')`)
		case 5:
			h.Exec(`UPDATE cohort SET next_at = next_at - interval '7 days', due_at = due_at - interval '7 days' WHERE tenant_id = $1 AND workflow = $2`, tenant, w)
			h.Exec(`UPDATE member SET from_at = from_at - interval '7 days' WHERE tenant_id = $1`, tenant)
		case 6:
			h.SweepDelays(tenant, w)
		}
	}
}

// PutEach puts the last good line of each key for the other tenant, and returns the result that bulk must give for each line.
func (h *Fixture) PutEach(rt *rapid.T, lines []bulk.Line) []string {
	want := make([]string, len(lines))
	done := map[string]bool{}
	for i, l := range slices.Backward(lines) {
		before, err := h.Schedules.Get(h.Theirs(), h.Other, l.Workflow, *l.Key)
		absent := err != nil
		if done[*l.Key] {
			want[i] = *l.Key + h.hidden(*l.Key, l.Params)
			continue
		}
		s, made, err := h.Schedules.Put(h.Theirs(), policy.Name{Tenant: h.Other, Workflow: l.Workflow, Key: *l.Key}, l.Params, "ann", version.Precondition{})
		switch {
		case err != nil:
			want[i] = *l.Key + " error " + err.Error()
			continue
		case made != absent:
			rt.Fatalf("made %t where absent was %t", made, absent)
		case made:
			want[i] = *l.Key + " inserted"
		case s.Version != before.Version:
			want[i] = *l.Key + " updated"
		default:
			want[i] = *l.Key + " unchanged"
		}
		done[*l.Key] = true
	}
	return want
}

// hidden returns the result of a line that a later line of the same key replaces. It depends on whether the line itself has a fault.
func (h *Fixture) hidden(key string, p schedules.Params) string {
	if _, _, err := h.Schedules.Put(h.Theirs(), policy.Name{Tenant: h.Other, Workflow: "trial", Key: key}, p, "ann", version.Precondition{}); err != nil {
		return " hidden or error"
	}
	return " duplicate"
}

// Dump returns all stored facts of the schedules of a workflow that do not name the tenant.
func (h *Fixture) Dump(tenant tenants.ID, w string) (rows []string) {
	h.T.Helper()
	page, _, err := h.Schedules.List(h.As(tenant), tenant, schedules.Filter{Workflow: w}, 100, "")
	if err != nil {
		h.T.Fatal(err)
	}
	for _, s := range page {
		shown := []any{s.Key, s.Version, s.Status, s.Spec, s.Policy, string(s.Payload), s.Labels, s.Note, s.StatusNote, s.PausedUntil, s.Upcoming, s.UpdatedBy}
		text, err := json.Marshal(shown)
		if err != nil {
			h.T.Fatal(err)
		}
		rows = append(rows, string(text)+" "+One[string](h, `
			SELECT concat_ws(' ', s.ticks_left, s.paused_at IS NOT NULL, st.delay_at, st.delay_left, (SELECT c.due_at IS NOT NULL FROM cohort c WHERE c.id = s.cohort_id), m.until_at, st.fired,
				(SELECT count(*) FROM revision r WHERE r.schedule_id = s.id),
				(SELECT min(o.key) FROM schedule o WHERE o.cohort_id = s.cohort_id))
			FROM schedule s
			JOIN schedule_state st ON st.schedule_id = s.id
			LEFT JOIN member m ON m.cohort_id = s.cohort_id AND m.phase = s.phase AND m.schedule_id = s.id
			WHERE s.tenant_id = $1 AND s.workflow = $2 AND s.key = $3`, tenant, w, s.Key))
	}
	return rows
}

// HandedKeys returns the due ticks that were handed out since the last call, by key.
func (h *Fixture) HandedKeys() (handed []string) {
	h.T.Helper()
	for _, d := range h.TakeHanded() {
		handed = append(handed, fmt.Sprint(One[string](h, `SELECT key FROM schedule WHERE id = $1`, d.Schedule), d.Run.At, d.Missed))
	}
	slices.Sort(handed)
	return handed
}

// BulkPath is the path of a bulk upsert.
const BulkPath = "/v1/schedules/bulk"

// DailyLine returns the line of a schedule that fires once a day.
func DailyLine(key string) string {
	return fmt.Sprintf(`{"workflow":"w","key":%q,"spec":{"cron":"0 12 * * *"}}`+"\n", key)
}
