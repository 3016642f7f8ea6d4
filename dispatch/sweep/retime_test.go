package sweep_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"
)

// aroundToday are yesterday, today and tomorrow: whenever a test runs, its seconds are in them.
func aroundToday() (days []string) {
	for n := -1; n <= 1; n++ {
		days = append(days, time.Now().UTC().AddDate(0, 0, n).Format(time.DateOnly))
	}
	return days
}

// A calendar is edited again and again while schedules that name it fire each second: each second has a tick where it was
// not left out, and none where it was.
func TestEditsOfACalendarWhileItsSchedulesFire(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.PutCalendar()
	p := schedules.Params{Spec: dispatchtest.OffSpec("* * * * * *"), Policy: &policy.Policy{Overlap: "allow_all", Missed: "all"}}
	keys := []string{"a", "b", "c"}
	for _, key := range keys {
		h.Put("w", key, p)
	}
	p.Spec.MaxTicks = new(4)
	h.Put("w", "limited", p)
	h.Start(h.Dispatch)
	type interval struct {
		from, to time.Time
		off      bool
	}
	begun := h.At(`SELECT clock_timestamp()`)
	known := []interval{{from: begun}}
	random := rand.New(rand.NewPCG(uint64(begun.UnixNano()), 1))
	for i := range 7 {
		wait := h.At(`SELECT clock_timestamp()`).Add(time.Duration(200+random.IntN(1800)) * time.Millisecond)
		dispatchtest.Until(t, "a moment has gone, and the last edit is in force", func() bool { // of two edits between two sweeps the later one decides
			return h.At(`SELECT clock_timestamp()`).After(wait) && h.Number(`SELECT count(*) FROM cohort WHERE retime_at IS NOT NULL`) == 0
		})
		off := i%2 == 0
		known[len(known)-1].to = h.At(`SELECT clock_timestamp()`)
		if off {
			h.PutCalendar(aroundToday()...)
		} else {
			h.PutCalendar()
		}
		known = append(known, interval{from: h.At(`SELECT clock_timestamp()`), off: off})
	}
	h.PutCalendar()
	known = known[:len(known)-1]
	last := h.At(`SELECT clock_timestamp()`)
	limited := func() int {
		return h.Number(`SELECT count(*) FROM tick t JOIN schedule s ON s.id = t.schedule_id WHERE s.key = 'limited'`)
	}
	dispatchtest.Until(t, "all is swept and opened", func() bool { // the seconds that were not left out may have been fewer than it may have
		return h.Number(`SELECT count(*) FROM tick WHERE nominal_at > $1`, last.Add(time.Second)) >= len(keys) && limited() >= 4 && len(h.Chunks()) == 0
	})
	for _, key := range keys {
		got := map[int64]bool{}
		for _, one := range h.History("w", key) {
			got[one.Timestamp.Unix()] = true
		}
		for _, k := range known {
			for s := k.from.Truncate(time.Second).Add(time.Second); s.Before(k.to); s = s.Add(time.Second) {
				if got[s.Unix()] == k.off {
					t.Errorf("%s: %s has a tick: %t, and was left out: %t", key, s, got[s.Unix()], k.off)
				}
			}
		}
	}
	if n := limited(); n != 4 {
		t.Errorf("one that is limited to 4 ticks has %d", n)
	}
	if n := h.Number(`SELECT count(*) FROM cohort WHERE retime_at IS NOT NULL`); n != 0 {
		t.Errorf("%d cohorts are still to be retimed", n)
	}
	if n := h.Number(`SELECT count(DISTINCT since) FROM calendar`); n < 1 {
		t.Errorf("%d editions", n)
	}
}

func TestATickThatWasSweptBeforeAnEditIsExcluded(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	if err := h.Dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.PutCalendar()
	h.Put("w", "k", schedules.Params{Spec: dispatchtest.OffSpec("* * * * * *"), Policy: &policy.Policy{Overlap: "allow_all"}})
	h.Put("w", "other", dispatchtest.EverySecond())
	shard := int16(h.Number(`SELECT shard FROM schedule WHERE key = 'k'`))
	dispatchtest.Until(t, "a chunk is swept", func() bool {
		if _, err := h.Dispatch.SweepOnce(t.Context(), shard); err != nil {
			t.Fatal(err)
		}
		return h.Number(`SELECT count(*) FROM chunk k JOIN schedule s ON s.shard = k.shard AND s.key = 'k' WHERE s.id BETWEEN first_id AND last_id`) > 0
	})
	h.PutCalendar(aroundToday()...)
	for _, id := range h.Chunks() {
		if err := h.Dispatch.Open(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	ticks := h.History("w", "k")
	if len(ticks) == 0 {
		t.Fatal("no tick is recorded")
	}
	for _, one := range ticks {
		if one.State != "skipped" || one.Reason != "excluded" {
			t.Errorf("got %s %s", one.State, one.Reason)
		}
	}
	for _, one := range h.History("w", "other") {
		if one.Reason == "excluded" {
			t.Errorf("one that names no calendar: got %+v", one)
		}
	}
	dispatchtest.Until(t, "the cohort has no time left today", func() bool {
		if _, err := h.Dispatch.SweepOnce(t.Context(), shard); err != nil {
			t.Fatal(err)
		}
		return h.Number(`SELECT count(*) FROM cohort WHERE calendars IS NOT NULL AND next_at < clock_timestamp() + interval '1 hour' OR retime_at IS NOT NULL`) == 0
	})
}

// A cohort that is behind by days is edited while it catches up: what was due before the first edit is swept as it was
// promised then, and what comes after is by the last one.
func TestABacklogIsSweptAsItWasPromised(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	if err := h.Dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	const back, ahead = 12, 12
	today := time.Now().UTC().Truncate(24 * time.Hour)
	day := func(n int) string { return today.AddDate(0, 0, n).Format(time.DateOnly) }
	draw := func(rt *rapid.T) (days []string) {
		for _, n := range rapid.SliceOfDistinct(rapid.IntRange(-back, ahead), rapid.ID[int]).Draw(rt, "days") {
			days = append(days, day(n))
		}
		return days
	}
	// Noon, as told by a zone in which it is always in the middle of the day of this test.
	hour := time.Now().UTC().Hour()
	at := (hour + 12) % 24
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		if runs++; runs > 40 {
			return
		}
		h.Exec(`TRUNCATE schedule, schedule_state, member, cohort, chunk, revision, label`)
		first := draw(rt)
		h.PutCalendar(first...)
		p := schedules.Params{Spec: dispatchtest.OffSpec("0 " + time.Date(2000, 1, 1, at, 0, 0, 0, time.UTC).Format("15") + " * * *"), Policy: &policy.Policy{Missed: "all"}}
		limit := rapid.IntRange(0, 15).Draw(rt, "max_ticks")
		if limit > 0 {
			p.Spec.MaxTicks = &limit
		}
		h.Put("w", "k", p)
		// It joined long ago, and nothing was swept since.
		timing, err := calendar.Compile(p.Spec, calendar.Context{Named: func(string) ([]calendar.Date, bool) { return datesOf(rt, first), true }})
		if err != nil {
			rt.Fatal(err)
		}
		joined := today.AddDate(0, 0, -back).Add(-time.Second) // at noon by our clock the first tick is at the midnight after it
		begin, ok := timing.Next(joined)
		if !ok {
			rt.Fatal("it never fires")
		}
		h.Exec(`UPDATE cohort SET next_at = $1, due_at = $1`, begin.At)
		h.Exec(`UPDATE member SET from_at = $1`, joined)
		if limit > 0 {
			last, _ := timing.Nth(begin.At, limit)
			h.Exec(`UPDATE member SET until_at = $1`, last.At)
		}
		shard := int16(h.Number(`SELECT shard FROM cohort`))
		sweep := func() {
			if _, err := h.Dispatch.SweepOnce(t.Context(), shard); err != nil {
				rt.Fatal(err)
			}
		}
		present := first
		for range rapid.IntRange(0, 3).Draw(rt, "edits") {
			for range rapid.IntRange(0, 6).Draw(rt, "sweeps") {
				sweep()
			}
			present = draw(rt)
			h.PutCalendar(present...)
		}
		for range 2*back + 6 {
			sweep()
		}
		now := h.At(`SELECT clock_timestamp()`)
		var want []time.Time
		var next time.Time
		for n := -back; n <= 400; n++ {
			tick := today.AddDate(0, 0, n).Add(time.Duration(at) * time.Hour)
			rule := first
			if tick.After(now) {
				rule = present
			}
			if slices.Contains(rule, day(n)) {
				continue
			}
			if tick.After(now) {
				next = tick
				break
			}
			want = append(want, tick)
		}
		if limit > 0 && len(want) > limit {
			want = want[:limit]
		}
		rows, _ := h.Pool.Query(t.Context(), `SELECT nominal_at FROM chunk ORDER BY nominal_at`) // CollectRows reports the error
		got, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
		if err != nil {
			rt.Fatal(err)
		}
		for i := range got {
			got[i] = got[i].UTC()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Fatalf("swept (-want +got):\n%s", diff)
		}
		if limit > 0 && len(want) == limit {
			return // over
		}
		if at := h.At(`SELECT next_at FROM cohort`); !at.Equal(next) {
			rt.Fatalf("next is %s, want %s", at, next)
		}
		if limit == 0 {
			return
		}
		left := limit - len(want)
		end := next
		for n := 0; n <= 400; n++ {
			tick := today.AddDate(0, 0, n).Add(time.Duration(at) * time.Hour)
			if tick.After(now) && !slices.Contains(present, day(n)) {
				if end = tick; left == 1 {
					break
				}
				left--
			}
		}
		if at := h.At(`SELECT until_at FROM member`); !at.Equal(end) {
			rt.Fatalf("it ends at %s, want %s: %d of %d are swept", at, end, len(want), limit)
		}
	})
}

func datesOf(rt *rapid.T, days []string) (dates []calendar.Date) {
	for _, text := range days {
		d, err := calendar.ParseDate(text)
		if err != nil {
			rt.Fatal(err)
		}
		dates = append(dates, d)
	}
	return dates
}
