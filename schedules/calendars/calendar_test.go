package calendars_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

func TestThereAreOnlySoManyCalendars(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	for i := range 100 {
		e.PutCalendar(fmt.Sprint("c", i))
	}
	got := e.Want(403, "quota_exceeded", "PUT", "/v1/calendars/more", `{}`)
	if fmt.Sprint(got.Doc["quota"], got.Doc["limit"], got.Doc["used"]) != "calendars100100" {
		t.Errorf("got %s", got.Body)
	}
}

// days returns the n days after today.
func days(n int) (list []string) {
	for i := range n {
		list = append(list, time.Now().UTC().AddDate(0, 0, i+1).Format(time.DateOnly))
	}
	return list
}

func TestASpecNamesCalendarsThatThereAre(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.PutCalendar("off", "2030-01-01")
	_, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: "a"}, schedulestest.DailyExcept("off", "none"), "ann", version.Precondition{})
	f := schedulestest.WantFault(t, err, 422, "unknown_calendar")
	if f.Fields[0].Pointer != "/spec/exclude/named/1" {
		t.Errorf("got %+v", f.Fields)
	}
	_, _, err = h.Schedules.Put(h.Theirs(), policy.Name{Tenant: h.Other, Workflow: "w", Key: "a"}, schedulestest.DailyExcept("off"), "ann", version.Precondition{})
	schedulestest.WantFault(t, err, 422, "unknown_calendar")
	_, err = h.Schedules.PreviewSpec(h.Theirs(), h.Other, schedules.PreviewParams{Spec: schedulestest.DailyExcept("off").Spec}, tenants.Wide())
	schedulestest.WantFault(t, err, 422, "unknown_calendar")
	h.Put("a", schedulestest.DailyExcept())
	patch := schedules.Patch(`{"spec":{"exclude":{"named":["none"]}}}`)
	_, err = h.Schedules.Patch(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: "a"}, patch, "ann", version.Precondition{})
	schedulestest.WantFault(t, err, 422, "unknown_calendar")
	results, _ := h.UpsertBulk(schedulestest.NDJSON(t,
		bulk.Line{Workflow: "w", Key: new("b"), Params: schedulestest.DailyExcept("off")},
		bulk.Line{Workflow: "w", Key: new("c"), Params: schedulestest.DailyExcept("none")},
		bulk.Line{Workflow: "w", Key: new("a"), Params: schedulestest.DailyExcept("off")}))
	got := []string{}
	for _, r := range results {
		got = append(got, r.Result)
	}
	if want := "inserted error updated"; strings.Join(got, " ") != want || results[1].Error.Code != "unknown_calendar" {
		t.Errorf("got %v, want %s", got, want)
	}
	if got := schedulestest.One[int](h, `SELECT count(*) FROM cohort WHERE calendars = '{off}' AND revision = 1`); got == 0 {
		t.Error("no cohort says that it names the calendar")
	}
	if a, b := h.Get("a").Upcoming, h.Get("b").Upcoming; !cmp.Equal(a, b) {
		t.Errorf("a has %v, b %v", a, b)
	}
}

func TestACalendarInUseIsNotDeleted(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	by := schedules.Changer{By: "ann"}
	h.PutCalendar("off", "2030-01-01")
	h.Put("a", schedulestest.DailyExcept("off"))
	h.Put("b", schedulestest.DailyExcept("off"))
	h.Pause("b", schedules.PauseParams{})
	f := schedulestest.WantFault(t, h.Calendars.Delete(t.Context(), h.Acme, "off", version.Precondition{}), 409, "in_use")
	if f.Extra["schedules"] != int64(2) || f.Extra["cohorts"] != int64(1) {
		t.Errorf("got %v", f.Extra)
	}
	h.Delete("a")
	schedulestest.WantFault(t, h.Calendars.Delete(t.Context(), h.Acme, "off", version.Precondition{}), 409, "in_use")
	h.Resume("b", schedules.ResumeParams{})
	if err := h.Schedules.Delete(t.Context(), h.Acme, "w", "b", by); err != nil {
		t.Fatal(err)
	}
	schedulestest.WantFault(t, h.Calendars.Delete(h.Theirs(), h.Other, "off", version.Precondition{}), 404, "not_found")
	if err := h.Calendars.Delete(t.Context(), h.Acme, "off", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	schedulestest.WantFault(t, h.Calendars.Delete(t.Context(), h.Acme, "off", version.Precondition{}), 404, "not_found")
	h.PutCalendar("off", "2030-01-02")
	h.Put("a", schedulestest.DailyExcept("off"))
}
