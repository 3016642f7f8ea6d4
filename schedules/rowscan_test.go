package schedules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/schedules/subjects"
)

func TestEachColumnOfARowGoesToTheFieldOfItsName(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	rows, err := h.Pool.Query(t.Context(), schedules.OneQuery, h.Acme, "w", "none")
	if err != nil {
		t.Fatal(err)
	}
	rows.Close()
	for _, wrong := range schedules.Misplaced(rows.FieldDescriptions()) {
		t.Error(wrong)
	}
}

// A list and a read of many schedules show the same of a schedule as a read of it alone.
func TestAListShowsASchedule(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	yearly := func(more func(p *schedules.Params)) schedules.Params {
		p := schedulestest.ByCron("0 12 1 3 *") // nothing comes while the test runs
		p.Spec.Timezone = "Europe/Berlin"
		p.Labels, p.Payload = map[string]string{"plan": "pro"}, web.Raw(`{"z": 1, "a": [1e999]}`)
		more(&p)
		return p
	}
	put := func(workflow, key string, p schedules.Params) {
		t.Helper()
		if _, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: workflow, Key: key}, p, "ann", version.Precondition{}); err != nil {
			t.Fatal(workflow, key, err)
		}
	}
	defaults := &policy.Defaults{Policy: &policy.Policy{Missed: "all"}, Delivery: &policy.Delivery{Queue: "slow", Priority: new(4)}}
	if _, _, err := h.Schedules.PutWorkflow(t.Context(), h.Acme, "v", schedules.WorkflowParams{Defaults: defaults}); err != nil {
		t.Fatal(err)
	}
	h.PutSubject("follows", subjects.SubjectParams{Timezone: "Asia/Tokyo", QuietHours: subjects.QuietWindows{{From: "22:00", To: "07:00", Then: "defer"}}})
	h.PutCalendar("days", "2027-03-01")
	for _, workflow := range []string{"v", "w"} {
		put(workflow, "plain", yearly(func(p *schedules.Params) {}))
		put(workflow, "own", yearly(func(p *schedules.Params) {
			p.Note, p.Policy, p.Delivery = new("a note"), &policy.Policy{Overlap: "buffer_one", MaxLateness: "2h"}, &policy.Delivery{Timeout: "30s"}
		}))
		put(workflow, "follows", yearly(func(p *schedules.Params) { p.Spec.Timezone = "@subject" }))
		put(workflow, "limited", yearly(func(p *schedules.Params) { p.Spec.MaxTicks = new(2) }))
		put(workflow, "spread", yearly(func(p *schedules.Params) { p.Spec.Jitter = "10m" }))
		put(workflow, "excluded", yearly(func(p *schedules.Params) { p.Spec.Exclude = &calendar.Exclude{Named: []string{"days"}} }))
		put(workflow, "paused", yearly(func(p *schedules.Params) { p.Status = policy.Paused }))
		put(workflow, "odd", yearly(func(p *schedules.Params) { p.Spec.Cron = calendar.StringList{"30 2 * * *"} })) // a DST gap: it is warned of
	}
	h.Pause("own", schedules.PauseParams{Until: new(time.Now().AddDate(0, 1, 0).Truncate(time.Second)), Note: new("away")})
	if _, _, err := h.Schedules.Skip(t.Context(), h.Acme, "w", "plain", schedules.SkipParams{Count: new(2)}, schedules.Changer{By: "bob"}); err != nil {
		t.Fatal(err)
	}
	at := h.Get("spread").Upcoming[0]
	reschedule(h, "spread", at, at.Add(time.Hour))
	h.Exec(`DELETE FROM member m USING schedule s WHERE s.tenant_id = $1 AND s.workflow = 'v' AND s.key = 'odd' AND m.schedule_id = s.id`, h.Acme)
	h.Exec(`UPDATE schedule SET status = 'quarantined', status_note = 'broken', cohort_id = NULL WHERE tenant_id = $1 AND workflow = 'v' AND key = 'odd'`, h.Acme)
	h.Exec(`UPDATE schedule_state st SET fired = 7, succeeded = 4, failed = 2, skipped = 1, missed = 3, last_at = now(), last_tick_at = now(), last_seq = 5
		FROM schedule s WHERE s.tenant_id = $1 AND s.id = st.schedule_id AND s.key = 'limited'`, h.Acme)

	shown := map[string]schedules.Schedule{}
	for _, f := range []schedules.Filter{
		{}, {Workflow: "v"}, {KeyPrefix: "o"}, {Workflow: "w", KeyPrefix: "p"}, {Label: "plan:pro"}, {Label: "plan:pro", Status: policy.Active},
		{Status: policy.Paused}, {Status: policy.Quarantined}, {DueBefore: time.Now().AddDate(2, 0, 0)},
	} {
		page, _, err := h.Schedules.List(t.Context(), h.Acme, f, 100, "")
		if err != nil || len(page) == 0 {
			t.Fatalf("%+v: %v, %v", f, page, err)
		}
		for _, got := range page {
			want, err := h.Schedules.Get(t.Context(), h.Acme, got.Workflow, got.Key)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%+v: %s/%s: want -, got +:\n%s", f, got.Workflow, got.Key, diff)
			}
			shown[got.Workflow+"/"+got.Key] = got
		}
	}
	if len(shown) != 16 {
		t.Errorf("%d schedules were listed, of 16", len(shown))
	}
	var many []schedules.Schedule
	err := h.Schedules.Many(t.Context(), h.Acme, schedules.ManyParams{Workflow: "v", Keys: []string{"odd", "plain", "follows", "none"}}, func(some []schedules.Schedule) error {
		many = append(many, some...)
		return nil
	})
	if err != nil || len(many) != 3 {
		t.Fatal(fmt.Sprint(len(many)), err)
	}
	for _, got := range many {
		if diff := cmp.Diff(shown["v/"+got.Key], got); diff != "" {
			t.Errorf("%s: want -, got +:\n%s", got.Key, diff)
		}
	}
}
