package calendars_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

// upcomingDays returns the days of a schedule's coming ticks after today.
func upcomingDays(h *schedulestest.Fixture, key string) (list []string) {
	h.T.Helper()
	s := h.Get(key)
	for _, at := range s.Upcoming {
		if at.After(time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)) {
			list = append(list, at.Format(time.DateOnly))
		}
	}
	return list
}

func TestAnEditedCalendarRetimesWhoNamesIt(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	next := days(9)
	h.PutCalendar("off", next[0])
	h.Put("a", schedulestest.DailyExcept("off"))
	h.Put("plain", schedulestest.ByCron("0 12 * * *"))
	want := func(what string, days ...string) {
		t.Helper()
		got := upcomingDays(h, "a")
		if diff := cmp.Diff(days, got[:len(days)]); diff != "" {
			t.Errorf("%s: want -, got +:\n%s", what, diff)
		}
	}
	want("as put", next[1:5]...)
	h.PutCalendar("off", next[1], next[2])
	want("edited", next[0], next[3], next[4], next[5])
	if got := upcomingDays(h, "plain")[:3]; !cmp.Equal(got, next[:3]) {
		t.Errorf("one that names none got %v", got)
	}
	if got := schedulestest.One[int](h, `SELECT count(*) FROM cohort WHERE retime_at IS NOT NULL`); got != 1 {
		t.Errorf("%d cohorts are to be retimed, want 1", got)
	}
	h.Put("late", schedulestest.DailyExcept("off"))
	if got := schedulestest.One[int](h, `SELECT count(DISTINCT cohort_id) FROM schedule WHERE workflow = 'w' AND key IN ('a', 'late')`); got > 2 {
		t.Errorf("%d cohorts", got)
	}
	p, err := h.Schedules.PreviewSpec(t.Context(), h.Acme, schedules.PreviewParams{Spec: schedulestest.DailyExcept("off").Spec, Count: new(6)}, tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	for _, tick := range p.Ticks {
		if day := tick.Timestamp.Format(time.DateOnly); day == next[1] || day == next[2] {
			t.Errorf("the preview has %s", day)
		}
	}
	before := schedulestest.One[int](h, `SELECT revision FROM calendar_revision`)
	h.PutCalendar("off", next[2], next[1], next[1])
	if after := schedulestest.One[int](h, `SELECT revision FROM calendar_revision`); after != before {
		t.Errorf("what was held already made revision %d of %d", after, before)
	}
	h.PutCalendar("other", next[0])
	if got := schedulestest.One[int](h, `SELECT count(*) FROM cohort WHERE retime_at IS NOT NULL AND NOT 'off' = ANY(calendars)`); got != 0 {
		t.Errorf("%d cohorts that do not name it were told", got)
	}
}

func TestAPausedScheduleResumesByThePresentCalendar(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	next := days(9)
	h.PutCalendar("off", next[0])
	h.Put("a", schedulestest.DailyExcept("off"))
	h.Pause("a", schedules.PauseParams{})
	h.PutCalendar("off", next[1])
	h.Resume("a", schedules.ResumeParams{})
	if got := upcomingDays(h, "a")[:2]; !cmp.Equal(got, []string{next[0], next[2]}) {
		t.Errorf("got %v", got)
	}
}
