package schedulestest

import (
	"fmt"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/subjects"
)

// PutSubject stores the profile of a key of acme.
func (h *Fixture) PutSubject(key string, p subjects.SubjectParams) subjects.Subject {
	h.T.Helper()
	k, _, _, err := h.Subjects.PutSubject(h.T.Context(), h.Acme, key, p, "ann", version.Precondition{})
	if err != nil {
		h.T.Fatalf("put key %q: %v", key, err)
	}
	return k
}

// FollowingSubject returns the parameters of a schedule with the zone of its key.
func FollowingSubject(expressions ...string) schedules.Params {
	return Spec(calendar.Spec{Timezone: "@subject", Cron: calendar.StringList(expressions)})
}

// NextOf returns the first time of a cron expression in a zone after now.
func (h *Fixture) NextOf(zone, cron string) time.Time {
	h.T.Helper()
	t, err := calendar.Compile(calendar.Spec{Timezone: zone, Cron: calendar.StringList{cron}}, calendar.Context{})
	if err != nil {
		h.T.Fatal(err)
	}
	tick, _ := t.Next(time.Now())
	return tick.At
}

// Follow stores n schedules with the zone of a key, each in a workflow of its own.
func (h *Fixture) Follow(key string, n int) {
	h.T.Helper()
	for i := range n {
		if _, _, err := h.Schedules.Put(h.T.Context(), policy.Name{Tenant: h.Acme, Workflow: fmt.Sprint("w", i), Key: key}, FollowingSubject("0 8 * * *"), "ann", version.Precondition{}); err != nil {
			h.T.Fatal(err)
		}
	}
}
