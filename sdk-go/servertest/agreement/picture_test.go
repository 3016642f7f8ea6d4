package agreement

import (
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

type name struct{ workflow, key string }

func (n name) String() string { return n.workflow + "/" + n.key }

// picture is a schedule and its history as both servers show them.
type picture struct {
	Status   string
	Version  int64
	Zone     string
	Upcoming []time.Time
	LastAt   time.Time
	Stats    carillon.Stats
	History  []line
}

// line is one tick of a history.
type line struct {
	At, Last   time.Time
	State      string
	Reason     string
	Cause      string
	DST        string
	Missed     int64
	Occurrence int64
	Version    int64
}

func lineOf(r carillon.TickRecord) line {
	l := line{At: r.Timestamp.UTC(), State: r.State, Reason: r.Reason, Cause: r.Cause, DST: r.DST, Missed: r.MissedCount, Version: r.ScheduleVersion}
	if r.LastTimestamp != nil {
		l.Last = r.LastTimestamp.UTC()
	}
	if r.Occurrence != nil {
		l.Occurrence = *r.Occurrence
	}
	return l
}

func pictureOf(s carillon.Schedule) picture {
	p := picture{Status: s.Status, Version: s.Version, Zone: s.TimezoneInForce, Upcoming: s.Upcoming, Stats: s.Stats}
	if s.LastAt != nil {
		p.LastAt = s.LastAt.UTC()
	}
	return p
}

// compare returns how the picture of a schedule differs between both servers.
func (w *world) compare(of name) string {
	stored, err := w.Schedules.Get(w.T.Context(), w.Tenant, of.workflow, of.key)
	if err != nil {
		w.T.Fatal(err)
	}
	real := pictureOf(body[carillon.Schedule](w, stored))
	for _, t := range w.History(of.workflow, of.key) {
		real.History = append(real.History, lineOf(body[carillon.TickRecord](w, t)))
	}
	ours, err := w.client.Schedules.Get(w.T.Context(), of.workflow, of.key)
	if err != nil {
		w.T.Fatal(err)
	}
	fake := pictureOf(ours)
	for r, err := range w.client.Schedules.Ticks(w.T.Context(), of.workflow, of.key, carillon.TickFilter{PageSize: 1000}) {
		if err != nil {
			w.T.Fatal(err)
		}
		if fake.History = append(fake.History, lineOf(r)); len(fake.History) == 1000 {
			break // the server's page ends here
		}
	}
	slices.Reverse(fake.History)
	if diff := cmp.Diff(real, fake); diff != "" {
		return "(-server +carillontest):\n" + diff
	}
	return ""
}
