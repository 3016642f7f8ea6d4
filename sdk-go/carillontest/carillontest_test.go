package carillontest_test

import (
	"errors"
	"slices"
	"strings"
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
		u, err := client.Schedules.Preview(t.Context(), carillon.Spec{Cron: []string{cron}}, carillon.PreviewParams{Count: 3})
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
	u, err := carillontest.New().Client().Schedules.Preview(t.Context(), carillon.Spec{
		Timezone:  "Europe/Berlin",
		Cron:      []string{"0 12 * * *"},
		Intervals: []carillon.Interval{{Every: "24h", Offset: "11h"}}, // 12:00 in Berlin, in winter
		At:        []string{"2026-01-07T13:30:00", "2026-01-06T00:00:00Z"},
		StartAt:   "2026-01-06T12:00:00",
		EndAt:     "2026-01-08T11:00:00Z",
	}, carillon.PreviewParams{})
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

func TestWhatItLacksIsRefusedByName(t *testing.T) {
	t.Parallel()
	server := carillontest.Start(t)
	client := server.Client()
	_, err := client.Workflows.Put(t.Context(), "w", carillon.WorkflowParams{Rate: &carillon.Rate{PerSecond: 5}})
	wantLack(t, err, "rates of workflows (/rate)")
	_, err = client.Workflows.Put(t.Context(), "w", carillon.WorkflowParams{Endpoint: "hook"})
	wantLack(t, err, "Server.Push")
	_, err = client.Schedules.Explain(t.Context(), "w", "k", server.Now())
	wantLack(t, err, "explanations")
	_, err = client.Endpoints.Get(t.Context(), "hook")
	wantLack(t, err, "endpoints")
}

func wantLack(t *testing.T, err error, feature string) {
	t.Helper()
	if e, ok := errors.AsType[*carillon.Error](err); !ok || e.Code != "not_in_carillontest" || !strings.Contains(e.Detail, feature) {
		t.Errorf("got %v, want the refusal of %s", err, feature)
	}
}

// The faults of a spec are the server's: located, with its codes.
func TestBadSpecsAreRefusedAsByTheServer(t *testing.T) {
	t.Parallel()
	client := carillontest.Start(t).Client()
	for pointer, spec := range map[string]carillon.Spec{
		"/spec": {}, "/spec/cron/0": {Cron: []string{"61 * * * *"}}, "/spec/timezone": {Timezone: "Mars/Olympus", Cron: []string{"* * * * *"}},
		"/spec/at/0": {At: []string{"soon"}}, "/spec/intervals/0/every": {Intervals: []carillon.Interval{{Every: "1 day"}}},
	} {
		_, err := client.Schedules.Put(t.Context(), "w", "k", carillon.Params{Spec: spec})
		e, ok := errors.AsType[*carillon.Error](err)
		if !ok || !errors.Is(err, carillon.ErrInvalid) || len(e.Fields) != 1 || e.Fields[0].Pointer != pointer {
			t.Errorf("%+v: got %v", spec, err)
		}
	}
}

func TestAdvanceFiresInOrder(t *testing.T) {
	t.Parallel()
	server := carillontest.New()
	client := server.Client()
	for key, every := range map[string]string{"a": "20m", "b": "30m"} {
		if _, err := client.Schedules.Put(t.Context(), "w", key, carillon.Params{Spec: carillon.Spec{Intervals: []carillon.Interval{{Every: every}}, MaxTicks: 4}, Policy: carillon.Policy{Overlap: "allow_all"}}); err != nil {
			t.Fatal(err)
		}
	}
	server.AdvanceBy(time.Hour)
	ticks, err := client.Ticks.Lease(t.Context(), carillon.LeaseParams{Workflows: []string{"w"}, Max: 100, Lease: time.Minute})
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
	server.AdvanceBy(time.Hour)
	if s, err := client.Schedules.Get(t.Context(), "w", "a"); err != nil || s.Status != "completed" || s.Stats.Fired != 4 || s.NextAt != nil {
		t.Errorf("got %+v, %v; want 4 ticks and no more", s, err)
	}
}

func TestLeaseEndsAndAnotherBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		client := server.Client()
		if _, err := client.Schedules.Put(t.Context(), "w", "k", carillon.Params{Spec: carillon.Spec{At: []string{"2026-01-05T08:00:00"}}}); err != nil {
			t.Fatal(err)
		}
		server.AdvanceBy(24 * time.Hour)
		p := carillon.LeaseParams{Workflows: []string{"w"}, Max: 1, Wait: time.Minute, Lease: 10 * time.Second}
		first, err := client.Ticks.Lease(t.Context(), p)
		if err != nil || len(first) != 1 {
			t.Fatalf("got %v, %v", first, err)
		}
		began := time.Now()
		second, err := client.Ticks.Lease(t.Context(), p)
		if err != nil || len(second) != 1 || second[0].TickID != first[0].TickID || second[0].Attempt != 2 || time.Since(began) != 10*time.Second {
			t.Fatalf("got %+v, %v after %s", second, err, time.Since(began))
		}
		if err := client.Ticks.Complete(t.Context(), first[0].TickID, first[0].LeaseToken, nil); !errors.Is(err, carillon.ErrConflict) {
			t.Errorf("the first lease still counts: %v", err)
		}
		if err := client.Ticks.Complete(t.Context(), second[0].TickID, second[0].LeaseToken, nil); err != nil {
			t.Error(err)
		}
	})
}

func TestQueuesAreLeasedApart(t *testing.T) {
	t.Parallel()
	server := carillontest.New()
	client := server.Client()
	for _, queue := range []string{"slow", "fast"} {
		_, err := client.Schedules.Put(t.Context(), "w", queue, carillon.Params{Spec: carillon.Spec{At: []string{"2026-01-05T08:00:00"}}, Delivery: carillon.Delivery{Queue: queue}})
		if err != nil {
			t.Fatal(err)
		}
	}
	server.AdvanceBy(24 * time.Hour)
	ticks, err := client.Ticks.Lease(t.Context(), carillon.LeaseParams{Workflows: []string{"w"}, Queues: []string{"fast"}, Max: 10, Lease: time.Minute})
	if err != nil || len(ticks) != 1 || ticks[0].Key != "fast" {
		t.Errorf("got %+v, %v", ticks, err)
	}
}

// A tick that was triggered at a nominal time comes behind the tick of that time, though jitter delays this one.
func TestATriggerAtANominalTimeIsListedBehindIt(t *testing.T) {
	t.Parallel()
	server := carillontest.Start(t)
	client := server.Client()
	spec := carillon.Spec{Cron: []string{"0 * * * *"}, Jitter: "20m", MaxTicks: 1}
	if _, err := client.Schedules.Put(t.Context(), "w", "k", carillon.Params{Spec: spec, Policy: carillon.Policy{Overlap: "allow_all"}}); err != nil {
		t.Fatal(err)
	}
	server.AdvanceBy(time.Hour)
	if _, err := client.Schedules.Trigger(t.Context(), "w", "k", carillon.TriggerParams{}); err != nil {
		t.Fatal(err)
	}
	server.AdvanceBy(20 * time.Minute)
	var got []string
	for tick, err := range client.Schedules.Ticks(t.Context(), "w", "k", carillon.TickFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, tick.Cause+tick.Timestamp.Format(" 15:04"))
	}
	if want := []string{"manual 01:00", "schedule 01:00"}; !slices.Equal(got, want) { // the newest first
		t.Errorf("got %v, want %v", got, want)
	}
}

// The end of a tick of a fixed_delay moves no time of the spec that has replaced it.
func TestAnEndedDelayMovesNoTimeOfALaterSpec(t *testing.T) {
	t.Parallel()
	server := carillontest.Start(t)
	client := server.Client()
	put := func(spec carillon.Spec) {
		t.Helper()
		if _, err := client.Schedules.Put(t.Context(), "w", "k", carillon.Params{Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	put(carillon.Spec{Intervals: []carillon.Interval{{Every: "50m", Mode: "fixed_delay", First: "now"}}})
	server.AdvanceBy(time.Hour - time.Second)
	ticks, err := client.Ticks.Lease(t.Context(), carillon.LeaseParams{Workflows: []string{"w"}, Max: 1, Lease: time.Minute})
	if err != nil || len(ticks) != 1 {
		t.Fatalf("got %v, %v", ticks, err)
	}
	put(carillon.Spec{Cron: []string{"0 * * * *"}}) // its first time is the next second
	if err := client.Ticks.Complete(t.Context(), ticks[0].TickID, ticks[0].LeaseToken, nil); err != nil {
		t.Fatal(err)
	}
	server.AdvanceBy(time.Second)
	s, err := client.Schedules.Get(t.Context(), "w", "k")
	if want := time.Date(2026, 1, 5, 1, 0, 0, 0, time.UTC); err != nil || s.LastAt == nil || !s.LastAt.Equal(want) {
		t.Errorf("the last tick was at %v, %v, want %s", s.LastAt, err, want)
	}
}
