package schedules_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/schedules/subjects"
)

// around is quiet hours that now lies in, far from both ends.
func around(then string) *subjects.QuietHours {
	now := time.Now().UTC()
	return &subjects.QuietHours{From: now.Add(-10 * time.Hour).Format("15:04"), To: now.Add(10 * time.Hour).Format("15:04"), Then: then}
}

func TestACohortSleepsUntilQuietHoursEnd(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.putKey("k", subjects.KeyParams{Timezone: "Etc/UTC", QuietHours: around("")})
	made := h.put("k", following("0 * * * *"))
	if wait := one[time.Duration](h, `SELECT due_at - next_at FROM cohort`); wait < 8*time.Hour || wait > 11*time.Hour {
		t.Errorf("it is due %s after its nominal time", wait)
	}
	if got := time.Until(*made.NextAt); got > time.Hour {
		t.Errorf("next_at is not nominal: in %s", got)
	}
	h.back(3 * time.Hour)
	if got := h.get("k"); got.NextAt.After(time.Now()) || len(h.takeHanded()) != 0 {
		t.Errorf("the one that waits is the next: got %s", got.NextAt)
	}
	h.put("k", following("30 * * * *"))
	if handed := h.takeHanded(); len(handed) != 1 || !handed[0].Run.Quiet || handed[0].Missed != 2 {
		t.Errorf("what waited is recorded as skipped: got %+v", handed)
	}
	h.back(3 * time.Hour)
	h.putKey("k", subjects.KeyParams{Timezone: "Etc/UTC"})
	if handed := h.takeHanded(); len(handed) != 1 || handed[0].Run.Quiet || handed[0].Missed != 2 {
		t.Errorf("what waited is handed out when the hours are lifted: got %+v", handed)
	}
	if one[bool](h, `SELECT bool_or(c.due_at <> c.next_at) FROM cohort c JOIN member m ON m.cohort_id = c.id`) {
		t.Error("it sleeps on")
	}
}
