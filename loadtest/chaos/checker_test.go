package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// run is an invented run without a fault: one schedule fires every ten seconds for two minutes.
type run struct {
	ops      []*operation
	edits    []*edit
	record   *record
	ledger   *ledger
	troubles *troubles
}

var (
	began = at("2026-06-01T10:00:00Z")
	whose = name{"t", "w", "k"}
)

func after(seconds float64) time.Time {
	return began.Add(time.Duration(seconds * float64(time.Second)))
}

func goodRun() *run {
	d := &definition{timing: timing{kind: aligned, zone: time.UTC, every: 10}, missed: "last", payload: `{"tenant":"t","key":"k","n":1}`}
	r := &run{
		ledger: &ledger{}, troubles: &troubles{},
		record: &record{
			began: began, judged: after(120), ticks: map[name][]*tick{},
			stored: map[name]stored{whose: {ID: "sch", Workflow: "w", Key: "k", Version: 1, Status: "active", NextAt: new(after(130))}},
			audit:  map[name][]audited{whose: {auditedPut(1)}},
		},
		ops: []*operation{{Tenant: "t", Workflow: "w", Key: "k", Kind: "put", Start: after(0.2), End: after(0.4), Tries: 1, Outcome: okay, Status: 201, Schedule: "sch", Version: 1, after: d}},
	}
	var last *time.Time
	for i := 1; i <= 12; i++ {
		when := after(float64(10 * i))
		t := tick{
			TickID: fmt.Sprint("tick", i), ScheduleID: "sch", Workflow: "w", Key: "k", Timestamp: when, LastTimestamp: last, FiredAt: when.Add(50 * time.Millisecond),
			EndedAt: new(when.Add(time.Second)), Attempt: 1, Occurrence: new(int64(i)), Cause: "schedule", State: "succeeded", Version: 1,
		}
		last = &when
		r.record.ticks[whose] = append(r.record.ticks[whose], &t)
		m := t
		m.Payload = []byte(d.payload)
		m.Upcoming = d.timing.next(when, 5, when.Add(time.Hour))
		r.ledger.add(&receipt{Tenant: "t", At: when.Add(100 * time.Millisecond), Done: when.Add(200 * time.Millisecond), Where: "sink", Outcome: taken, Signed: true, ID: t.TickID, tick: m})
	}
	return r
}

func auditedPut(version int64) (a audited) {
	a.Action = "schedule.put"
	a.After = &struct {
		Version int64 `json:"version"`
	}{version}
	return a
}

func (r *run) tick(i int) *tick       { return r.record.ticks[whose][i-1] }
func (r *run) receipt(i int) *receipt { return r.ledger.list[i-1] }

// drop removes the i-th tick, as if it had never existed.
func (r *run) drop(i int) {
	r.record.ticks[whose] = slices.Delete(r.record.ticks[whose], i-1, i)
	r.ledger.list = slices.Delete(r.ledger.list, i-1, i)
	for _, t := range r.record.ticks[whose][i-1:] {
		*t.Occurrence--
	}
	for n, t := range r.record.ticks[whose] {
		t.LastTimestamp = nil
		if n > 0 {
			t.LastTimestamp = &r.record.ticks[whose][n-1].Timestamp
		}
		r.ledger.list[n].LastTimestamp, r.ledger.list[n].Occurrence = t.LastTimestamp, t.Occurrence
	}
}

func (r *run) rules(t *testing.T) []string {
	t.Helper()
	h := &history{edits: map[string][]*edit{"t": r.edits}}
	for _, o := range r.ops {
		h.add(o)
	}
	c := newChecker(r.record, h, r.ledger, r.troubles)
	c.check()
	var rules []string
	for _, v := range c.violated {
		t.Logf("%s %s", v.Rule, v.What)
		rules = append(rules, v.Rule)
	}
	return slices.Compact(rules)
}

func TestARunAsItShouldBe(t *testing.T) {
	t.Parallel()
	if rules := goodRun().rules(t); len(rules) > 0 {
		t.Errorf("got %v", rules)
	}
}

// Each case makes one mistake in a good run, and the checker must name the promise that the mistake breaks.
func TestWhatIsWrongIsFound(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		rule  string
		spoil func(*run)
	}{
		"a tick is lost":              {"I1", func(r *run) { r.drop(5) }},
		"the last tick is lost":       {"I1", func(r *run) { r.drop(12) }},
		"a time is counted that came": {"I1", func(r *run) { r.tick(5).MissedCount, r.receipt(5).MissedCount = 1, 1 }},
		"a tick was not due":          {"I1", func(r *run) { r.tick(5).Timestamp = r.tick(5).Timestamp.Add(time.Second) }},
		"two ticks at one time":       {"I1", func(r *run) { r.tick(6).Timestamp = r.tick(5).Timestamp }},
		"a tick of another schedule":  {"I1", func(r *run) { r.tick(5).ScheduleID = "other" }},
		"all were to come, one did not": {"I1", func(r *run) {
			r.drop(5)
			r.tick(5).MissedCount, r.receipt(5).MissedCount = 1, 1
			r.ops[0].after.missed = "all"
		}},
		"a tick is made early":      {"I2", func(r *run) { r.tick(5).FiredAt = r.tick(5).Timestamp.Add(-time.Millisecond) }},
		"a tick comes early":        {"I2", func(r *run) { r.receipt(5).At = r.tick(5).Timestamp.Add(-time.Millisecond) }},
		"last_timestamp is another": {"I3", func(r *run) { r.tick(5).LastTimestamp = &r.tick(3).Timestamp }},
		"a number is left out":      {"I3", func(r *run) { *r.tick(12).Occurrence = 13 }},
		"upcoming is another":       {"I3", func(r *run) { r.receipt(5).Upcoming[0] = after(61) }},
		"upcoming is short":         {"I3", func(r *run) { r.receipt(5).Upcoming = r.receipt(5).Upcoming[:4] }},
		"upcoming is of a calendar's former days": {"I3", func(r *run) {
			r.holiday(5, "2026-06-01 ", 20)
			r.edits = append(r.edits, &edit{holiday: "2026-06-03 ", began: after(40), applied: after(45)})
		}},
		"upcoming is of a calendar's later days": {"I3", func(r *run) { r.holiday(5, "2026-06-01 ", 70) }},
		"a message differs from its tick":        {"I3", func(r *run) { r.receipt(5).MissedCount = 1 }},
		"a tick never ends":                      {"I4", func(r *run) { r.tick(5).State, r.tick(5).EndedAt = "running", nil }},
		"a tick failed too soon":                 {"I4", func(r *run) { r.tick(5).State = "failed" }},
		"nobody took what succeeded":             {"I4", func(r *run) { r.receipt(5).Outcome = turnedOff }},
		"skipped for no reason":                  {"I4", func(r *run) { r.tick(5).State, r.tick(5).Reason = "skipped", "" }},
		"an attempt has another payload":         {"I5", func(r *run) { again(r, 5).Payload = []byte(`{"tenant":"t","key":"k","n":2}`) }},
		"the payload is another version's":       {"I5", func(r *run) { r.receipt(5).Payload = []byte(`{"tenant":"t","key":"k","n":2}`) }},
		"a signature is wrong":                   {"I5", func(r *run) { r.receipt(5).Signed = false }},
		"webhook-id is another":                  {"I5", func(r *run) { r.receipt(5).ID = "other" }},
		"taken twice for no reason":              {"I6", func(r *run) { again(r, 5) }},
		"a stale token was believed":             {"I7", func(r *run) { r.ledger.complain("I7 a token") }},
		"a schedule is gone":                     {"I8", func(r *run) { delete(r.record.stored, whose) }},
		"a version is lost":                      {"I8", func(r *run) { r.ops[0].Version = 2; r.record.audit[whose] = []audited{auditedPut(1), auditedPut(2)} }},
		"a pause is lost":                        {"I8", func(r *run) { r.pause(121) }},
		"a trigger is lost":                      {"I8", func(r *run) { r.trigger(50) }},
		"a tick is not in the record": {"I8", func(r *run) {
			r.receipt(5).TickID, r.receipt(5).ID = "other", "other"
			again(r, 6)
			r.troubled()
			r.ledger.list[12].TickID = "tick5"
		}},
		"another tenant's":  {"I9", func(r *run) { r.receipt(5).Payload = []byte(`{"tenant":"u","key":"k","n":1}`) }},
		"no next time":      {"I10", func(r *run) { r.record.stored[whose] = stored{ID: "sch", Version: 1, Status: "active"} }},
		"quarantined":       {"I10", func(r *run) { r.record.stored[whose] = stored{ID: "sch", Version: 1, Status: "quarantined"} }},
		"a backlog":         {"I10", func(r *run) { r.record.left = []string{"a tick"} }},
		"no audit":          {"I12", func(r *run) { delete(r.record.audit, whose) }},
		"two rows of audit": {"I12", func(r *run) { r.record.audit[whose] = append(r.record.audit[whose], auditedPut(1)) }},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := goodRun()
			c.spoil(r)
			if rules := r.rules(t); !slices.Contains(rules, c.rule) {
				t.Errorf("got %v, want %s", rules, c.rule)
			}
		})
	}
}

// again adds a second delivery of the i-th tick.
func again(r *run, i int) *receipt {
	second := *r.receipt(i)
	second.At, second.Done = second.At.Add(time.Second), second.Done.Add(time.Second)
	r.ledger.add(&second)
	return &second
}

func (r *run) op(seconds float64, kind string) *operation {
	o := &operation{Tenant: "t", Workflow: "w", Key: "k", Kind: kind, Start: after(seconds), End: after(seconds + 0.2), Tries: 1, Outcome: okay, Status: 200, after: r.ops[0].after}
	r.ops = append(r.ops, o)
	return o
}

// holiday edits the calendar, and gives the message of the i-th tick the upcoming times of the edited one. The edit does not belong to the
// key, because it has got another version meanwhile.
func (r *run) holiday(i int, days string, seconds float64) {
	t := &r.ops[0].after.timing
	t.out.named = true
	r.edits = append(r.edits, &edit{holiday: days, began: after(seconds), applied: after(seconds + 5)})
	edited := *t
	edited.out.holiday = days
	r.receipt(i).Upcoming = edited.next(r.receipt(i).Timestamp, 5, r.receipt(i).Timestamp.Add(8*24*time.Hour))
}

func (r *run) pause(seconds float64)   { r.op(seconds, "pause").pause = true }
func (r *run) trigger(seconds float64) { r.op(seconds, "trigger") }
func (r *run) troubled()               { r.troubles.add(disturbance{"kill", "dispatch-1", began, after(120)}) }

// The checker reports no violation if the run may have been correct.
func TestWhatMayBeIsNotWrong(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*run){
		"missed, and counted": func(r *run) { r.drop(5); r.tick(5).MissedCount, r.receipt(5).MissedCount = 1, 1 },
		"upcoming is of the calendar's days at the delivery": func(r *run) {
			r.receipt(5).At, r.receipt(5).Done = after(50.9), after(51)
			r.holiday(5, "2026-06-01 ", 50.5)
		},
		"taken twice, as an acknowledgement may have been lost": func(r *run) { again(r, 5); r.troubled() },
		"a time while a pause was asked for, recorded": func(r *run) {
			r.stop(79.9)
			for range 4 {
				r.drop(9)
			}
		},
		"a time while a pause was asked for, not recorded": func(r *run) {
			r.stop(79.9)
			for range 5 {
				r.drop(8)
			}
		},
		"an operation that may have been done": func(r *run) {
			o := r.op(79.9, "delete")
			o.after, o.Outcome, o.Tries = nil, maybe, 2
			for range 4 {
				r.drop(9)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := goodRun()
			change(r)
			if rules := r.rules(t); len(rules) > 0 {
				t.Errorf("got %v", rules)
			}
		})
	}
}

// stop pauses for good, acknowledged and stored.
func (r *run) stop(seconds float64) {
	o := r.op(seconds, "pause")
	o.pause, o.Version = true, 2
	r.record.stored[whose] = stored{ID: "sch", Version: 2, Status: "paused"}
	two := auditedPut(2)
	two.Action = "schedule.pause"
	r.record.audit[whose] = append(r.record.audit[whose], two)
}

// The checker reports ticks after a pause, and a missing tick that was due before the pause.
func TestAPauseIsAPause(t *testing.T) {
	t.Parallel()
	r := goodRun()
	r.stop(75)
	if rules := r.rules(t); !slices.Contains(rules, "I1") {
		t.Errorf("ticks after the pause: got %v", rules)
	}
	r = goodRun()
	r.stop(75)
	for range 6 {
		r.drop(7)
	}
	if rules := r.rules(t); !slices.Contains(rules, "I1") {
		t.Errorf("no tick at 70, five seconds before the pause: got %v", rules)
	}
}

// The history of a violation has the operations, the ticks and the faults around it, and nothing else.
func TestAStoryIsShort(t *testing.T) {
	t.Parallel()
	r := goodRun()
	r.troubled()
	r.tick(5).FiredAt = r.tick(5).Timestamp.Add(-time.Millisecond)
	h := &history{}
	h.add(r.ops[0])
	c := newChecker(r.record, h, r.ledger, r.troubles)
	c.check()
	if len(c.violated) != 1 {
		t.Fatalf("got %v", c.violated)
	}
	v := c.violated[0]
	if n := len(v.History); n < 9 || n > 12 || v.Key != `t: w "k"` {
		t.Errorf("got %d lines about %s: %q", n, v.Key, v.History)
	}
}
