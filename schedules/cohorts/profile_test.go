package cohorts_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/schedules/subjects"
)

// around returns quiet hours that began ten hours ago and end in ten hours.
func around(then string) subjects.QuietWindows {
	now := time.Now().UTC()
	return subjects.QuietWindows{{From: now.Add(-10 * time.Hour).Format("15:04"), To: now.Add(10 * time.Hour).Format("15:04"), Then: then}}
}

func TestACohortSleepsUntilQuietHoursEnd(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Etc/UTC", QuietHours: around("")})
	made := h.Put("k", schedulestest.FollowingSubject(schedulestest.EachHour(30)))
	if wait := schedulestest.One[time.Duration](h, `SELECT due_at - next_at FROM cohort`); wait < 8*time.Hour || wait > 11*time.Hour {
		t.Errorf("it is due %s after its nominal time", wait)
	}
	if got := time.Until(*made.NextAt); got > time.Hour {
		t.Errorf("next_at is not nominal: in %s", got)
	}
	h.Backdate(3 * time.Hour)
	if got := h.Get("k"); got.NextAt.After(time.Now()) || len(h.TakeHanded()) != 0 {
		t.Errorf("the one that waits is the next: got %s", got.NextAt)
	}
	h.Put("k", schedulestest.FollowingSubject(schedulestest.EachHour(45)))
	if handed := h.TakeHanded(); len(handed) != 1 || !handed[0].Run.Quiet || handed[0].Missed != 2 {
		t.Errorf("what waited is recorded as skipped: got %+v", handed)
	}
	h.Backdate(3 * time.Hour)
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Etc/UTC"})
	if handed := h.TakeHanded(); len(handed) != 1 || handed[0].Run.Quiet || handed[0].Missed != 2 {
		t.Errorf("what waited is handed out when the hours are lifted: got %+v", handed)
	}
	if schedulestest.One[bool](h, `SELECT bool_or(c.due_at <> c.next_at) FROM cohort c JOIN member m ON m.cohort_id = c.id`) {
		t.Error("it sleeps on")
	}
}
