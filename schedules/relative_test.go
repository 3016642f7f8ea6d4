package schedules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/schedules/subjects"
)

// The times that have passed are dropped. The others follow the zone of the key, and the rule of 20 hours does not apply to them.
func TestRelativeTimesToComeFollowTheZone(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Asia/Tokyo"})
	now := time.Now().UTC()
	to := now.Format(time.RFC3339)
	made := h.Put("k", schedulestest.Spec(calendar.Spec{Timezone: "@subject", Relative: []calendar.Relative{
		{To: to, Days: new(-3), At: "10:00"}, {To: to, Days: new(9), At: "10:00"}, {To: to, Offset: "48h"},
	}}))
	civil := func(zone string) time.Time {
		loc := calendar.InForce().Location(zone)
		y, m, d := now.In(loc).Date()
		return time.Date(y, m, d+9, 10, 0, 0, 0, loc).UTC()
	}
	elapsed := now.Truncate(time.Second).Add(48 * time.Hour)
	want := func(s schedules.Schedule, zone string) {
		t.Helper()
		if len(s.Upcoming) != 2 || !s.Upcoming[0].Equal(elapsed) || !s.Upcoming[1].Equal(civil(zone)) {
			t.Errorf("got %v, want %v and %v", s.Upcoming, elapsed, civil(zone))
		}
	}
	want(made, "Asia/Tokyo")
	h.PutSubject("k", subjects.SubjectParams{Timezone: "America/Los_Angeles"})
	want(h.Get("k"), "America/Los_Angeles")
	if n := schedulestest.One[int](h, `SELECT count(*)::int FROM schedule_state WHERE rezoned_at IS NOT NULL`); n != 0 {
		t.Errorf("%d are rezoned", n)
	}
}

func TestFaultsOfRelativeTimesAreLocated(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	for _, c := range []struct{ code, body, pointer string }{
		{"time_syntax", `{"spec":{"relative":[{"to":"soon","offset":"1h"}]}}`, "/spec/relative/0/to"},
		{"duration_syntax", `{"spec":{"relative":[{"to":"2090-01-01T00:00:00Z","offset":"1 hour"}]}}`, "/spec/relative/0/offset"},
		{"time_syntax", `{"spec":{"relative":[{"to":"2090-01-01T00:00:00Z","days":1,"at":"25:00"}]}}`, "/spec/relative/0/at"},
		{"relative_form", `{"spec":{"relative":[{"to":"2090-01-01T00:00:00Z"}]}}`, "/spec/relative/0"},
	} {
		answer := e.Want(422, c.code, "PUT", schedulestest.SchedulePath, c.body)
		if !strings.Contains(answer.Body, `"`+c.pointer+`"`) {
			t.Errorf("%s: got %s", c.body, answer.Body)
		}
	}
	e.Want(422, "never_fires", "PUT", schedulestest.SchedulePath, `{"spec":{"relative":[{"to":"2020-01-01T00:00:00","offset":"-1h"}]}}`)
	e.Want(201, "", "PUT", schedulestest.SchedulePath, `{"spec":{"timezone":"Europe/Berlin","relative":[{"to":"2090-01-01T00:00:00","offset":"-1d"}]}}`)
	e.Want(200, "", "PATCH", schedulestest.SchedulePath, `{"spec":{"relative":[{"to":"2090-01-01T00:00:00","days":-1,"at":"09:30"}]}}`)
}
