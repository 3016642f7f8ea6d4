package dispatchtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

// Plan is a spec of a kind whose times a few lines can tell: each so many minutes of the day in UTC, or once.
type Plan struct {
	Every, offset int       // minutes of the day: from offset on, each every
	once          time.Time // instead
	end           time.Time // the last that may be; zero: none
	most          int       // max_ticks; 0: none
}

func (p Plan) Spec() (s calendar.Spec) {
	if p.once.IsZero() {
		s.Cron = calendar.StringList{fmt.Sprintf("%d %d-23/%d * * *", p.offset%60, p.offset/60, p.Every/60)}
		if p.Every < 60 {
			s.Cron = calendar.StringList{fmt.Sprintf("*/%d * * * *", p.Every)}
		}
		if p.Every == 24*60 {
			s.Cron = calendar.StringList{fmt.Sprintf("%d %d * * *", p.offset%60, p.offset/60)}
		}
	} else {
		s.At = calendar.StringList{p.once.Format(time.RFC3339)}
	}
	if !p.end.IsZero() {
		s.EndAt = new(p.end.Format(time.RFC3339))
	}
	if p.most > 0 {
		s.MaxTicks = &p.most
	}
	return s
}

// next is the first time after a moment.
func (p Plan) next(after time.Time) (time.Time, bool) {
	at := p.once
	if at.IsZero() {
		day := after.Truncate(24 * time.Hour)
		for at = day.Add(time.Duration(p.offset) * time.Minute); !at.After(after); {
			at = at.Add(time.Duration(p.Every) * time.Minute)
			if next := at.Truncate(24 * time.Hour); next.After(day) && at.Sub(next) != time.Duration(p.offset)*time.Minute {
				at = next.Add(time.Duration(p.offset) * time.Minute)
			}
		}
	}
	return at, at.After(after) && (p.end.IsZero() || !at.After(p.end))
}

// between are the times after one moment and up to another.
func (p Plan) between(after, upto time.Time) (all []time.Time) {
	for {
		at, ok := p.next(after)
		if !ok || at.After(upto) {
			return all
		}
		all, after = append(all, at), at
	}
}

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

// join has the times after a moment count, and reports whether there are any.
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

// leave has no more times count.
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

// finish ends all that runs, and lets go what waited for it; that runs then. What no worker came for in time has failed.
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

// put is an upsert of a schedule that is there.
func (m *Modelled) put(d definition, now time.Time) outcome {
	m.wake(now)
	after, respecified := *m, m.plan != d.plan
	after.plan, after.missed, after.overlap, after.payload = d.plan, d.missed, d.overlap, d.payload
	if d.note != nil {
		after.note = *d.note
	}
	switch {
	case m.status == "completed" && !respecified: // what has been fired is not fired again
	case d.status != "" && d.status != m.status, m.status == "completed":
		after.status, after.pausedAt, after.until = "active", time.Time{}, time.Time{}
		after.bySync = false
		if d.status == "paused" {
			after.status, after.pausedAt = "paused", now
		}
	case d.status == "paused":
		after.bySync = false
	}
	if !respecified && m.missed == after.missed && m.overlap == after.overlap && m.payload == after.payload && m.note == after.note && m.status == after.status && m.bySync == after.bySync {
		return ""
	}
	if _, ok := d.plan.next(now); respecified && !ok {
		return "never_fires"
	}
	after.version++
	if !respecified && m.status == after.status && (m.from.IsZero() || m.missed == after.missed) {
		*m = after
		return ""
	}
	runs := m.runs(now)
	before := *m // by the plan and policy until now
	before.leave(now)
	after.left, after.from = before.left, time.Time{}
	if respecified {
		after.left = d.plan.most
	}
	if !after.rearm(now) {
		return "never_fires"
	}
	*m = after
	for _, r := range runs {
		m.decide(r, false, now)
	}
	return ""
}

// listed returns what a line of a sync says of a schedule: it resumes one that a sync paused, if that still fires.
func (m *Modelled) listed(d definition, now time.Time) definition {
	if m == nil || !m.bySync || d.status != "" {
		return d
	}
	if again := *m; again.plan != d.plan || again.join(now) {
		d.status = "active"
	}
	return d
}

// reconcile pauses a schedule that a sync does not list.
func (m *Modelled) reconcile(now time.Time) {
	m.wake(now)
	if m.status == "paused" && m.until.IsZero() {
		return
	}
	fires := m.status == "active"
	m.pause(time.Time{}, now)
	m.bySync = fires
}

// rearm has a schedule that left fire again, from now on or from where its pause ends; it reports false for an active one
// that would never fire.
func (m *Modelled) rearm(now time.Time) bool {
	switch {
	case m.status == "active":
		return m.join(now)
	case m.status == "paused" && !m.until.IsZero():
		m.join(m.until.Add(-time.Second))
	}
	return true
}

// pause stops the schedule until a moment, or for good.
func (m *Modelled) pause(until time.Time, now time.Time) outcome {
	m.wake(now)
	switch {
	case m.status == "completed":
		return "not_active"
	case m.status == "paused" && m.until.Equal(until) && !m.bySync:
		return ""
	case m.status == "active":
		m.pausedAt = now
	}
	runs := m.runs(now)
	m.leave(now)
	m.status, m.until, m.bySync = "paused", until, false
	m.version++
	m.rearm(now)
	for _, r := range runs {
		m.decide(r, false, now)
	}
	return ""
}

// resume has the schedule go on; once asks for a tick if any was missed.
func (m *Modelled) resume(once bool, now time.Time) outcome {
	m.wake(now)
	switch m.status {
	case "active":
		return ""
	case "completed":
		return "not_paused"
	}
	since := m.pausedAt
	m.leave(now)
	m.status, m.pausedAt, m.until, m.bySync = "active", time.Time{}, time.Time{}, false
	m.version++
	if !m.join(now) {
		m.status = "completed"
	}
	if missed := m.plan.between(since, now); once && len(missed) > 0 {
		m.decide(run{missed[len(missed)-1], len(missed) - 1, false}, true, now)
	}
	return ""
}

// skip leaves out the next n times.
func (m *Modelled) skip(n int, now time.Time) outcome {
	if m.wake(now); m.from.IsZero() {
		return "not_active"
	}
	for _, at := range m.coming(now, n) {
		m.skips[at] = true
	}
	return ""
}

// unskip takes that back.
func (m *Modelled) unskip(now time.Time) {
	for at := range m.skips {
		if at.After(now) {
			delete(m.skips, at)
		}
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
