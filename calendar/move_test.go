package calendar

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMovedTimesAgreeWithASet(t *testing.T) {
	t.Parallel()
	low := time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)
	high := low.AddDate(0, 1, 0)
	rapid.Check(t, func(r *rapid.T) {
		spec := Spec{
			Timezone: rapid.SampledFrom([]string{"UTC", "America/New_York", "Europe/Paris"}).Draw(r, "zone"),
			Cron:     rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"0 8 * * *", "30 2 * * *", "*/30 * * * *", "15 8 * * 1"}), 1, 2, rapid.ID[string]).Draw(r, "cron"),
		}
		base, err := Compile(spec, Context{})
		if err != nil {
			r.Fatal(err)
		}
		var named []int64
		for tick := range base.All(low.Add(-time.Second)) {
			if !tick.At.Before(high) {
				break
			}
			named = append(named, tick.At.Unix())
		}
		set := map[int64]bool{}
		for _, at := range named {
			set[at] = true
		}
		var moves []Move
		var to []int64
		for _, at := range rapid.SliceOfNDistinct(rapid.SampledFrom(named), 0, 6, rapid.ID[int64]).Draw(r, "at") {
			m := Move{time.Unix(at, 0), time.Unix(rapid.SampledFrom(named).Draw(r, "to")+rapid.SampledFrom([]int64{0, 1, 900}).Draw(r, "by"), 0)}
			moves = append(moves, m)
			delete(set, at)
			if m.To.Before(high) {
				to = append(to, m.To.Unix())
			}
		}
		for _, at := range to {
			set[at] = true
		}
		moves = append(moves, Move{low.Add(time.Second), low.Add(2 * time.Second)}) // of a time that is not named
		moved := base.Moved(moves)
		var want []int64
		for at := range set {
			want = append(want, at)
		}
		slices.Sort(want)
		checkTicks(r, moved, low.Unix(), high.Unix(), want)
		if got := moved.Count(low, high); got != len(want) {
			r.Fatalf("counted %d of %d", got, len(want))
		}
		again, err := FromCanonical(moved.Canonical(), Context{})
		if err != nil || !bytes.Equal(again.Canonical(), moved.Canonical()) || again.Hash() == base.Hash() {
			r.Fatalf("%s reads back as %v, %v", moved.Canonical(), again, err)
		}
		checkTicks(r, again, low.Unix(), high.Unix(), want)
		if moved.Moved(nil).Hash() != base.Hash() {
			r.Fatal("moved back, it is another timing")
		}
	})
}

func TestMoveHoldsWhereTheSpecNamesTheTime(t *testing.T) {
	t.Parallel()
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	spec := Spec{Cron: StringList{"0 8 * * *"}, EndAt: new("2027-01-05T08:00:00"), Exclude: &Exclude{Dates: []string{"2027-01-03"}}}
	timing := mustCompile(t, spec).Moved([]Move{
		{at("2027-01-02T08:00:00Z"), at("2027-01-03T09:00:00Z")}, // an exclusion is of what the spec names
		{at("2027-01-03T08:00:00Z"), at("2027-01-03T10:00:00Z")}, // not named
		{at("2027-01-05T08:00:00Z"), at("2027-01-05T09:00:00Z")}, // past the end
	})
	var got []string
	for tick := range timing.All(at("2027-01-01T08:00:00Z")) {
		got = append(got, tick.At.Format(time.RFC3339))
	}
	want := []string{"2027-01-03T09:00:00Z", "2027-01-04T08:00:00Z", "2027-01-05T08:00:00Z"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	delayed := mustCompile(t, Spec{Intervals: []Interval{{Every: "1h", Mode: "fixed_delay"}}})
	if delayed.Moved([]Move{{at("2027-01-02T08:00:00Z"), at("2027-01-03T09:00:00Z")}}).Hash() != delayed.Hash() {
		t.Error("a fixed delay was moved")
	}
}

func TestNthAgreesWithListing(t *testing.T) {
	t.Parallel()
	from := time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)
	for name, spec := range map[string]Spec{
		"cron":     {Timezone: "America/New_York", Cron: StringList{"30 2 * * *"}},
		"often":    {Timezone: "Europe/Paris", Cron: StringList{"*/15 * * * *"}},
		"seldom":   {Timezone: "Europe/Paris", Cron: StringList{"0 0 29 2 *"}},
		"elapsed":  {Intervals: []Interval{{Every: "90s"}}},
		"days":     {Timezone: "Europe/Paris", Intervals: []Interval{{Every: "3d"}}},
		"union":    {Cron: StringList{"0 8 * * *", "15 9 * * 1"}},
		"excluded": {Cron: StringList{"0 8 * * *"}, Exclude: &Exclude{Dates: []string{"2027-03-04"}}},
		"ends":     {Cron: StringList{"0 8 * * *"}, EndAt: new("2027-03-20T08:00:00")},
	} {
		base := mustCompile(t, spec)
		first, ok := base.Next(from)
		if !ok {
			t.Fatal(name)
		}
		for _, timing := range []*Timing{base, base.Moved([]Move{{first.At, first.At.Add(time.Minute)}})} {
			var list []Tick
			for tick := range timing.All(from.Add(-time.Second)) {
				if list = append(list, tick); len(list) == 60 {
					break
				}
			}
			for _, n := range []int{0, 1, 2, 3, 7, 20, 60} {
				got, ok := timing.Nth(from, n)
				if want := list[min(max(n, 1), len(list))-1]; !ok || got != want {
					t.Errorf("%s: the %dth is %v, %v, want %v", name, n, got, ok, want)
				}
			}
		}
	}
	if tick, ok := mustCompile(t, Spec{At: []string{"2026-01-01T00:00:00"}}).Nth(from, 3); ok {
		t.Errorf("got %v of none", tick)
	}
}

func TestShown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		zone, wall string
		want       []string
		skipped    time.Duration
		until      string
	}{
		{"Europe/Paris", "2026-03-29T08:00:00", []string{"2026-03-29T06:00:00Z"}, 0, ""},
		{"Europe/Paris", "2026-03-29T02:30:00", nil, time.Hour, "2026-03-29T01:00:00Z"},
		{"Europe/Paris", "2026-03-29T03:00:00", []string{"2026-03-29T01:00:00Z"}, 0, ""},
		{"Europe/Paris", "2026-10-25T02:30:00", []string{"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"}, 0, ""},
		{"America/New_York", "2026-03-08T02:00:00", nil, time.Hour, "2026-03-08T07:00:00Z"},
		{"America/New_York", "2026-11-01T01:59:59", []string{"2026-11-01T05:59:59Z", "2026-11-01T06:59:59Z"}, 0, ""},
		{"Pacific/Apia", "2011-12-30T12:00:00", nil, 24 * time.Hour, "2011-12-30T10:00:00Z"},
		{"Australia/Lord_Howe", "2026-04-05T01:45:00", []string{"2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z"}, 0, ""},
		{"UTC", "2026-11-21T00:00:00", []string{"2026-11-21T00:00:00Z"}, 0, ""},
	} {
		wall, err := time.Parse("2006-01-02T15:04:05", c.wall)
		if err != nil {
			t.Fatal(err)
		}
		instants, skipped, until := mustCompile(t, Spec{Timezone: c.zone, Cron: StringList{"0 0 * * *"}}).Shown(wall)
		var got []string
		for _, at := range instants {
			got = append(got, at.Format(time.RFC3339))
		}
		end := ""
		if !until.IsZero() {
			end = until.Format(time.RFC3339)
		}
		if !slices.Equal(got, c.want) || skipped != c.skipped || end != c.until {
			t.Errorf("%s in %s: got %v, %s, %q", c.wall, c.zone, got, skipped, end)
		}
	}
}

func BenchmarkNth(b *testing.B) {
	from := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for name, spec := range map[string]Spec{
		"minutes":  {Timezone: "Europe/Paris", Cron: StringList{"* * * * *"}},
		"days":     {Timezone: "Europe/Paris", Cron: StringList{"0 8 * * *"}},
		"excluded": {Timezone: "Europe/Paris", Cron: StringList{"* * * * *"}, Exclude: &Exclude{Dates: []string{"2027-01-01"}}},
		"rule":     {Timezone: "Europe/Paris", RRule: "DTSTART:20260105T090000\nRRULE:FREQ=WEEKLY;BYDAY=MO,WE"},
		"union":    {Timezone: "Europe/Paris", Cron: StringList{"*/2 * * * *", "*/3 * * * *"}},
	} {
		t := mustCompile(b, spec)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				t.Nth(from, 100_000)
			}
		})
	}
}
