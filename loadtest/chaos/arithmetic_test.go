package chaos

import (
	"math/rand/v2"
	"testing"
	"time"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t.UTC()
}

func TestADailyTimeComesOnceADay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		zone         string
		hour, minute int
		after        string
		want         []string
	}{
		{"UTC", 8, 30, "2026-01-01T00:00:00Z", []string{"2026-01-01T08:30:00Z", "2026-01-02T08:30:00Z"}},
		{"America/New_York", 8, 0, "2026-11-20T14:00:00Z", []string{"2026-11-21T13:00:00Z", "2026-11-22T13:00:00Z"}},
		// Spring forward: 02:30 is not shown on 8 March, and is read with the offset before the gap.
		{"America/New_York", 2, 30, "2026-03-07T12:00:00Z", []string{"2026-03-08T07:30:00Z", "2026-03-09T06:30:00Z"}},
		// Fall back: 01:30 is shown twice on 1 November, and the first counts.
		{"America/New_York", 1, 30, "2026-10-31T12:00:00Z", []string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
		{"Europe/Berlin", 2, 30, "2026-10-24T12:00:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		{"Australia/Lord_Howe", 2, 15, "2026-10-03T00:00:00Z", []string{"2026-10-03T15:45:00Z", "2026-10-04T15:15:00Z"}},
	} {
		d := timing{kind: daily, zone: zone(c.zone), hour: c.hour, minute: c.minute}
		got := d.next(at(c.after), 2, at(c.after).Add(72*time.Hour))
		for i, want := range c.want {
			if i >= len(got) || !got[i].Equal(at(want)) {
				t.Errorf("%s %02d:%02d: got %v, want %v", c.zone, c.hour, c.minute, got, c.want)
				break
			}
		}
	}
}

func TestTimingsNameWhatTheySay(t *testing.T) {
	t.Parallel()
	start := at("2026-06-01T10:00:00Z")
	for _, c := range []struct {
		timing timing
		want   []int // seconds after start, up to a minute
	}{
		{timing{kind: aligned, every: 20, offset: 5}, []int{5, 25, 45}},
		{timing{kind: anchored, every: 25, anchor: start.Add(7 * time.Second), start: start.Add(7 * time.Second)}, []int{7, 32, 57}},
		{timing{kind: secondly, zone: zone("Asia/Kathmandu"), seconds: []int{3, 30}}, []int{3, 30}},
		{timing{kind: minutely, zone: zone("Asia/Kolkata"), every: 2}, nil}, // 15:30 is even, but not after start
		{timing{kind: minutely, zone: time.UTC, every: 1}, []int{60}},
		{timing{kind: ruled, zone: zone("Asia/Tokyo"), every: 1, seconds: []int{1, 59}, anchor: start.Add(-time.Hour)}, []int{1, 59}},
		{timing{kind: aligned, every: 10, out: exclusion{below: 15}}, []int{20, 30, 40, 50}},
		{timing{kind: aligned, every: 10, out: exclusion{dates: start.Format(time.DateOnly) + " "}}, nil},
		{timing{kind: aligned, every: 30, zone: zone("Pacific/Kiritimati"), out: exclusion{dates: start.Format(time.DateOnly) + " "}}, []int{30, 60}}, // it is tomorrow there
		{timing{kind: aligned, every: 30, out: exclusion{named: true, holiday: start.Format(time.DateOnly) + " "}}, nil},
		{timing{kind: once, at: []time.Time{start.Add(9 * time.Second), start.Add(time.Hour)}}, []int{9}},
		{timing{kind: aligned, every: 10, start: start.Add(20 * time.Second), end: start.Add(40 * time.Second)}, []int{20, 30, 40}},
	} {
		if c.timing.zone == nil {
			c.timing.zone = time.UTC
		}
		got := c.timing.between(start, start.Add(time.Minute))
		if len(got) != len(c.want) {
			t.Errorf("%+v: got %v", c.timing, got)
			continue
		}
		for i, want := range c.want {
			if got[i].Sub(start) != time.Duration(want)*time.Second {
				t.Errorf("%+v: got %v", c.timing, got)
			}
		}
	}
}

// Each drawn timing names a time within four minutes, and is the same timing as itself.
func TestWhatIsDrawnComesSoon(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	now := at("2026-06-01T10:00:00Z")
	for range 500 {
		d := draw(r, now, r.IntN(2) == 0, r.Float64(), "{}")
		if len(d.timing.next(now, 1, now.Add(4*time.Minute))) == 0 {
			t.Errorf("%s names nothing for four minutes", d.spec())
		}
		if !d.timing.same(&d.timing) {
			t.Errorf("%s is not itself", d.spec())
		}
	}
}
