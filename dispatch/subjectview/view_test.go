package subjectview_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/subjectview"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/subjects"
	"github.com/carillonhq/carillon/tenants"
)

func views(h *dispatchtest.Carillon) *subjectview.Views {
	return &subjectview.Views{Subjects: h.Subjects, Schedules: h.Schedules, History: h.Dispatch.Reader, Explainer: h.Dispatch.Explainer}
}

// minute is when in their hour the schedules of these tests fire: in any zone that is whole hours from UTC, no tick comes by itself within
// half an hour of the start.
var minute = time.Now().UTC().Add(30 * time.Minute).Minute()

// ofSubject returns params of a daily schedule in an hour, for a subject.
func ofSubject(subject string, hour int, zone string) schedules.Params {
	return schedules.Params{Subject: subject, Spec: calendar.Spec{Timezone: zone, Cron: calendar.StringList{fmt.Sprintf("%d %d * * *", minute, hour)}}, Policy: &policy.Policy{Overlap: "allow_all"}}
}

func trigger(h *dispatchtest.Carillon, workflow, key string) {
	h.T.Helper()
	if _, _, err := h.Dispatch.Control.Trigger(h.T.Context(), h.Tenant, workflow, key, control.TriggerParams{}, once.Request{}); err != nil {
		h.T.Fatal(err)
	}
}

// backdate makes a schedule as old as some days.
func backdate(h *dispatchtest.Carillon, workflow, key string, days int) {
	h.T.Helper()
	h.Exec(`UPDATE schedule SET created_at = created_at - make_interval(days => $3), updated_at = updated_at - make_interval(days => $3) WHERE workflow = $1 AND key = $2`, workflow, key, days)
}

func TestAnOverviewMergesTheSchedulesOfASubject(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.PutSubject("u", subjects.SubjectParams{Timezone: "Asia/Tokyo"})
	h.Put("meals", "u/noon", ofSubject("u", 12, "@subject"))
	h.Put("meals", "u/evening", ofSubject("u", 19, "@subject"))
	h.Put("news", "u", ofSubject("", 6, "UTC"))
	h.Put("news", "other", ofSubject("", 6, "UTC"))
	paused := ofSubject("u", 3, "UTC")
	paused.Status = policy.Paused
	h.Put("news", "u/paused", paused)
	trigger(h, "meals", "u/noon")
	trigger(h, "news", "u")
	trigger(h, "news", "other")
	h.Finish(h.Lease("meals", 1)[0])
	dispatchtest.Until(t, "all ticks are recorded", func() bool { return h.Number(`SELECT count(*) FROM tick`) == 3 })

	got, err := views(h).Overview(t.Context(), h.Tenant, "u")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range got.Schedules {
		names = append(names, s.Workflow+"/"+s.Key+" "+s.TimezoneInForce)
	}
	want := []string{"meals/u/evening Asia/Tokyo", "meals/u/noon Asia/Tokyo", "news/u UTC", "news/u/paused UTC"}
	if !slices.Equal(names, want) || got.More || got.Profile == nil || got.TimezoneInForce == nil || *got.TimezoneInForce != "Asia/Tokyo" {
		t.Errorf("got %v and %+v, want %v", names, got.Profile, want)
	}
	if noon := got.Schedules[1]; noon.LastOutcome == nil || *noon.LastOutcome != "succeeded" || noon.Overdue || noon.NextLocal == nil || !strings.HasSuffix(*noon.NextLocal, fmt.Sprintf("T12:%02d:00+09:00", minute)) || noon.Reading == "" {
		t.Errorf("got %+v", noon)
	}
	if len(got.Upcoming) != 15 || !slices.IsSortedFunc(got.Upcoming, func(a, b subjectview.Tick) int { return a.Timestamp.Compare(b.Timestamp) }) {
		t.Errorf("got %d coming ticks: %+v", len(got.Upcoming), got.Upcoming)
	}
	for _, one := range got.Upcoming {
		hour := map[string]string{"u/noon": "T12:%02d:00+09:00", "u/evening": "T19:%02d:00+09:00", "u": "T06:%02d:00Z"}[one.Key]
		if hour == "" || !strings.HasSuffix(one.LocalTime, fmt.Sprintf(hour, minute)) {
			t.Errorf("got %+v, want %s", one, hour)
		}
	}
	if len(got.Recent) != 2 || got.Recent[0].Subject != "u" || got.Recent[1].Subject != "u" {
		t.Errorf("got %+v", got.Recent)
	}
	nobody, err := views(h).Overview(t.Context(), h.Tenant, "nobody")
	if err != nil || nobody.Profile != nil || nobody.TimezoneInForce != nil || len(nobody.Schedules)+len(nobody.Upcoming)+len(nobody.Recent) != 0 {
		t.Errorf("got %+v, %v", nobody, err)
	}
}

// atNoon returns the zone in which it is noon, or up to an hour later. Its day does not end while a test runs.
func atNoon() *time.Location {
	now := time.Now().UTC()
	zone, err := time.LoadLocation(fmt.Sprintf("Etc/GMT%+d", now.Hour()-12))
	if err != nil {
		panic(err)
	}
	return zone
}

func TestADayIsExplained(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	zone := atNoon()
	h.PutSubject("u", subjects.SubjectParams{Timezone: zone.String()})
	p := ofSubject("u", 0, "@subject")
	paused := p
	paused.Status = policy.Paused
	quiet := schedules.Params{Subject: "u", Spec: calendar.Spec{At: []string{"2099-01-01T00:00:00"}}}
	for workflow, params := range map[string]schedules.Params{"sent": p, "failed": p, "gone": p, "two": p, "paused": paused, "quiet": quiet} {
		h.Put(workflow, "k", params)
	}
	for _, workflow := range []string{"sent", "failed", "gone", "two", "two"} {
		trigger(h, workflow, "k")
	}
	h.Finish(h.Lease("sent", 1)[0])
	h.Fail(h.Lease("failed", 1)[0])
	h.Finish(h.Lease("gone", 1)[0])
	h.Finish(h.Lease("two", 1)[0]) // one after the other: a lease waits for the first tick only
	h.Fail(h.Lease("two", 1)[0])
	backdate(h, "paused", "k", 3)
	if err := h.Schedules.Delete(t.Context(), h.Tenant, "gone", "k", schedules.Changer{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	explain := func(day time.Time) map[string]subjectview.Verdict {
		t.Helper()
		got, err := views(h).Explain(t.Context(), h.Tenant, "u", day.Format(time.DateOnly))
		if err != nil || got.Timezone != zone.String() || got.More {
			t.Fatalf("got %+v, %v", got, err)
		}
		by := map[string]subjectview.Verdict{}
		for _, v := range got.Workflows {
			by[v.Workflow] = v
		}
		return by
	}
	now := h.At(`SELECT nominal_at FROM tick ORDER BY nominal_at LIMIT 1`).In(zone)
	today := explain(now)
	for workflow, want := range map[string]struct {
		verdict, says string
		planned       []string
	}{
		"sent":   {"sent", "succeeded", []string{"fired"}},
		"failed": {"failed", "no paper", []string{"failed"}},
		"gone":   {"sent", "succeeded", []string{"fired"}},
		"two":    {"failed", "1 of 2 due ticks were handed out", []string{"failed", "fired"}},
		"paused": {"paused", "paused", []string{"paused"}},
		"quiet":  {"nothing_due", "Nothing was planned", nil},
	} {
		got := today[workflow]
		var outcomes []string
		for _, one := range got.Planned {
			outcomes = append(outcomes, one.Outcome)
			if (one.TickID == "") != (workflow == "paused") {
				t.Errorf("%s: got %+v", workflow, one)
			}
		}
		slices.Sort(outcomes)
		if got.Verdict != want.verdict || !strings.Contains(got.Detail, want.says) || !slices.Equal(outcomes, want.planned) {
			t.Errorf("%s: got %+v, want %+v", workflow, got, want)
		}
	}
	before := explain(now.AddDate(0, 0, -1))
	for workflow, want := range map[string]string{"sent": "no_schedule", "paused": "paused", "quiet": "no_schedule", "gone": "no_schedule"} {
		if got := before[workflow]; got.Verdict != want {
			t.Errorf("%s: the day before got %+v, want %s", workflow, got, want)
		}
	}
	after := explain(now.AddDate(0, 0, 1))
	for workflow, want := range map[string]string{"sent": "will_fire", "paused": "paused"} {
		if got := after[workflow]; got.Verdict != "nothing_due" || len(got.Planned) != 1 || got.Planned[0].Outcome != want {
			t.Errorf("%s: the day after got %+v, want %s", workflow, got, want)
		}
	}
}

// A day is one of the subject's zone, also where a clock change takes an hour from it, or the whole day.
func TestADayIsOfTheSubjectsZone(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	every := schedules.Params{Subject: "u", Spec: calendar.Spec{Timezone: "@subject", Cron: calendar.StringList{"0 * * * *"}}}
	h.PutSubject("u", subjects.SubjectParams{Timezone: "Pacific/Auckland"})
	h.Put("w", "k", every)
	for zone, days := range map[string]map[string]int{
		"Pacific/Auckland": {"2030-04-07": 25, "2030-09-29": 23, "2030-01-01": 24},
		"America/Havana":   {"2030-03-10": 23, "2030-11-03": 25},
		"UTC":              {"2030-03-10": 24},
	} {
		h.PutSubject("u", subjects.SubjectParams{Timezone: zone})
		for day, want := range days {
			got, err := views(h).Explain(t.Context(), h.Tenant, "u", day)
			if err != nil || got.Timezone != zone || len(got.Workflows) != 1 || len(got.Workflows[0].Planned) != want {
				t.Errorf("%s in %s: got %+v, %v, want %d ticks", day, zone, got, err, want)
				continue
			}
			for _, one := range got.Workflows[0].Planned {
				if !strings.HasPrefix(one.LocalTime, day) {
					t.Errorf("%s in %s: got %s", day, zone, one.LocalTime)
				}
			}
		}
	}
}

func TestSubjectsAreShownOverHTTP(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	s := h.Open(h.Dispatch, func(g *echo.Group) { subjectview.Routes(g, views(h)) })
	c := s.Operator()
	h.Put("w", "k", ofSubject("u/1", 8, "UTC"))
	got := dispatchtest.Get[subjectview.Overview](c, 200, "GET", "/v1/subjects/u%2F1/overview", "")
	if len(got.Schedules) != 1 || len(got.Upcoming) != 5 {
		t.Errorf("got %+v", got)
	}
	day := dispatchtest.Get[subjectview.Day](c, 200, "GET", "/v1/subjects/u%2F1/explain?on=2090-01-01", "")
	if len(day.Workflows) != 1 || day.Workflows[0].Verdict != "nothing_due" || len(day.Workflows[0].Planned) != 1 {
		t.Errorf("got %+v", day)
	}
	rival := s.As("rival", tenants.TenantAdmin)
	if got := dispatchtest.Get[subjectview.Overview](rival, 200, "GET", "/v1/subjects/u%2F1/overview", ""); len(got.Schedules) != 0 {
		t.Errorf("another tenant sees %+v", got)
	}
	if got := dispatchtest.Get[subjectview.Day](rival, 200, "GET", "/v1/subjects/u%2F1/explain?on=2090-01-01", ""); len(got.Workflows) != 0 {
		t.Errorf("another tenant sees %+v", got)
	}
	long := strings.Repeat("x", 257)
	c.Refused(422, "invalid", "/subject", "GET", "/v1/subjects/"+long+"/overview", "")
	c.Refused(422, "invalid", "/subject", "GET", "/v1/subjects/"+long+"/explain?on=2030-01-01", "")
	c.Refused(422, "required", "/on", "GET", "/v1/subjects/u/explain", "")
	for _, on := range []string{"", "today", "2030-02-30", "1969-12-31", "2101-01-01", "2030-01-01T00:00:00Z"} {
		c.Refused(422, "invalid", "/on", "GET", "/v1/subjects/u/explain?on="+on, "")
	}
	c.Refused(400, "unknown_parameter", "/x", "GET", "/v1/subjects/u/overview?x=1", "")
	s.As("acme", tenants.SchedulesWrite).Refused(403, "insufficient_scope", "", "GET", "/v1/subjects/u/overview", "")
	s.As("acme", tenants.TicksWork).Refused(403, "insufficient_scope", "", "GET", "/v1/subjects/u/explain?on=2030-01-01", "")
}
