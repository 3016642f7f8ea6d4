package cluster_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/cluster"
)

func TestHorizonWaitsForTransactionsThatWroteBeforeIt(t *testing.T) {
	t.Parallel()
	var h cluster.Horizon
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	check := func(what string, want time.Time) {
		t.Helper()
		if !want.IsZero() {
			want = want.Add(-cluster.HorizonMargin)
		}
		if !h.At.Equal(want) {
			t.Errorf("%s: got %v, want %v", what, h.At, want)
		}
	}
	h.Note(cluster.Mark{Clock: at(0), Next: 100}, 90) // transaction 90 is open
	check("nothing is known", time.Time{})
	h.Note(cluster.Mark{Clock: at(1), Next: 110}, 90)
	check("it is still open", time.Time{})
	h.Note(cluster.Mark{Clock: at(2), Next: 120}, 105)
	check("all that were open at 0 s have ended", at(0))
	h.Note(cluster.Mark{Clock: at(3), Next: 130}, 130)
	check("all have ended", at(2))
	h.Note(cluster.Mark{Clock: at(4), Next: 140}, 130)
	h.Note(cluster.Mark{Clock: at(66), Next: 150}, 130)
	check("one that is open for a minute is not waited for", at(4))
	if h.Era != 0 {
		t.Errorf("the era is %d", h.Era)
	}
	h.Note(cluster.Mark{Clock: at(60), Next: 160}, 160)
	check("the clock stepped back", time.Time{})
	if h.Era != 1 {
		t.Errorf("the era is %d after the clock stepped back", h.Era)
	}
}

// Below the number of settled chunks no open transaction can commit one, however long it is open.
func TestNumbersOfChunksWaitForEveryTransaction(t *testing.T) {
	t.Parallel()
	var h cluster.Horizon
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server := now
	read := func(oldest, next, chunk int64) (settled int64) {
		now = now.Add(time.Minute)
		h.Note(cluster.Mark{Clock: now, Next: next, Server: server, Numbers: cluster.Numbers{Chunk: chunk}}, oldest)
		settled, _ = h.Chunks()
		return settled
	}
	read(100, 100, 7)
	read(100, 100, 7)
	if n := read(100, 120, 9); n != 7 {
		t.Errorf("%d are settled where all have ended that took 7", n)
	}
	for range 5 {
		if n := read(119, 130, 20); n > 9 {
			t.Errorf("%d are settled while transaction 119 is open", n)
		}
	}
	read(130, 130, 20)
	if n := read(130, 130, 20); n != 20 {
		t.Errorf("%d are settled once it has ended", n)
	}
	server = now // another one took its place, and may lack what the first had committed
	if n := read(131, 131, 21); n != 0 {
		t.Errorf("%d are settled on another server", n)
	}
}

func TestFloorRisesToTheHorizonAndComesDownForWhatIsBelow(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var h cluster.Horizon
	var f cluster.Floor
	h.At = at(10)
	f.Look(&h, false).Found(at(20))
	if !f.At.Equal(at(10)) {
		t.Errorf("above the horizon: got %v", f.At)
	}
	h.At = at(30)
	f.Look(&h, false).Found(at(20))
	if !f.At.Equal(at(20)) {
		t.Errorf("above a live entry: got %v", f.At)
	}
	before := f.Look(&h, false)
	f.Look(&h, true).Found(at(5)) // a full look finds an entry that should not be there
	if !f.At.Equal(at(5)) {
		t.Errorf("a full look: got %v", f.At)
	}
	before.Found(at(25)) // began above that entry
	if !f.At.Equal(at(5)) {
		t.Errorf("a reading that began above the floor raised it: got %v", f.At)
	}
	h.Era++
	if l := f.Look(&h, false); !l.From.IsZero() {
		t.Errorf("a floor of another era counts: %v", l.From)
	}
}

// A window is narrow where there are many entries, and one window covers all where there are few. A round comes past every moment.
func TestSearchReadsWindowsOfAboutAsManyEntries(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := cluster.Horizon{At: start.Add(time.Hour)}
	var s cluster.Search
	now := start
	round := func(entries func(cluster.Window) int) (windows, most int) {
		t.Helper()
		at := h.At
		for {
			w, is := s.Begin(&h, now)
			if !is {
				t.Fatal("no window comes in time")
			}
			if !w.To.Equal(at) {
				t.Fatalf("a window ends at %v, and the one before began at %v", w.To, at)
			}
			n := entries(w)
			windows, most, at = windows+1, max(most, n), w.From
			s.Ended(w, n, now)
			if _, is := s.Begin(&h, now); is {
				t.Fatal("the next window comes at once")
			}
			now = now.Add(cluster.SearchEvery)
			if w.From.IsZero() {
				return windows, most
			}
		}
	}
	none := func(cluster.Window) int { return 0 }
	round(none)
	if n, _ := round(none); n != 1 {
		t.Errorf("a round without entries takes %d windows", n)
	}
	dense := func(w cluster.Window) int { // 1,000 a second for an hour
		from := w.From
		if from.Before(start) {
			from = start
		}
		return int(max(0, w.To.Sub(from).Seconds()*1000))
	}
	round(dense)
	if n, most := round(dense); most > 2*cluster.SearchMost || n > 4*3600*1000/cluster.SearchMost*2 {
		t.Errorf("%d windows, with %d entries at most", n, most)
	}
}
