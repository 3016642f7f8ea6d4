package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// delayedRun is a run of one schedule whose ticks come ten seconds after the end of the one before, which takes a second.
func delayedRun() *run {
	r := goodRun()
	r.ops[0].after.timing = timing{kind: delayed, zone: time.UTC, every: 10}
	r.record.ticks, r.ledger = map[name][]*tick{}, &ledger{}
	var last *time.Time
	for i := 1; i <= 10; i++ {
		when := after(float64(11 * i))
		t := &tick{
			TickID: fmt.Sprint("tick", i), ScheduleID: "sch", Workflow: "w", Key: "k", Timestamp: when, LastTimestamp: last, FiredAt: when.Add(50 * time.Millisecond),
			EndedAt: new(when.Add(time.Second)), Attempt: 1, Occurrence: new(int64(i)), Cause: "schedule", State: "succeeded", Version: 1,
		}
		last = &when
		r.record.ticks[whose] = append(r.record.ticks[whose], t)
		m := *t
		m.Payload = []byte(r.ops[0].after.payload)
		r.ledger.add(&receipt{Tenant: "t", At: when.Add(100 * time.Millisecond), Done: when.Add(200 * time.Millisecond), Where: "sink", Outcome: taken, Signed: true, ID: t.TickID, tick: m})
	}
	return r
}

func TestFixedDelayIsHeldToTheEndOfTheTickBefore(t *testing.T) {
	t.Parallel()
	if rules := delayedRun().rules(t); len(rules) > 0 {
		t.Errorf("got %v", rules)
	}
	for what, spoil := range map[string]func(*run){
		"nothing came any more":   func(r *run) { r.record.ticks[whose] = r.record.ticks[whose][:8]; r.ledger.list = r.ledger.list[:8] },
		"one is lost":             func(r *run) { r.drop(5) },
		"one came too soon":       func(r *run) { r.tick(4).EndedAt = new(r.tick(5).Timestamp.Add(-5 * time.Second)) },
		"one stands for another":  func(r *run) { r.tick(5).MissedCount, r.receipt(5).MissedCount = 1, 1 },
		"a second one came of it": func(r *run) { r.tick(6).Timestamp = r.tick(5).Timestamp.Add(time.Second) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := delayedRun()
			if spoil(r); !slices.Contains(r.rules(t), "I1") {
				t.Error("it is not found")
			}
		})
	}
}
