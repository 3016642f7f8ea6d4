package calendars

import (
	"encoding/json"
	"hash/fnv"
	"iter"
	"sync/atomic"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
)

// Zone is a time zone as it is now.
type Zone struct {
	Timezone     string      `json:"timezone"`
	Offset       string      `json:"offset"` // from UTC, such as -05:00
	Abbreviation string      `json:"abbreviation"`
	NextChange   *ZoneChange `json:"next_change"` // of the offset; null: the rules know of none
}

// ZoneChange is the moment from which a zone has another offset.
type ZoneChange struct {
	At     time.Time `json:"at"`
	Offset string    `json:"offset"`
}

// ZoneList are all zones, by name, of the tz database that schedules are timed by.
type ZoneList struct {
	TZData string `json:"tzdata"`
	Items  []Zone `json:"items"`

	revision int64 // of the members above
}

// Transition is a moment at which the clock or the name of a zone changes.
type Transition struct {
	At           time.Time `json:"at"`
	Before       string    `json:"before"` // the offsets
	After        string    `json:"after"`
	Abbreviation string    `json:"abbreviation"` // from then on
}

// ZoneTransitions are the changes of a zone in a range of time.
type ZoneTransitions struct {
	Timezone    string       `json:"timezone"`
	TZData      string       `json:"tzdata"`
	Transitions []Transition `json:"transitions"`
}

// listed is a list of zones that is right from one moment on and before another.
type listed struct {
	zones       *calendar.Zones
	from, until time.Time
	list        ZoneList
}

var lastList atomic.Pointer[listed]

// ListZones returns all zones as of a moment. Between two changes of any zone it answers the same list.
func ListZones(now time.Time) ZoneList {
	zones := calendar.InForce()
	if last := lastList.Load(); last != nil && last.zones == zones && !now.Before(last.from) && now.Before(last.until) {
		return last.list
	}
	l := &listed{zones: zones, from: now, until: now.Add(24 * time.Hour), list: ZoneList{TZData: zones.Version()}}
	for _, name := range zones.Names() {
		local := now.In(zones.Location(name))
		z := Zone{Timezone: name, Offset: offset(local)}
		z.Abbreviation, _ = local.Zone()
		if next, ok := nextChange(local); ok {
			z.NextChange = &ZoneChange{next.UTC(), offset(next)}
			if next.Before(l.until) {
				l.until = next
			}
		}
		l.list.Items = append(l.list.Items, z)
	}
	l.list.revision = revisionOf(l.list)
	lastList.Store(l)
	return l.list
}

// revisionOf returns the version of an answer: a hash of its JSON. The answer changes with the tz database, and when a clock changes.
func revisionOf(answer any) int64 {
	b, err := json.Marshal(answer)
	if err != nil {
		panic(err) // zones have only texts and times
	}
	h := fnv.New64a()
	_, _ = h.Write(b) // a hash returns no error
	return int64(h.Sum64() >> 1)
}

// listAhead is how far ahead the next change of a zone is looked for. Zones that change at all change each year.
const listAhead = 3 * 366 * 24 * time.Hour

// nextChange returns the first moment after at from which the zone of at has another offset.
func nextChange(at time.Time) (next time.Time, ok bool) {
	for next := range changes(at.Truncate(time.Second), at.Add(listAhead)) {
		if offset(next) != offset(at) {
			return next, true
		}
	}
	return next, false
}

// changes yields the moments after one whole second and before another time from which the zone has another offset or another name. It
// asks the clock day by day: time.Time.ZoneBounds finds no end of a season in zones whose winter time is the one that is saved, such
// as Europe/Dublin.
func changes(after, to time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for at := after; at.Before(to); {
			next := at.Add(24 * time.Hour)
			if alike(at, next) {
				at = next
				continue
			}
			for next.Sub(at) > time.Second {
				if middle := at.Add(next.Sub(at) / 2).Truncate(time.Second); alike(at, middle) {
					at = middle
				} else {
					next = middle
				}
			}
			if at = next; !at.Before(to) || !yield(at) {
				return
			}
		}
	}
}

func alike(a, b time.Time) bool {
	name, offset := a.Zone()
	other, otherOffset := b.Zone()
	return name == other && offset == otherOffset
}

// offset writes the offset of a moment in its zone.
func offset(local time.Time) string {
	if _, seconds := local.Zone(); seconds%60 != 0 {
		return local.Format("-07:00:00")
	}
	return local.Format("-07:00")
}

// TransitionsOf returns the changes of a zone from one moment on and before another.
func TransitionsOf(name string, from, to time.Time) (ZoneTransitions, error) {
	zones := calendar.InForce()
	location := zones.Location(name)
	if location == nil {
		return ZoneTransitions{}, fault.NotFound("no time zone %q in the tz database %s", name, zones.Version())
	}
	out := ZoneTransitions{Timezone: name, TZData: zones.Version(), Transitions: []Transition{}}
	first := from.Add(-time.Nanosecond).Truncate(time.Second).In(location)
	for at := range changes(first, to.In(location)) {
		change := Transition{At: at.UTC(), Before: offset(at.Add(-time.Second)), After: offset(at)}
		change.Abbreviation, _ = at.Zone()
		out.Transitions = append(out.Transitions, change)
	}
	return out, nil
}
