package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// sample is a schedule of three ticks that went well: its history and its deliveries.
func sample() (p *planned, history []carillon.TickRecord, got [][]delivery) {
	zone := time.FixedZone("Sample", 5*60*60+45*60)
	p = &planned{workflow: "w", key: "k", zone: zone, version: 2, payload: payloadOf(1)}
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	p.everyFrom(10*time.Second, start, start.Add(25*time.Second))
	for i, nominal := range p.nominal {
		fired := nominal.Add(30 * time.Millisecond)
		var last *time.Time
		if i > 0 {
			last = &p.nominal[i-1]
		}
		id := fmt.Sprintf("tick_%d", i)
		history = append(history, carillon.TickRecord{TickID: id, Timestamp: nominal, State: "succeeded", FiredAt: fired, LastTimestamp: last})
		got = append(got, []delivery{{fired.Add(time.Millisecond), carillon.Tick[json.RawMessage]{
			TickID: id, Workflow: "w", Key: "k", Timestamp: nominal, LocalTime: nominal.In(zone), Timezone: "Sample",
			LastTimestamp: last, Upcoming: p.upcoming(i), FiredAt: fired, LatenessMS: 30, Attempt: 1, MaxAttempts: 10,
			Occurrence: new(int64(i + 1)), Cause: "schedule", ScheduleVersion: 2, Payload: payloadOf(1),
		}}})
	}
	return p, history, got
}

// The checker finds each deliberate fault, and nothing where there is none.
func TestCheckerFindsFaults(t *testing.T) {
	t.Parallel()
	type run struct {
		history []carillon.TickRecord
		got     [][]delivery
	}
	tick := func(r *run) *carillon.Tick[json.RawMessage] { return &r.got[1][0].tick }
	for name, test := range map[string]struct {
		change func(*run)
		want   map[string]int
	}{
		"none":                {func(*run) {}, nil},
		"no tick":             {func(r *run) { r.history = append(r.history[:1:1], r.history[2]) }, map[string]int{"lost": 1}},
		"no delivery":         {func(r *run) { r.got[1] = nil }, map[string]int{"lost": 1}},
		"two ticks":           {func(r *run) { r.history = append(r.history, r.history[1]) }, map[string]int{"doubled": 2}},
		"a tick not named":    {func(r *run) { r.history = append(r.history, carillon.TickRecord{Timestamp: time.Unix(1, 0)}) }, map[string]int{"doubled": 1}},
		"another id":          {func(r *run) { tick(r).TickID = "tick_9" }, map[string]int{"doubled": 1}},
		"failed":              {func(r *run) { r.history[1].State = "failed" }, map[string]int{"not_succeeded": 1}},
		"received early":      {func(r *run) { r.got[1][0].at = tick(r).Timestamp.Add(-time.Millisecond) }, map[string]int{"early": 1}},
		"recorded early":      {func(r *run) { r.history[1].FiredAt = r.history[1].Timestamp.Add(-time.Microsecond) }, map[string]int{"early": 1, "wrong_message": 1}},
		"a last time":         {func(r *run) { r.got[0][0].tick.LastTimestamp = &r.history[0].Timestamp }, map[string]int{"wrong_last_timestamp": 1}},
		"no last time":        {func(r *run) { tick(r).LastTimestamp = nil }, map[string]int{"wrong_last_timestamp": 1}},
		"no last in history":  {func(r *run) { r.history[2].LastTimestamp = nil }, map[string]int{"wrong_last_timestamp": 1}},
		"too few to come":     {func(r *run) { tick(r).Upcoming = nil }, map[string]int{"wrong_upcoming": 1}},
		"other digits":        {func(r *run) { tick(r).Payload = payloadOf(2) }, map[string]int{"wrong_message": 1}},
		"another offset":      {func(r *run) { tick(r).LocalTime = tick(r).Timestamp }, map[string]int{"wrong_message": 1}},
		"another occurrence":  {func(r *run) { tick(r).Occurrence = nil }, map[string]int{"wrong_message": 1}},
		"again after the ack": {func(r *run) { r.got[1] = append(r.got[1], r.got[1][0]) }, map[string]int{"unexplained_duplicates": 1}},
	} {
		p, history, got := sample()
		r := &run{history, got}
		test.change(r)
		l := newLedger(func() {})
		for i := range p.nominal {
			if len(r.got[i]) > 0 {
				l.slots[p.slot(i)] = r.got[i]
			}
		}
		f := &findings{}
		killed := p.nominal[2].Add(time.Minute)
		f.schedule(p, r.history, l, span{killed, killed.Add(time.Second)})
		if diff := cmp.Diff(test.want, f.counts); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%v", name, diff, f.examples)
		}
	}
}

func TestADuplicateAroundAKillIsExplained(t *testing.T) {
	t.Parallel()
	p, history, got := sample()
	l := newLedger(func() {})
	for i := range p.nominal {
		l.slots[p.slot(i)] = append(got[i], got[i]...)
	}
	f := &findings{}
	f.schedule(p, history, l, span{p.nominal[0], p.nominal[2].Add(time.Minute)})
	if f.counts != nil || len(f.duplicates) != 3 {
		t.Errorf("got %d duplicates, %v", len(f.duplicates), f.examples)
	}
}

func TestUnplannedDeliveriesAreCounted(t *testing.T) {
	t.Parallel()
	p, _, got := sample()
	l := newLedger(func() {})
	for _, deliveries := range got {
		_ = l.take(t.Context(), deliveries[0].tick)
	}
	if n := l.unplanned([]*planned{p}); n != 0 || l.filled() != 3 {
		t.Errorf("got %d of %d", n, l.filled())
	}
	_ = l.take(t.Context(), carillon.Tick[json.RawMessage]{Workflow: "w", Key: "other"})
	if n := l.unplanned([]*planned{p}); n != 1 {
		t.Errorf("got %d", n)
	}
}
