package schedules

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/runs"
	"github.com/carillonhq/carillon/tenants"
)

// newborn returns the row of a new schedule, and its timing. The row is in no cohort as yet.
func (s *Schedules) newborn(of policy.Name, shard int16, d definition, c change, m *memo) (*row, *calendar.Timing, error) {
	now := c.now
	r := &row{
		Workflow: of.Workflow, Key: of.Key, Version: 1, Shard: shard, Status: policy.Active,
		AnchorAt: wholeSecond(now), CreatedAt: now, UpdatedAt: now, UpdatedBy: c.by, TZData: calendar.InForce().Version(),
	}
	if d.status == policy.Paused {
		r.Status, r.PausedAt = policy.Paused, &now
	}
	r.define(d)
	r.TicksLeft = ticksOf(d.spec)
	t, err := s.timed(c.tenant, r, d, c.quotas, now, m)
	return r, t, err
}

// effect is what a definition changes in a stored row.
type effect struct {
	differs     bool             // else nothing is to be written
	moves       bool             // it leaves its cohort, and is armed again
	respecified bool             // its spec is another
	timing      *calendar.Timing // the one that it has from now on
}

// afford returns a fault if the ticks of a changed row do not fit into the quota of projected ticks. The row is still in its old cohort.
func (s *Schedules) afford(tenant tenants.ID, r *row, c effect, before *calendar.Timing, q tenants.Quotas, now time.Time) error {
	if r.Status != policy.Active {
		return nil
	}
	if r.CohortID == nil {
		before = nil
	}
	return s.Forecasts.Known(tenant).Fits(s.Timings, c.timing, before, q, now)
}

// recount restores the limit of ticks of a schedule if its spec has changed.
func (c effect) recount(r *row, d definition) {
	if c.respecified {
		r.TicksLeft = ticksOf(d.spec)
	}
}

// apply puts a definition into a stored row, and returns what that changes. before is the row's timing until now, or nil if it cannot be
// computed. apply writes nothing, and the row keeps its place in its cohort.
func (s *Schedules) apply(r *row, d definition, before *calendar.Timing, by change, m *memo) (c effect, err error) {
	tenant, now := by.tenant, by.now
	was := *r
	r.define(d)
	c.respecified = was.Spec != r.Spec
	switch {
	case was.Status == policy.Completed && !c.respecified: // what has been fired is not fired again
	case d.status != "" && d.status != was.Status:
		r.setStatus(d.status, now)
	case d.status == policy.Paused: // the client states the pause
		r.PausedBy = nil
	case was.Status == policy.Completed || was.Status == policy.Quarantined:
		r.setStatus(policy.Active, now)
	}
	if was.sameDefinition(r) {
		return c, nil
	}
	c.differs, c.timing = true, before
	followsAnother := cohorts.FollowsSubject(d.spec) && !policy.Same(was.Subject, r.Subject)
	if c.respecified || followsAnother || c.timing == nil {
		if c.timing, err = s.timed(tenant, r, d, by.quotas, now, m); err != nil {
			return c, err
		}
		r.TZData = calendar.InForce().Version()
		if r.MovedUntil != nil {
			c.timing = r.carry(&was, c.timing, tenant, now)
		}
	}
	terms, err := policy.Resolve(r.Stored, r.Defaults)
	if err != nil {
		return c, err
	}
	moved := before == nil || before.Hash() != c.timing.Hash() || was.Status != r.Status || was.CohortMissed != nil && *was.CohortMissed != terms.Missed
	c.moves = moved || c.respecified && !sameLimit(ticksOf(d.spec), was.Spec)
	return c, nil
}

func neverFires() error {
	return fault.Fields(fault.Field{Pointer: "/spec", Code: "never_fires", Detail: "the spec has no coming tick"})
}

// timed compiles the spec of a row and checks it against the tenant's quotas.
func (s *Schedules) timed(tenant tenants.ID, r *row, d definition, q tenants.Quotas, now time.Time, m *memo) (*calendar.Timing, error) {
	c, err := m.compile(d, r.AnchorAt, r.stored(tenant).Identity(), func(t *calendar.Timing) error { return fits(t, q, now) })
	if err != nil {
		return nil, err
	}
	r.compiled = c
	r.first = c.FirstAt(r.CreatedAt) // told by the spec, and so not by a timing that is shared
	return s.Timings.Keep(tenant, c, d.almanac), nil
}

// fits returns a fault unless a timing fires again, and no more often than the quota allows.
func fits(t *calendar.Timing, q tenants.Quotas, now time.Time) error {
	_, ok := t.Next(now)
	if runs.Delays(t) {
		_, ok = t.First(now)
	}
	if !ok {
		return neverFires()
	}
	least := smallestInterval(q)
	if gap := t.MinGap(now); gap > 0 && gap < least { // 0: it fires once
		return fault.Fields(fault.Field{Pointer: "/spec", Code: "interval_too_small", Detail: tooSmall(gap, least)})
	}
	return nil
}

func smallestInterval(q tenants.Quotas) time.Duration {
	return time.Duration(q.SmallestIntervalSeconds) * time.Second
}

func tooSmall(gap, least time.Duration) string {
	return fmt.Sprintf("it fires %s apart, and smallest_interval_seconds allows no less than %s", policy.FormatDuration(gap), policy.FormatDuration(least))
}

// setStatus makes the row active or paused as of now.
func (r *row) setStatus(status string, now time.Time) {
	r.Status, r.StatusNote, r.PausedAt, r.PausedUntil, r.PausedBy = status, nil, nil, nil, nil
	if status == policy.Paused {
		r.PausedAt = &now
	}
}

// define puts a definition into the row. Status and note stay if the definition leaves them out.
func (r *row) define(d definition) {
	r.Spec, r.Stored, r.Payload, r.Labels, r.StoredProfile = d.specText, d.terms, d.payload, d.labels, d.profile.Stored()
	r.Subject = d.subjectFor(r.Key)
	if d.note.text != nil || d.note.removed {
		r.Note = d.note.text
	}
}

func (r *row) sameDefinition(o *row) bool {
	return r.Spec == o.Spec && r.Stored.Equal(o.Stored) && policy.Same(r.Payload, o.Payload) && policy.Same(r.Subject, o.Subject) && maps.Equal(r.Labels, o.Labels) &&
		policy.Same(r.Note, o.Note) && policy.Same(r.StatusNote, o.StatusNote) && r.Status == o.Status && policy.Same(r.PausedBy, o.PausedBy)
}

func ticksOf(spec calendar.Spec) *int32 {
	if spec.MaxTicks == nil {
		return nil
	}
	return new(int32(*spec.MaxTicks))
}

func sameLimit(limit *int32, storedSpec string) bool {
	var was calendar.Spec
	return json.Unmarshal([]byte(storedSpec), &was) == nil && policy.Same(limit, ticksOf(was))
}
