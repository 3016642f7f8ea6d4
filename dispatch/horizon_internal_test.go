package dispatch

import (
	"testing"
	"time"
)

func TestHorizonWaitsForTransactionsThatWroteBeforeIt(t *testing.T) {
	t.Parallel()
	var h horizon
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	check := func(what string, want time.Time) {
		t.Helper()
		if !want.IsZero() {
			want = want.Add(-horizonMargin)
		}
		if !h.at.Equal(want) {
			t.Errorf("%s: got %v, want %v", what, h.at, want)
		}
	}
	h.note(mark{at(0), 100}, 90) // transaction 90 is open
	check("nothing is known", time.Time{})
	h.note(mark{at(1), 110}, 90)
	check("it is still open", time.Time{})
	h.note(mark{at(2), 120}, 105)
	check("all that were open at 0 s have ended", at(0))
	h.note(mark{at(3), 130}, 130)
	check("all have ended", at(2))
	h.note(mark{at(4), 140}, 130)
	h.note(mark{at(66), 150}, 130)
	check("one that is open for a minute is not waited for", at(4))
	if h.era != 0 {
		t.Errorf("the era is %d", h.era)
	}
	h.note(mark{at(60), 160}, 160)
	check("the clock stepped back", time.Time{})
	if h.era != 1 {
		t.Errorf("the era is %d after the clock stepped back", h.era)
	}
}

func TestFloorRisesToTheHorizonAndComesDownForWhatIsBelow(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var h horizon
	var f floor
	h.at = at(10)
	f.look(&h, false).found(at(20))
	if !f.at.Equal(at(10)) {
		t.Errorf("above the horizon: got %v", f.at)
	}
	h.at = at(30)
	f.look(&h, false).found(at(20))
	if !f.at.Equal(at(20)) {
		t.Errorf("above a live entry: got %v", f.at)
	}
	before := f.look(&h, false)
	f.look(&h, true).found(at(5)) // a full look finds an entry that should not be there
	if !f.at.Equal(at(5)) {
		t.Errorf("a full look: got %v", f.at)
	}
	before.found(at(25)) // began above that entry
	if !f.at.Equal(at(5)) {
		t.Errorf("a reading that began above the floor raised it: got %v", f.at)
	}
	h.era++
	if l := f.look(&h, false); !l.from.IsZero() {
		t.Errorf("a floor of another era counts: %v", l.from)
	}
}

func TestFullLooksTakeTurnsWhereTheyAreSlow(t *testing.T) {
	t.Parallel()
	var f fullLooks
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	end := func(took time.Duration) {
		f.ended(now, now.Add(took))
		now = f.next
	}
	seen := map[int]bool{}
	count := func() (n int) {
		full, _ := f.begin(now, 4)
		for i, is := range full {
			if is {
				n, seen[i] = n+1, true
			}
		}
		return n
	}
	for range 8 {
		count()
		end(time.Millisecond)
	}
	if n := count(); n != 4 {
		t.Errorf("fast full looks cover %d of 4 parts", n)
	}
	for range 8 {
		count()
		end(time.Second)
	}
	clear(seen)
	for range 4 {
		if n := count(); n != 1 {
			t.Errorf("a slow full look covers %d parts", n)
		}
		end(time.Second)
	}
	if len(seen) != 4 {
		t.Errorf("only parts %v had a turn", seen)
	}
	if _, any := f.begin(f.next.Add(-time.Millisecond), 4); any {
		t.Error("a full look comes before its time")
	}
}
