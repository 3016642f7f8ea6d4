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
	h.note(mark{clock: at(0), next: 100}, 90) // transaction 90 is open
	check("nothing is known", time.Time{})
	h.note(mark{clock: at(1), next: 110}, 90)
	check("it is still open", time.Time{})
	h.note(mark{clock: at(2), next: 120}, 105)
	check("all that were open at 0 s have ended", at(0))
	h.note(mark{clock: at(3), next: 130}, 130)
	check("all have ended", at(2))
	h.note(mark{clock: at(4), next: 140}, 130)
	h.note(mark{clock: at(66), next: 150}, 130)
	check("one that is open for a minute is not waited for", at(4))
	if h.era != 0 {
		t.Errorf("the era is %d", h.era)
	}
	h.note(mark{clock: at(60), next: 160}, 160)
	check("the clock stepped back", time.Time{})
	if h.era != 1 {
		t.Errorf("the era is %d after the clock stepped back", h.era)
	}
}

// Below the number of settled chunks no open transaction can commit one, however long it is open.
func TestNumbersOfChunksWaitForEveryTransaction(t *testing.T) {
	t.Parallel()
	var h horizon
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server := now
	read := func(oldest, next, chunk int64) (settled int64) {
		now = now.Add(time.Minute)
		h.note(mark{clock: now, next: next, server: server, numbers: numbers{chunk: chunk}}, oldest)
		settled, _ = h.chunks()
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

// A window is narrow where there are many entries, and one window covers all where there are few. A round comes past every moment.
func TestSearchReadsWindowsOfAboutAsManyEntries(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := horizon{at: start.Add(time.Hour)}
	var s search
	now := start
	round := func(entries func(window) int) (windows, most int) {
		t.Helper()
		at := h.at
		for {
			w, is := s.begin(&h, now)
			if !is {
				t.Fatal("no window comes in time")
			}
			if !w.to.Equal(at) {
				t.Fatalf("a window ends at %v, and the one before began at %v", w.to, at)
			}
			n := entries(w)
			windows, most, at = windows+1, max(most, n), w.from
			s.ended(w, n, now)
			if _, is := s.begin(&h, now); is {
				t.Fatal("the next window comes at once")
			}
			now = now.Add(searchEvery)
			if w.from.IsZero() {
				return windows, most
			}
		}
	}
	none := func(window) int { return 0 }
	round(none)
	if n, _ := round(none); n != 1 {
		t.Errorf("a round without entries takes %d windows", n)
	}
	dense := func(w window) int { // 1,000 a second for an hour
		from := w.from
		if from.Before(start) {
			from = start
		}
		return int(max(0, w.to.Sub(from).Seconds()*1000))
	}
	round(dense)
	if n, most := round(dense); most > 2*searchMost || n > 4*3600*1000/searchMost*2 {
		t.Errorf("%d windows, with %d entries at most", n, most)
	}
}
