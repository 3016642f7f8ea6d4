package dispatchtest

import (
	"slices"
	"time"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

// modelTick is a tick as the model has it, and as the history shows it.
type modelTick struct {
	At, Last   time.Time // Last is zero where there is none
	State      string
	Reason     string
	Manual     bool
	Missed     int
	Occurrence int // 0: it has none
	Version    int
}

// Modelled is one schedule in the model.
type Modelled struct {
	plan     Plan
	missed   string
	overlap  string
	payload  string
	note     string
	version  int
	status   string
	pausedAt time.Time
	until    time.Time // of a pause; zero: for good
	bySync   bool      // a sync paused it
	from     time.Time // the first time that counts; zero: it does not fire
	left     int       // of max_ticks, from then on
	skips    map[time.Time]bool
	last     time.Time
	occurs   int
	fired    int
	skipped  int
	missedN  int
	done     int
	failed   int
	live     int          // how many run
	waiting  []*modelTick // for those to end
	history  []*modelTick
}

// definition is what an upsert says of a schedule.
type definition struct {
	plan            Plan
	missed, overlap string
	payload         string
	note            *string
	status          string
}

func (d definition) params() schedules.Params {
	p := schedules.Params{Spec: d.plan.Spec(), Policy: &policy.Policy{Missed: d.missed, Overlap: d.overlap}, Note: d.note, Status: d.status}
	if d.payload != "" {
		p.Payload = []byte(d.payload)
	}
	return p
}

// outcome is how the model says that an operation ends: the code of its fault, or nothing.
type outcome string

// made is a new schedule.
func made(d definition, now time.Time) (*Modelled, outcome) {
	m := &Modelled{plan: d.plan, missed: d.missed, overlap: d.overlap, payload: d.payload, version: 1, status: "active", left: d.plan.most, skips: map[time.Time]bool{}}
	if _, ok := d.plan.next(now); !ok {
		return nil, "never_fires"
	}
	if d.note != nil {
		m.note = *d.note
	}
	if d.status == "paused" {
		m.status, m.pausedAt = "paused", now
		return m, ""
	}
	m.join(now)
	return m, ""
}

// wake ends a pause whose time has come.
func (m *Modelled) wake(now time.Time) {
	if m.status == "paused" && !m.until.IsZero() && !m.until.After(now) {
		m.status, m.pausedAt, m.until = "active", time.Time{}, time.Time{}
		if m.from.IsZero() {
			m.status = "completed"
		}
	}
}

// join makes the times after a moment count, and reports whether there are any.
func (m *Modelled) join(after time.Time) bool {
	if _, ok := m.plan.next(after); !ok || m.plan.most > 0 && m.left < 1 {
		return false
	}
	m.from = after.Truncate(time.Second).Add(time.Second)
	return true
}

// coming are up to n times that count, are not before one and are not to be left out.
func (m *Modelled) coming(from time.Time, n int) (all []time.Time) {
	for _, at := range m.counting(from, n+len(m.skips)) {
		if len(all) < n && !m.skips[at] {
			all = append(all, at)
		}
	}
	return all
}

// counting are up to n times that count and are not before one.
func (m *Modelled) counting(from time.Time, n int) (all []time.Time) {
	if m.from.IsZero() {
		return nil
	}
	left := m.left
	for at := m.from.Add(-time.Second); len(all) < n; left-- {
		next, ok := m.plan.next(at)
		if !ok || m.plan.most > 0 && left < 1 {
			break
		}
		if at = next; !at.Before(from) {
			all = append(all, at)
		}
	}
	return all
}

// due are the times that count, have come, and were not served.
func (m *Modelled) due(now time.Time) (all []time.Time) {
	if m.from.IsZero() {
		return nil
	}
	all = m.plan.between(m.from.Add(-time.Second), now)
	if m.plan.most > 0 && len(all) > m.left {
		all = all[:m.left]
	}
	return all
}

// run is one tick that is to be made of what is due.
type run struct {
	at     time.Time
	missed int
	drop   bool
}

// runs are the ticks that the missed policy makes of what is due.
func (m *Modelled) runs(now time.Time) (all []run) {
	due := m.due(now)
	for len(due) > 0 {
		n, drop := 1, false
		switch onTime := slices.IndexFunc(due, func(at time.Time) bool { return now.Sub(at) <= time.Minute }); {
		case m.missed == "none" && onTime != 0:
			if n, drop = onTime, true; onTime < 0 {
				n = len(due)
			}
		case m.missed != "all":
			n = len(due)
		}
		all = append(all, run{due[n-1], n - 1, drop})
		due = due[n:]
	}
	return all
}

// sweep hands out what is due.
func (m *Modelled) sweep(now time.Time) {
	runs := m.runs(now)
	m.pass(now)
	for _, r := range runs {
		m.decide(r, false, now)
	}
	if m.wake(now); !m.from.IsZero() && len(m.counting(now, 1)) == 0 {
		m.status, m.from = "completed", time.Time{}
	}
}

// pass counts the times up to now as over.
func (m *Modelled) pass(now time.Time) {
	if m.from.IsZero() {
		return
	}
	m.left -= len(m.due(now))
	if after := now.Truncate(time.Second).Add(time.Second); after.After(m.from) {
		m.from = after
	}
}

// leave makes no further time count.
func (m *Modelled) leave(now time.Time) {
	m.pass(now)
	m.from = time.Time{}
}

// decide makes a tick.
func (m *Modelled) decide(r run, forced bool, now time.Time) {
	t := &modelTick{At: r.at, Missed: r.missed, Version: m.version, State: "skipped", Last: m.last}
	m.history = append(m.history, t)
	m.missedN += r.missed
	switch {
	case r.drop:
		t.Reason = "missed"
	case m.status == "paused" && (m.until.IsZero() || m.until.After(r.at)):
		t.Reason = "paused"
	case !forced && now.Sub(r.at) > 24*time.Hour:
		t.Reason = "expired"
	case m.skips[r.at]:
		t.Reason = "requested"
	case m.overlap != "allow_all" && m.live+len(m.waiting) > 0:
		if m.overlap == "buffer_one" && len(m.waiting) == 0 {
			t.State, m.waiting = "scheduled", append(m.waiting, t)
			return
		}
		t.Reason = "overlap"
	default:
		m.start(t)
		return
	}
	m.skipped++
}

// start hands a tick out.
func (m *Modelled) start(t *modelTick) {
	t.State, t.Reason, t.Last = "running", "", m.last
	m.live++
	m.fired++
	if !t.Manual {
		m.occurs++
		t.Occurrence, m.last = m.occurs, t.At
	}
}

// finish ends all running ticks, and hands out the ticks that waited for them. A running tick that no worker leased in time fails.
func (m *Modelled) finish(now time.Time) {
	for _, t := range m.history {
		if t.State != "running" {
			continue
		}
		m.live--
		if now.Sub(t.At) > 24*time.Hour {
			t.State = "failed"
			m.failed++
			continue
		}
		t.State = "succeeded"
		m.done++
	}
	for len(m.waiting) > 0 && m.live == 0 {
		t := m.waiting[0]
		m.waiting = m.waiting[1:]
		if !t.Manual && now.Sub(t.At) > 24*time.Hour {
			t.State, t.Reason = "skipped", "expired"
			m.skipped++
			continue
		}
		m.start(t)
	}
}

// upcoming are the next five times as a client sees them.
func (m *Modelled) upcoming(now time.Time) []time.Time {
	from := now
	if runs := m.runs(now); len(runs) > 0 {
		from = runs[0].at
	}
	return m.coming(from, 5)
}

func (m *Modelled) picture(now time.Time) picture {
	p := picture{
		Status: m.status, Version: m.version, Upcoming: m.upcoming(now), LastAt: m.last,
		Stats: schedules.Stats{Fired: int64(m.fired), Succeeded: int64(m.done), Failed: int64(m.failed), Skipped: int64(m.skipped), Missed: int64(m.missedN)},
	}
	for _, t := range m.history {
		p.History = append(p.History, *t)
	}
	return p
}
