package schedules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/instant"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/runs"
	"github.com/carillonhq/carillon/tenants"
)

// row is a schedule as it is stored, with its state, its place in a cohort and its workflow's defaults.
type row struct {
	ID          int64
	Workflow    string
	Key         string
	Subject     *string // nil: the key
	Version     int32
	Shard       int16
	Status      string
	Spec        string
	Payload     *string
	Labels      map[string]string
	Note        *string
	StatusNote  *string
	PausedAt    *time.Time
	PausedUntil *time.Time
	PausedBy    *string // pausedBySync, or nil
	AnchorAt    time.Time
	TicksLeft   *int32
	CohortID    *int64
	Phase       int64
	TZData      string          `db:"tzdata"`
	Moves       []cohorts.Moved // oldest first
	MovedUntil  *time.Time      // while it is set the timing has the moves in it
	CreatedAt   time.Time
	UpdatedAt   time.Time
	UpdatedBy   string
	policy.Stored

	Fired, Succeeded, Failed, Skipped, MissedTimes int64
	FailuresInARow                                 int32
	LastAt                                         *time.Time
	LastTickAt                                     *time.Time
	LastSeq                                        *int32
	SeenAt                                         *time.Time
	Skips                                          []time.Time // nominal times that a client asked to leave out
	DelayAt                                        *time.Time  // of fixed_delay: the tick that is out
	DelayLeft                                      *int32      // and how many are left

	Hash         []byte
	CohortMissed *string
	Revision     *int64 // with Timed: the stamp of its cohort
	Timed        *string
	RetimeAt     *time.Time
	NextAt       *time.Time
	RunAt        *time.Time
	RunFrom      *time.Time
	RunMissed    *int32
	RunDrop      *bool
	AtPhase      *int64
	AtID         *int64
	FromAt       *time.Time
	UntilAt      *time.Time

	Defaults []byte

	cohorts.StoredProfile // for a schedule that follows its subject

	then     *calendar.Timing // from RetimeAt on
	compiled *calendar.Timing // its spec, where that was just compiled, without moves
	first    time.Time        // the earliest nominal time that is the schedule's own, likewise
}

var rowColumns = `
	s.id, s.workflow, s.key, s.subject, s.version, s.shard, s.status, s.spec, s.payload, s.labels, s.note, s.status_note,
	s.paused_at, s.paused_until, s.paused_by,
	s.anchor_at, s.ticks_left, s.cohort_id, s.phase, s.tzdata, s.moves, s.moved_until, s.created_at, s.updated_at, s.updated_by,
	` + policy.ColumnsOf("s") + `,
	st.fired, st.succeeded, st.failed, st.skipped, st.missed AS missed_times, st.failures AS failures_in_a_row, st.last_at,
	COALESCE(st.last_tick_at, st.seen_at, st.last_at) AS last_tick_at, COALESCE(st.last_seq, 0) AS last_seq, COALESCE(st.seen_at, st.last_at) AS seen_at, st.skips, st.delay_at, st.delay_left,
	c.hash, c.missed AS cohort_missed, c.revision, c.tzdata AS timed, c.retime_at, c.next_at, c.run_at, c.run_from, c.run_missed, c.run_drop, c.at_phase, c.at_id,
	m.from_at, m.until_at,
	w.defaults, ` + cohorts.FollowedColumns

const rowTables = `
	schedule s
	JOIN schedule_state st ON st.tenant_id = s.tenant_id AND st.schedule_id = s.id
	LEFT JOIN workflow w ON w.tenant_id = s.tenant_id AND w.name = s.workflow
	LEFT JOIN cohort c ON c.shard = s.shard AND c.id = s.cohort_id AND c.tenant_id = s.tenant_id
	LEFT JOIN member m ON m.cohort_id = s.cohort_id AND m.phase = s.phase AND m.schedule_id = s.id AND m.tenant_id = s.tenant_id
	LEFT JOIN subject_profile profile ON profile.tenant_id = s.tenant_id AND profile.subject = CASE WHEN s.by_subject THEN CASE WHEN s.subject IS NULL THEN s.key ELSE s.subject END END`

var oneRow = `SELECT ` + rowColumns + ` FROM ` + rowTables + `
	WHERE s.tenant_id = $1 AND s.workflow = $2 AND s.key = $3`

// wake makes a schedule active whose pause has ended, or completed where nothing was left to come after it.
func (r *row) wake(now time.Time) {
	if r.PausedUntil == nil || r.PausedUntil.After(now) {
		return
	}
	r.setStatus(policy.Active, now)
	if r.CohortID == nil {
		r.Status = policy.Completed
	}
}

// subject returns the person or thing that the schedule is for.
func (r *row) subject() string {
	if r.Subject != nil {
		return *r.Subject
	}
	return r.Key
}

func absent(workflow, key string) error {
	return fault.NotFound("no schedule %q of workflow %q", key, workflow)
}

// timing is what the row fires by: its cohort's, or for one that does not fire what its spec says. One that cannot be
// computed is ErrUncomputable.
func (r *row) timing(ctx context.Context, db postgres.DB, ts *cohorts.Timings, tenant tenants.ID) (*calendar.Timing, error) {
	if r.CohortID != nil {
		found, bad, err := ts.Of(ctx, db, []cohorts.CohortTiming{r.cohortTiming(tenant)})
		if err != nil {
			return nil, err
		}
		if found[0] == nil {
			return nil, fmt.Errorf("timing of cohort %d: %w: %v", *r.CohortID, cohorts.ErrUncomputable, bad[*r.CohortID])
		}
		return found[0], r.lookBeyond(ctx, db, ts, tenant, found[0])
	}
	return ts.CompileStored(ctx, db, r.stored(tenant))
}

// lookBeyond finds what the row fires by after it is retimed, where that is about to be.
func (r *row) lookBeyond(ctx context.Context, db postgres.DB, ts *cohorts.Timings, tenant tenants.ID, t *calendar.Timing) error {
	if r.then = nil; r.RetimeAt == nil {
		return nil
	}
	a, err := ts.CalendarsNow(ctx, db, tenant, t.Named())
	if err != nil {
		return err
	}
	if r.then, _, err = ts.Renewed(tenant, t, a); err != nil {
		return fmt.Errorf("timing of cohort %d: %w: %v", *r.CohortID, cohorts.ErrUncomputable, err)
	}
	return nil
}

func (r *row) cohortTiming(tenant tenants.ID) cohorts.CohortTiming {
	return cohorts.CohortTiming{Tenant: tenant, Shard: r.Shard, ID: *r.CohortID, Hash: r.Hash, Stamp: cohorts.Stamp{Revision: *r.Revision, TZData: *r.Timed}}
}

// stored returns the row's own spec with what its timing is compiled from.
func (r *row) stored(tenant tenants.ID) cohorts.StoredSpec {
	return cohorts.StoredSpec{
		Tenant: tenant, ID: r.ID, Workflow: r.Workflow, Key: r.Key, Spec: r.Spec, AnchorAt: r.AnchorAt,
		Moves: r.shifts(), Profile: r.Profile(), Compiled: r.compiled,
	}
}

// warnings returns the warnings of the row's own spec as of the day of now; t is the timing that it fires by.
func (r *row) warnings(ctx context.Context, db postgres.DB, ts *cohorts.Timings, tenant tenants.ID, t *calendar.Timing, now time.Time) []calendar.Warning {
	var cohort *cohorts.CohortTiming
	if r.CohortID != nil {
		cohort = new(r.cohortTiming(tenant))
	}
	return ts.Warnings(ctx, db, r.stored(tenant), cohort, t, now)
}

// nextAfter is the first nominal time that the member serves and that lies after a moment, within its bounds; those that
// are to be left out are passed over.
func (r *row) nextAfter(t *calendar.Timing, after time.Time) (time.Time, bool) {
	if r.FromAt == nil {
		return time.Time{}, false
	}
	if runs.Delays(t) {
		return r.armed(t, after)
	}
	if first := r.FromAt.Add(-time.Second); after.Before(first) {
		after = first
	}
	tick, ok := r.nextTick(t, after)
	for ok && r.skipped(tick.At) {
		tick, ok = r.nextTick(t, tick.At)
	}
	if !ok || (r.UntilAt != nil && tick.At.After(*r.UntilAt)) {
		return time.Time{}, false
	}
	return tick.At, true
}

// nextTick is t.Next, by what the row fires by at that time.
func (r *row) nextTick(t *calendar.Timing, after time.Time) (calendar.Tick, bool) {
	if r.then == nil {
		return t.Next(after)
	}
	if r.RetimeAt.After(after) {
		if tick, ok := t.Next(after); ok && !tick.At.After(*r.RetimeAt) {
			return tick, true
		}
		after = *r.RetimeAt
	}
	return r.then.Next(after)
}

// unserved are the nominal times of the member that have come and that the sweep has not come to: of the run that is
// under way, of those that would begin now, and of one that waits for the end of quiet hours.
func (r *row) unserved(t *calendar.Timing, now time.Time) iter.Seq[runs.Run] {
	return func(yield func(runs.Run) bool) {
		if r.FromAt == nil {
			return
		}
		if run, ahead := r.underWay(t, now); ahead {
			if own, counts := run.For(t, *r.FromAt, r.UntilAt); counts && !yield(own) {
				return
			}
		}
		until := now
		if r.RetimeAt != nil {
			until = *r.RetimeAt
		}
		var next time.Time
		if r.NextAt != nil {
			next = r.NextAt.UTC()
		}
		next, more := r.serve(t, next, until, now, yield)
		if more && r.then != nil && (next.IsZero() || next.After(until)) {
			t = r.then
			tick, _ := t.Next(until)
			next, more = r.serve(t, tick.At, now, now, yield)
		}
		if !more || next.IsZero() || next.After(now) {
			return
		}
		waiting := runs.Run{At: next, From: next, Quiet: true}.Until(t, now.Truncate(time.Second).Add(time.Second))
		if own, counts := waiting.Placed(t).For(t, *r.FromAt, r.UntilAt); counts {
			yield(own)
		}
	}
}

// serve yields the runs of a timing from a nominal time on, of times until a moment, as far as they are due; it returns the
// time after them (zero: there is none), and whether more is wanted.
func (r *row) serve(t *calendar.Timing, next, until, now time.Time, yield func(runs.Run) bool) (time.Time, bool) {
	for !next.IsZero() && !next.After(until) && !t.Due(next).After(now) {
		run := runs.BeginUntil(t, next, until, now, *r.CohortMissed)
		if own, counts := run.For(t, *r.FromAt, r.UntilAt); counts && !yield(own) {
			return next, false
		}
		next = run.Next
	}
	return next, true
}

// underWay is the run of the row's cohort that has not come to it yet, if there is one.
func (r *row) underWay(t *calendar.Timing, now time.Time) (run runs.Run, ahead bool) {
	if r.RunAt == nil {
		return run, false
	}
	run = runs.Resume(t, r.RunAt.UTC(), r.RunFrom.UTC(), int(*r.RunMissed), *r.RunDrop, now)
	if walk, jitters := runs.WalkOf(t, run, r.Workflow); jitters {
		return run, !walk.Passed(*r.AtPhase, *r.AtID, r.Phase, r.ID)
	}
	return run, *r.AtPhase < r.Phase || *r.AtPhase == r.Phase && *r.AtID < r.ID
}

// schedule shows the row as of now.
func (r *row) schedule(ctx context.Context, db postgres.DB, s *Schedules, tenant tenants.ID, now time.Time) (Schedule, error) {
	r.wake(now)
	terms, err := policy.Resolve(r.Stored, r.Defaults)
	if err != nil {
		return Schedule{}, err
	}
	out := Schedule{Note: r.Note, Core: Core{
		ID: s.IDs.Schedule(r.ID), Workflow: r.Workflow, Key: r.Key, Subject: r.subject(), Version: r.Version, Status: r.Status,
		Labels: r.Labels, StatusNote: r.StatusNote, PausedUntil: instant.UTC(r.PausedUntil), PausedBy: r.PausedBy,
		Upcoming: make([]time.Time, 0, upcomingShown), LastAt: instant.UTC(r.LastAt), Inherited: r.Inherited(), Warnings: []calendar.Warning{},
		Stats:  Stats{r.Fired, r.Succeeded, r.Failed, r.Skipped, r.MissedTimes},
		TZData: r.TZData, CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(), UpdatedBy: r.UpdatedBy,
	}}
	out.Policy, out.Delivery = terms.Show()
	if r.Timed != nil {
		out.TZData = *r.Timed
	}
	if r.Payload != nil {
		out.Payload = web.Raw(*r.Payload)
	}
	if r.LastTickAt != nil {
		out.LastTickID = new(s.IDs.Tick(ident.TickKey{Schedule: r.ID, At: r.LastTickAt.UTC(), Seq: *r.LastSeq}))
	}
	if out.Spec, err = s.Timings.Spec(r.Spec); err != nil {
		return out, fmt.Errorf("spec of schedule %d: %w", r.ID, err)
	}
	out.TimezoneInForce = cmp.Or(out.Spec.Timezone, "UTC")
	t, err := r.timing(ctx, db, s.Timings, tenant)
	if errors.Is(err, cohorts.ErrUncomputable) {
		out.Warnings = append(out.Warnings, calendar.Warning{Code: "not_computable", Detail: "the spec can no longer be computed: put another"})
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Reading, out.TimezoneInForce = t.Reading(), t.Zone()
	out.Warnings = append(out.Warnings, r.warnings(ctx, db, s.Timings, tenant, t, now)...)
	r.lookAhead(&out.Core, t, now)
	return out, nil
}

// lookAhead sets the coming ticks of a schedule that is shown as of now.
func (r *row) lookAhead(out *Core, t *calendar.Timing, now time.Time) {
	after := now
	for due := range r.unserved(t, now) {
		after = due.At.Add(-time.Second)
		break
	}
	for range upcomingShown {
		at, ok := r.nextAfter(t, after)
		if !ok {
			break
		}
		out.Upcoming, after = append(out.Upcoming, at), at
	}
	if len(out.Upcoming) > 0 {
		out.NextAt, out.NextLocal = &out.Upcoming[0], new(t.Local(out.Upcoming[0]).Format(time.RFC3339))
	}
}

// fetchTimings reads the timings of rows of one tenant that are not kept yet, in one query.
func fetchTimings(ctx context.Context, db postgres.DB, ts *cohorts.Timings, tenant tenants.ID, rows []*row) error {
	var names []cohorts.CohortTiming
	for _, r := range rows {
		if r.CohortID != nil {
			names = append(names, r.cohortTiming(tenant))
		}
	}
	_, _, err := ts.Of(ctx, db, names)
	return err
}

// answer shows the row as schedule does, and warns of a crowded minute among those in which it fires.
func (r *row) answer(ctx context.Context, tx pgx.Tx, s *Schedules, ahead *forecast.Cached, c change) (Schedule, error) {
	tenant, q, now := c.tenant, c.quotas, c.now
	out, err := r.schedule(ctx, tx, s, tenant, now)
	if err != nil || r.CohortID == nil {
		return out, err
	}
	if t, err := r.timing(ctx, tx, s.Timings, tenant); err == nil {
		out.Warnings = append(out.Warnings, ahead.Peak(t, r.Workflow, q, now)...)
	}
	out.Warnings = append(out.Warnings, s.Forecasts.Soft(tenant, ahead, q)...)
	return out, nil
}
