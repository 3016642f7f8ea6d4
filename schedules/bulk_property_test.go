package schedules_test

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// upsertBulk stores lines for acme and returns what became of each.
func (h *home) upsertBulk(text string) (results []bulk.Result, sum bulk.Summary) {
	h.t.Helper()
	sum, err := h.inBulk.Upsert(h.t.Context(), h.acme, "ann", io.NopCloser(strings.NewReader(text)), func(batch []bulk.Result) error {
		results = append(results, batch...)
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return results, sum
}

func ndjson(t testing.TB, lines ...bulk.Line) string {
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

// What bulk makes of lines is what Put makes of each, for another tenant, one by one.
func TestBulkIsManyPuts(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		w := fmt.Sprint("w", run)
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			h.disturb(rt, w)
			lines := rapid.SliceOfN(drawLine(w), 1, 8).Draw(rt, "lines")
			h.takeHanded()
			results, _ := h.upsertBulk(ndjson(t, lines...))
			handed := h.handedKeys()
			want := h.putEach(rt, lines)
			for i, r := range results {
				if got := told(r, want[i]); got != want[i] || r.Line != i+1 {
					rt.Fatalf("line %d: put says %q, bulk %q", i+1, want[i], got)
				}
			}
			if diff := cmp.Diff(h.handedKeys(), handed); diff != "" {
				rt.Fatalf("handed out (-put +bulk):\n%s", diff)
			}
			if diff := cmp.Diff(h.picture(h.other, w), h.picture(h.acme, w)); diff != "" {
				rt.Fatalf("stored (-put +bulk):\n%s", diff)
			}
		}
	})
	if got := one[int](h, `SELECT count(*) FROM member m FULL JOIN schedule s ON s.id = m.schedule_id AND s.cohort_id = m.cohort_id AND s.phase = m.phase AND s.tenant_id = m.tenant_id
		WHERE m.schedule_id IS NULL AND s.cohort_id IS NOT NULL OR s.id IS NULL`); got != 0 {
		t.Errorf("%d members are not their schedule's", got)
	}
}

func drawLine(w string) *rapid.Generator[bulk.Line] {
	specs := []calendar.Spec{
		cron("0 12 * * *"), cron("0 12 * * *"), cron("30 4 * * 1"),
		{Cron: calendar.StringList{"0 12 * * *"}, Timezone: "America/New_York", Jitter: "30s"},
		{Cron: calendar.StringList{"0 12 * * *"}, MaxTicks: new(3)}, {Cron: calendar.StringList{"0 12 * * *"}, MaxTicks: new(5)},
		{Cron: calendar.StringList{"0 12 * * *"}, Timezone: "Mars/Olympus"},
		cron("0 0 30 2 *"), cron("*/30 * 1 1 *"), {}, // no time of theirs comes while this runs
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

// delayFrom is a spec whose first tick does not depend on the moment at which it is put.
func delayFrom(every string, most *int) calendar.Spec {
	return calendar.Spec{Intervals: []calendar.Interval{{Every: every, Mode: "fixed_delay"}}, StartAt: new("2060-01-01T00:00:00Z"), MaxTicks: most}
}

// disturb does to both tenants' schedules what may lie between two upserts.
func (h *home) disturb(rt *rapid.T, w string) {
	h.quotas = tenants.Wide()
	if rapid.Bool().Draw(rt, "strict") {
		h.quotas.SmallestIntervalSeconds = 3600
	}
	key := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "whose")
	what := rapid.IntRange(0, 7).Draw(rt, "what")
	for _, tenant := range []tenants.ID{h.acme, h.other} {
		ctx, by := h.as(tenant), schedules.Changer{By: "bob"}
		switch what { // of one that is not there or cannot be, nothing comes, for either
		case 0:
			_ = h.schedules.Delete(ctx, tenant, w, key, by)
		case 1:
			_, _, _ = h.schedules.Pause(ctx, tenant, w, key, schedules.PauseParams{Note: new("why")}, by)
		case 2, 3:
			_, _, _ = h.schedules.Pause(ctx, tenant, w, key, schedules.PauseParams{Until: new(time.Now().Add(48 * time.Hour).Truncate(24 * time.Hour))}, by)
			if what == 3 {
				h.exec(`UPDATE schedule SET paused_until = date_trunc('minute', now()) WHERE tenant_id = $1 AND workflow = $2 AND paused_until IS NOT NULL`, tenant, w)
			}
		case 4:
			h.exec(`UPDATE schedule SET status = 'quarantined', cohort_id = NULL, paused_at = NULL, paused_until = NULL WHERE tenant_id = $1 AND workflow = $2 AND key = $3`, tenant, w, key)
			h.exec(`DELETE FROM member WHERE schedule_id IN (SELECT id FROM schedule WHERE status = 'quarantined')`)
		case 5:
			h.exec(`UPDATE cohort SET next_at = next_at - interval '7 days', due_at = due_at - interval '7 days' WHERE tenant_id = $1 AND workflow = $2`, tenant, w)
			h.exec(`UPDATE member SET from_at = from_at - interval '7 days' WHERE tenant_id = $1`, tenant)
		case 6:
			h.tickOut(tenant, w)
		}
	}
}

// putEach puts the last good line of each key for the other tenant, and says what must become of all.
func (h *home) putEach(rt *rapid.T, lines []bulk.Line) []string {
	want := make([]string, len(lines))
	done := map[string]bool{}
	for i, l := range slices.Backward(lines) {
		before, err := h.schedules.Get(h.theirs(), h.other, l.Workflow, *l.Key)
		absent := err != nil
		if done[*l.Key] {
			want[i] = *l.Key + h.hidden(*l.Key, l.Params)
			continue
		}
		s, made, err := h.schedules.Put(h.theirs(), policy.Name{Tenant: h.other, Workflow: l.Workflow, Key: *l.Key}, l.Params, "ann", version.Precondition{})
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

// hidden tells a line that a later one of its key hides from one that is bad whatever is stored.
func (h *home) hidden(key string, p schedules.Params) string {
	if _, _, err := h.schedules.Put(h.theirs(), policy.Name{Tenant: h.other, Workflow: "trial", Key: key}, p, "ann", version.Precondition{}); err != nil {
		return " hidden or error"
	}
	return " duplicate"
}

// told is what a line was answered, in the words of putEach.
func told(r bulk.Result, want string) string {
	switch {
	case strings.HasSuffix(want, " hidden or error") && (r.Result == bulk.Duplicate || r.Result == schedules.Failed):
		return want
	case r.Error == nil:
		return r.Key + " " + r.Result
	}
	return r.Key + " error " + (&fault.Error{Detail: r.Error.Detail, Fields: r.Error.Errors}).Error()
}

// picture is all that is stored of a workflow's schedules and does not name the tenant.
func (h *home) picture(tenant tenants.ID, w string) (rows []string) {
	h.t.Helper()
	page, _, err := h.schedules.List(h.as(tenant), tenant, schedules.Filter{Workflow: w}, 100, "")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, s := range page {
		shown := []any{s.Key, s.Version, s.Status, s.Spec, s.Policy, string(s.Payload), s.Labels, s.Note, s.StatusNote, s.PausedUntil, s.Upcoming, s.UpdatedBy}
		text, err := json.Marshal(shown)
		if err != nil {
			h.t.Fatal(err)
		}
		rows = append(rows, string(text)+" "+one[string](h, `
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

// handedKeys is what was handed out since it was last asked, by key.
func (h *home) handedKeys() (handed []string) {
	h.t.Helper()
	for _, d := range h.takeHanded() {
		handed = append(handed, fmt.Sprint(one[string](h, `SELECT key FROM schedule WHERE id = $1`, d.Schedule), d.Run.At, d.Missed))
	}
	slices.Sort(handed)
	return handed
}
