package dispatchtest

import (
	"time"
)

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

// rearm makes a schedule fire again after leave: from now on, or from the end of its pause. It returns false for an active schedule that
// would never fire.
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

// resume ends a pause. once asks for one tick if any time was missed.
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

// unskip undoes skip.
func (m *Modelled) unskip(now time.Time) {
	for at := range m.skips {
		if at.After(now) {
			delete(m.skips, at)
		}
	}
}
