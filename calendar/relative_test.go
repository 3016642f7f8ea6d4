package calendar

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// relativeOracle computes relative times by the standard library's wall clock around one transition of a zone. It knows the offsets
// before and after the transition, and tries both.
type relativeOracle struct {
	loc           *time.Location
	before, after int64
}

func newRelativeOracle(loc *time.Location, transition int64) relativeOracle {
	o := relativeOracle{loc: loc}
	o.before, o.after = o.offset(transition-1), o.offset(transition)
	return o
}

func (o relativeOracle) offset(at int64) int64 {
	_, off := time.Unix(at, 0).In(o.loc).Zone()
	return int64(off)
}

// showing returns the instants at which the clock shows a wall time, in order. There are none in a gap.
func (o relativeOracle) showing(w int64) []int64 {
	var list []int64
	for _, off := range []int64{o.before, o.after} {
		if at := w - off; o.offset(at) == off {
			list = append(list, at)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// first returns the first instant that shows a wall time. In a gap it uses the offset before the gap.
func (o relativeOracle) first(w int64) int64 {
	if list := o.showing(w); len(list) > 0 {
		return list[0]
	}
	return w - o.before
}

// relativeShape is a relative time near a transition.
type relativeShape struct {
	wall   bool  // to is a wall time
	to     int64 // seconds after the transition: of the instant, or of the wall time that the clock showed before it
	offset int64
	civil  bool
	days   int
	at     int
	dst    DST
}

// spec returns the shape as a client writes it, and the instants that it names.
func (s relativeShape) spec(o relativeOracle, zone string, transition int64) (Spec, []Tick) {
	r, m := Relative{}, transition+s.to
	r.To = time.Unix(m, 0).UTC().Format("2006-01-02T15:04:05Z")
	if s.wall {
		w := m + o.before
		r.To = time.Unix(w, 0).UTC().Format("2006-01-02T15:04:05")
		m = o.first(w)
	}
	spec := Spec{Timezone: zone, DST: s.dst}
	if !s.civil {
		r.Offset = fmt.Sprintf("%ds", s.offset)
		spec.Relative = []Relative{r}
		return spec, []Tick{{At: time.Unix(m+s.offset, 0).UTC()}}
	}
	r.Days, r.At = &s.days, fmt.Sprintf("%02d:%02d:%02d", s.at/3600, s.at/60%60, s.at%60)
	spec.Relative = []Relative{r}
	y, month, d := time.Unix(m, 0).In(o.loc).Date()
	return spec, s.civilTicks(o, time.Date(y, month, d+s.days, 0, 0, s.at, 0, time.UTC).Unix(), transition)
}

// civilTicks returns the ticks of a wall time by the policies of the spec.
func (s relativeShape) civilTicks(o relativeOracle, w, transition int64) []Tick {
	tick := func(at int64, note DSTNote) Tick { return Tick{At: time.Unix(at, 0).UTC(), DST: note} }
	list := o.showing(w)
	switch {
	case len(list) == 1:
		return []Tick{tick(list[0], DSTNone)}
	case len(list) == 2 && s.dst.Overlap == "last":
		return []Tick{tick(list[1], DSTOverlapSecond)}
	case len(list) == 2 && s.dst.Overlap == "both":
		return []Tick{tick(list[0], DSTOverlapFirst), tick(list[1], DSTOverlapSecond)}
	case len(list) == 2:
		return []Tick{tick(list[0], DSTOverlapFirst)}
	case s.dst.Gap == "skip":
		return nil
	case s.dst.Gap == "next_valid":
		return []Tick{tick(transition, DSTGap)}
	}
	return []Tick{tick(w-o.before, DSTGap)}
}

// compare compares one shape at one transition with the oracle. It reports what differs, or "".
func (s relativeShape) compare(at site) string {
	o := newRelativeOracle(Embedded().Location(at.zone), at.at)
	spec, want := s.spec(o, at.zone, at.at)
	timing, err := Compile(spec, Context{Zones: Embedded()})
	if err != nil {
		return fmt.Sprintf("%s at %d: %+v: %v", at.zone, at.at, spec, err)
	}
	var got []Tick
	for tick := range timing.All(time.Unix(0, 0)) {
		got = append(got, tick)
	}
	if !slices.Equal(got, want) {
		return fmt.Sprintf("%s at %d: %+v names %v, want %v", at.zone, at.at, spec, got, want)
	}
	again, err := FromCanonical(timing.Canonical(), Context{Zones: Embedded()})
	if err != nil || again.Hash() != timing.Hash() {
		return fmt.Sprintf("%s at %d: %+v reads back as %v", at.zone, at.at, spec, err)
	}
	return ""
}

// lonely returns the transitions that are more than five days from every other of their zone, because the oracle knows one at a time.
func lonely(list []site) []site {
	return slices.DeleteFunc(slices.Clone(list), func(s site) bool {
		z := Embedded().zone(s.zone)
		i := z.find(s.at)
		return s.at-z.starts[i-1] < 5*daySeconds || z.end(i)-s.at < 5*daySeconds
	})
}

func TestRelativeTimesAgreeWithTheStandardClockAtEveryTransition(t *testing.T) {
	t.Parallel()
	list := sites(t, *oracleFrom, *oracleTo)
	alone := lonely(list)
	if len(alone) < len(list)*99/100 {
		t.Errorf("%d of %d transitions are compared", len(alone), len(list))
	}
	if slowness > 2 { // with the race detector
		alone = alone[:len(alone)/slowness]
	}
	var shapes []relativeShape
	for _, dst := range []DST{{}, {"skip", "both"}, {"next_valid", "last"}} {
		for _, to := range []int64{-1, 0, 1, 1800, 3599, 3600, -1800} {
			shapes = append(shapes, relativeShape{wall: true, to: to, offset: -86400, dst: dst})
			for _, days := range []int{-1, 0, 1} {
				shapes = append(shapes, relativeShape{wall: days != 0, to: to - int64(days)*daySeconds, civil: true, days: days, at: 2*3600 + 1800, dst: dst})
			}
		}
	}
	for part := range 4 {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			for i := part; i < len(alone); i += 4 {
				for _, s := range shapes {
					// The time of day is one that the transition skips or repeats, in every zone.
					o := newRelativeOracle(Embedded().Location(alone[i].zone), alone[i].at)
					s.at = int(floorMod(alone[i].at+min(o.before, o.after)+1800, daySeconds))
					if differs := s.compare(alone[i]); differs != "" {
						t.Error(differs)
					}
				}
			}
		})
	}
}

func TestRelativeTimesAgreeWithTheStandardClock(t *testing.T) {
	t.Parallel()
	list := lonely(sites(t, *oracleFrom, *oracleTo))
	rapid.Check(t, func(t *rapid.T) {
		at := list[rapid.IntRange(0, len(list)-1).Draw(t, "site")]
		s := relativeShape{
			wall: rapid.Bool().Draw(t, "wall"), to: int64(rapid.IntRange(-2*daySeconds, 2*daySeconds).Draw(t, "to")),
			civil: rapid.Bool().Draw(t, "civil"), days: rapid.IntRange(-2, 2).Draw(t, "days"), at: rapid.IntRange(0, daySeconds-1).Draw(t, "at"),
			offset: int64(rapid.IntRange(-maxRelativeDays*daySeconds, maxRelativeDays*daySeconds).Draw(t, "offset")),
			dst: DST{rapid.SampledFrom([]string{"", "auto", "skip", "next_valid", "shift_forward"}).Draw(t, "gap"),
				rapid.SampledFrom([]string{"", "auto", "first", "last", "both"}).Draw(t, "overlap")},
		}
		if differs := s.compare(at); differs != "" {
			t.Fatal(differs)
		}
	})
}

func TestRelativeDaysCountFromTheDateThatTheZoneShows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		zone string
		r    Relative
		want string
	}{
		{"America/New_York", Relative{To: "2026-11-20T15:00:00Z", Days: new(3), At: "10:00"}, "2026-11-23T15:00:00Z"},
		{"Asia/Tokyo", Relative{To: "2026-11-20T15:00:00Z", Days: new(3), At: "10:00"}, "2026-11-24T01:00:00Z"}, // it is the 21st in Tokyo
		{"America/New_York", Relative{To: "2026-12-24T18:00:00", Offset: "-24h"}, "2026-12-23T23:00:00Z"},
		{"America/New_York", Relative{To: "2026-03-08T12:00:00", Offset: "-1d"}, "2026-03-07T16:00:00Z"}, // 24 hours, over a day of 23
		{"America/New_York", Relative{To: "2026-03-08T12:00:00", Days: new(-1), At: "12:00"}, "2026-03-07T17:00:00Z"},
		{"Pacific/Apia", Relative{To: "2011-12-30T10:00:00", Days: new(0), At: "12:00"}, "2011-12-30T22:00:00Z"}, // the zone skips the 30th: the 31st
	} {
		timing := mustCompile(t, Spec{Timezone: c.zone, Relative: []Relative{c.r}})
		tick, ok := timing.Next(time.Unix(0, 0))
		if got := tick.At.Format(time.RFC3339); !ok || got != c.want {
			t.Errorf("%s %+v: got %s, want %s", c.zone, c.r, got, c.want)
		}
		if _, more := timing.Next(tick.At); more {
			t.Errorf("%s %+v: it fires again", c.zone, c.r)
		}
	}
}
