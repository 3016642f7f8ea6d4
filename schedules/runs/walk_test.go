package runs_test

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/runs"
)

func TestWalkComesToEachMemberOnceAndNeverEarly(t *testing.T) {
	t.Parallel()
	timing, err := calendar.Compile(calendar.Spec{Cron: calendar.StringList{"*/5 * * * *"}, Jitter: "2m"}, calendar.Context{})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(300*rapid.Int64Range(5_000_000, 6_000_000).Draw(t, "at"), 0).UTC()
		run := runs.Begin(timing, at, at, "last")
		walk, ok := runs.WalkOf(timing, run, rapid.StringN(1, 8, 8).Draw(t, "workflow"))
		if !ok {
			t.Fatal("there is no walk")
		}
		phases := rapid.SliceOfNDistinct(rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64})), 0, 40, rapid.ID).Draw(t, "phases")
		slices.Sort(phases)
		var cursor, cursorID *int64
		visited := map[int64]time.Time{}
		now := at
		for range 1000 {
			leg := walk.Leg(cursor, cursorID, now)
			for _, s := range phases {
				if (s > leg.After || s == leg.After && 7 > leg.AfterID) && s <= leg.Upto {
					if walk.Due(s).After(now.Add(time.Microsecond)) {
						t.Fatalf("%d is due at %s, and was visited at %s", s, walk.Due(s), now)
					}
					if _, twice := visited[s]; twice {
						t.Fatalf("%d was visited twice", s)
					}
					visited[s] = now
				}
			}
			if !leg.Last {
				cursor, cursorID = new(int64(runs.Lowest)), new(int64(-1))
				continue
			}
			cursor, cursorID = new(leg.Upto), new(int64(math.MaxInt64))
			next, ahead := first(phases, walk.Rest(leg))
			if !ahead {
				break
			}
			if walk.Passed(*cursor, *cursorID, next, 7) {
				t.Fatalf("%d is ahead, and passed", next)
			}
			now = walk.Due(next).Add(time.Duration(rapid.Int64Range(1, 20_000_000).Draw(t, "late")) * time.Microsecond)
		}
		if len(visited) != len(phases) {
			t.Fatalf("%d of %d were visited", len(visited), len(phases))
		}
		for s := range visited {
			if due := walk.Due(s); due.Before(at) || !due.Before(at.Add(2*time.Minute)) {
				t.Fatalf("%d is due at %s", s, due)
			}
		}
	})
}

func first(phases []int64, ranges [][2]int64) (int64, bool) {
	for _, r := range ranges {
		for _, s := range phases {
			if cmp.Compare(s, r[0]) >= 0 && s <= r[1] {
				return s, true
			}
		}
	}
	return 0, false
}
