package carillontest_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

func TestCronIsReadAsVixieDoes(t *testing.T) {
	t.Parallel()
	client := carillontest.New().Client() // Monday, 2026-01-05
	for cron, want := range map[string][]string{
		"*/20 3 * * *":   {"2026-01-05 03:00", "2026-01-05 03:20", "2026-01-05 03:40"},
		"0 0 1 * 1":      {"2026-01-12 00:00", "2026-01-19 00:00", "2026-01-26 00:00"},
		"0 0 13 * 5":     {"2026-01-09 00:00", "2026-01-13 00:00", "2026-01-16 00:00"}, // both restricted: either
		"0 0 */2 * 2":    {"2026-01-13 00:00", "2026-01-27 00:00", "2026-02-03 00:00"}, // one starts with *: both
		"5,10 12 29 2 *": {"2028-02-29 12:05", "2028-02-29 12:10", "2032-02-29 12:05"},
		"0 6 * * 6-7":    {"2026-01-10 06:00", "2026-01-11 06:00", "2026-01-17 06:00"},
		"0 22/1 * 5 *":   {"2026-05-01 22:00", "2026-05-01 23:00", "2026-05-02 22:00"},
	} {
		u, err := client.Preview(t.Context(), carillon.Spec{Cron: []string{cron}}, carillon.UpcomingParams{Count: 3})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tick := range u.Ticks {
			got = append(got, tick.Timestamp.Format("2006-01-02 15:04"))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", cron, got, want)
		}
	}
}

func TestSpecIsAUnionWithinItsBounds(t *testing.T) {
	t.Parallel()
	u, err := carillontest.New().Client().Preview(t.Context(), carillon.Spec{
		Timezone:  "Europe/Berlin",
		Cron:      []string{"0 12 * * *"},
		Intervals: []carillon.Interval{{Every: "1d", Offset: "11h"}}, // 12:00 in Berlin, in winter
		At:        []string{"2026-01-07T13:30:00", "2026-01-06T00:00:00Z"},
		StartAt:   "2026-01-06T12:00:00",
		EndAt:     "2026-01-08T11:00:00Z",
	}, carillon.UpcomingParams{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, tick := range u.Ticks {
		got = append(got, tick.LocalTime.Format("2 15:04"))
	}
	if want := []string{"6 12:00", "7 12:00", "7 13:30", "8 12:00"}; !slices.Equal(got, want) || !u.Exhausted {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWhatItCannotTimeIsRefused(t *testing.T) {
	t.Parallel()
	client := carillontest.New().Client()
	for _, spec := range []carillon.Spec{
		{}, {Cron: []string{"@daily"}}, {Cron: []string{"0 8 * * MON"}}, {Cron: []string{"61 * * * *"}}, {Cron: []string{"*/0 * * * *"}},
		{RRule: "RRULE:FREQ=DAILY"}, {Timezone: "Mars/Olympus", Cron: []string{"* * * * *"}}, {At: []string{"soon"}},
		{Intervals: []carillon.Interval{{Every: "1 day"}}}, {Intervals: []carillon.Interval{{Every: "1h", Mode: "fixed_delay"}}},
		{Cron: []string{"* * * * *"}, Jitter: "5s"}, {Cron: []string{"* * * * *"}, Exclude: &carillon.Exclude{Dates: []string{"2026-01-06"}}},
	} {
		if _, err := client.Put(t.Context(), "w", "k", carillon.Params{Spec: spec}); !errors.Is(err, carillon.ErrInvalid) {
			t.Errorf("%+v: got %v", spec, err)
		}
	}
}

func TestAdvanceFiresInOrder(t *testing.T) {
	t.Parallel()
	server := carillontest.New()
	client := server.Client()
	for key, every := range map[string]string{"a": "20m", "b": "30m"} {
		if _, err := client.Put(t.Context(), "w", key, carillon.Params{Spec: carillon.Spec{Intervals: []carillon.Interval{{Every: every}}, MaxTicks: 4}}); err != nil {
			t.Fatal(err)
		}
	}
	server.Advance(time.Hour)
	ticks, err := client.Lease(t.Context(), carillon.LeaseParams{Workflows: []string{"w"}, Max: 100, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, tick := range ticks {
		got = append(got, tick.Key+tick.Timestamp.Format(" 15:04"))
		if !tick.FiredAt.Equal(tick.Timestamp) || tick.Upcoming[0].Sub(tick.Timestamp) > 30*time.Minute {
			t.Errorf("got %+v", tick)
		}
		if first := *tick.Occurrence == 1; (tick.LastTimestamp == nil) != first {
			t.Errorf("occurrence %d has last timestamp %v", *tick.Occurrence, tick.LastTimestamp)
		}
	}
	if len(got) != 5 || got[0] != "a 00:20" || got[1] != "b 00:30" || got[2] != "a 00:40" {
		t.Errorf("got %v", got)
	}
	server.Advance(time.Hour)
	if s, err := client.Get(t.Context(), "w", "a"); err != nil || s.Status != "completed" || s.Stats.Fired != 4 || s.NextAt != nil {
		t.Errorf("got %+v, %v; want 4 ticks and no more", s, err)
	}
}

func TestLeaseEndsAndAnotherBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		client := server.Client()
		if _, err := client.Put(t.Context(), "w", "k", carillon.Params{Spec: carillon.Spec{At: []string{"2026-01-05T08:00:00"}}}); err != nil {
			t.Fatal(err)
		}
		server.Advance(24 * time.Hour)
		p := carillon.LeaseParams{Workflows: []string{"w"}, Max: 1, Wait: time.Minute, Lease: 10 * time.Second}
		first, err := client.Lease(t.Context(), p)
		if err != nil || len(first) != 1 {
			t.Fatalf("got %v, %v", first, err)
		}
		began := time.Now()
		second, err := client.Lease(t.Context(), p)
		if err != nil || len(second) != 1 || second[0].TickID != first[0].TickID || second[0].Attempt != 2 || time.Since(began) != 10*time.Second {
			t.Fatalf("got %+v, %v after %s", second, err, time.Since(began))
		}
		if err := client.Complete(t.Context(), first[0].TickID, first[0].LeaseToken, nil); !errors.Is(err, carillon.ErrConflict) {
			t.Errorf("the first lease still counts: %v", err)
		}
		if err := client.Complete(t.Context(), second[0].TickID, second[0].LeaseToken, nil); err != nil {
			t.Error(err)
		}
	})
}

func TestQueuesAreLeasedApart(t *testing.T) {
	t.Parallel()
	server := carillontest.New()
	client := server.Client()
	for _, queue := range []string{"slow", "fast"} {
		_, err := client.Put(t.Context(), "w", queue, carillon.Params{Spec: carillon.Spec{At: []string{"2026-01-05T08:00:00"}}, Delivery: carillon.Delivery{Queue: queue}})
		if err != nil {
			t.Fatal(err)
		}
	}
	server.Advance(24 * time.Hour)
	ticks, err := client.Lease(t.Context(), carillon.LeaseParams{Workflows: []string{"w"}, Queues: []string{"fast"}, Max: 10, Lease: time.Minute})
	if err != nil || len(ticks) != 1 || ticks[0].Key != "fast" {
		t.Errorf("got %+v, %v", ticks, err)
	}
}
