package explain

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/state"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/instant"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// Explain says what a schedule did, or will do, at a moment. at is an RFC 3339 instant, or a wall time in the schedule's zone.
func (e *Explainer) Explain(ctx context.Context, tenant tenants.ID, workflow, key, at string) (Explanation, error) {
	a, err := readAsked(at)
	if err != nil {
		return Explanation{}, err
	}
	keeping, err := e.history.Kept(ctx, tenant)
	if err != nil {
		return Explanation{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	p, err := e.present(ctx, tenant, workflow, key)
	if err != nil {
		return Explanation{}, err
	}
	around := a.instant
	if around.IsZero() {
		around = a.wall
	}
	k := known{at: a.instant, now: p.Now.UTC()}
	if k.story, err = e.story(ctx, tenant, p, around); err != nil {
		return Explanation{}, err
	}
	if a.instant.IsZero() {
		if err := e.placeWall(ctx, tenant, p.ID, a, &k); err != nil {
			return Explanation{}, err
		}
	}
	if err := e.lookAround(ctx, tenant, p, keeping, &k); err != nil {
		return Explanation{}, err
	}
	out := k.explain()
	if out.Tick != nil && out.Tick.Timestamp.Equal(k.at) { // with its attempts, if it was not deleted since
		if whole, err := e.history.Tick(ctx, tenant, out.Tick.TickID); err == nil {
			out.Tick = &whole
		} else if !fault.IsNotFound(err) {
			return Explanation{}, err
		}
	}
	out.Steps = k.steps(&out, "/v1/workflows/"+url.PathEscape(p.Workflow)+"/schedules/"+url.PathEscape(p.Key))
	return out, nil
}

// present is a schedule as it is now.
type present struct {
	ID          int64
	Workflow    string
	Key         string
	Subject     string
	Version     int32
	Shard       int16
	Status      string
	CohortID    *int64
	Spec        string
	AnchorAt    time.Time
	PausedUntil *time.Time
	CreatedAt   time.Time
	UpdatedAt   time.Time
	Moves       []cohorts.Moved
	Skips       []time.Time
	SeenAt      *time.Time
	FromAt      *time.Time
	UntilAt     *time.Time
	Stopped     bool
	Held        bool
	Now         time.Time
}

// heldNow says whether the workflow of schedule s is held.
const heldNow = `EXISTS (SELECT FROM workflow w WHERE w.tenant_id = s.tenant_id AND w.name = s.workflow AND w.held_at IS NOT NULL)`

func (e *Explainer) present(ctx context.Context, tenant tenants.ID, workflow, key string) (*present, error) {
	rows, _ := e.api.Query(ctx, `
		SELECT s.id, s.workflow, s.key, COALESCE(s.subject, s.key) AS subject, s.version, s.shard, s.status, s.cohort_id, s.spec, s.anchor_at, s.paused_until, s.created_at, s.updated_at, s.moves,
			st.skips, `+state.SeenAt+` AS seen_at, m.from_at, m.until_at, `+tenants.Stopped+` AS stopped, `+heldNow+` AS held, `+postgres.Now+` AS now
		FROM schedule s
		JOIN schedule_state st ON st.tenant_id = s.tenant_id AND st.schedule_id = s.id
		JOIN tenant t ON t.id = s.tenant_id
		LEFT JOIN member m ON m.cohort_id = s.cohort_id AND m.phase = s.phase AND m.schedule_id = s.id AND m.tenant_id = s.tenant_id
		WHERE s.tenant_id = $1 AND s.workflow = $2 AND s.key = $3`, tenant, workflow, key) // CollectExactlyOneRow reports the error
	p, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[present])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fault.NotFound("no schedule %q of workflow %q", key, workflow)
	}
	if err != nil {
		return nil, fmt.Errorf("read schedule: %w", err)
	}
	return p, nil
}

// past is an earlier version of a schedule.
type past struct {
	Workflow, Key string
	Subject       string
	Spec          string
	AnchorAt      time.Time
	Status        string
	PausedUntil   *time.Time
	ChangedAt     *time.Time
	EndedAt       time.Time
	First         bool
}

// timed is what the timing of a version depends on.
type timed struct{ spec, subject string }

const (
	pastBefore = 5  // versions that ended before the moment, of which the previous tick may be
	pastAfter  = 20 // versions that ended after it
)

// story reads the versions of a schedule around a moment.
func (e *Explainer) story(ctx context.Context, tenant tenants.ID, p *present, around time.Time) (story, error) {
	s := story{
		created: p.CreatedAt.UTC(), moves: p.Moves, status: p.Status, skips: p.Skips, seen: instant.UTC(p.SeenAt),
		from: instant.UTC(p.FromAt), until: instant.UTC(p.UntilAt), stopped: p.Stopped, held: p.Held,
	}
	rows, _ := e.api.Query(ctx, `
		SELECT workflow, key, COALESCE(subject, key) AS subject, spec, anchor_at, status, paused_until, changed_at, ended_at, version = 1 AS first
		FROM (
			(SELECT * FROM revision WHERE tenant_id = $1 AND schedule_id = $2 AND ended_at < $3 ORDER BY version DESC LIMIT $4)
			UNION ALL
			(SELECT * FROM revision WHERE tenant_id = $1 AND schedule_id = $2 AND ended_at >= $3 ORDER BY version LIMIT $5)
		) r
		ORDER BY version`, tenant, p.ID, around.Add(-24*time.Hour), pastBefore, pastAfter) // CollectRows reports the error
	all, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[past])
	if err != nil {
		return s, fmt.Errorf("read versions: %w", err)
	}
	known := map[timed]*calendar.Timing{}
	for _, one := range all {
		t, found := known[timed{one.Spec, one.Subject}]
		if !found {
			if t, err = e.timedBy(ctx, cohorts.StoredSpec{Tenant: tenant, ID: p.ID, Workflow: one.Workflow, Key: one.Key, Subject: one.Subject, Spec: one.Spec, AnchorAt: one.AnchorAt.UTC()}, p.Moves); err != nil {
				return s, err
			}
			known[timed{one.Spec, one.Subject}] = t
		}
		from := p.CreatedAt
		if one.ChangedAt != nil {
			from = *one.ChangedAt
		}
		s.versions = append(s.versions, version{
			from: from.UTC(), to: one.EndedAt.UTC(), paused: one.Status == policy.Paused,
			pausedUntil: instant.UTC(one.PausedUntil), timing: t,
		})
	}
	s.whole = p.Version == 1 || len(all) > 0 && all[0].First
	last := version{from: p.UpdatedAt.UTC(), paused: p.Status == policy.Paused, pausedUntil: instant.UTC(p.PausedUntil)}
	if last.timing, err = e.presentTiming(ctx, tenant, p); err != nil {
		return s, err
	}
	s.versions = append(s.versions, last)
	return s, nil
}

// timedBy returns the timing of a spec with the moves of its schedule; nil if it cannot be computed.
func (e *Explainer) timedBy(ctx context.Context, spec cohorts.StoredSpec, moves []cohorts.Moved) (*calendar.Timing, error) {
	t, broken, err := e.timings.FromSpec(ctx, e.api, spec)
	if broken != nil || err != nil {
		return nil, err
	}
	return t.Moved(cohorts.Shifts(moves)), nil
}

// presentTiming returns the timing of the schedule now: of its cohort, or of its spec.
func (e *Explainer) presentTiming(ctx context.Context, tenant tenants.ID, p *present) (*calendar.Timing, error) {
	if p.CohortID != nil {
		found, _, err := e.timings.ByCohort(ctx, e.api, tenant, []int16{p.Shard}, []int64{*p.CohortID})
		if err != nil {
			return nil, err
		}
		if t := found[*p.CohortID]; t != nil {
			return t.Moved(cohorts.Shifts(p.Moves)), nil
		}
	}
	return e.timedBy(ctx, cohorts.StoredSpec{Tenant: tenant, ID: p.ID, Workflow: p.Workflow, Key: p.Key, Subject: p.Subject, Spec: p.Spec, AnchorAt: p.AnchorAt.UTC()}, p.Moves)
}

// placeWall sets k.at to the instant of a wall time, in the zone that the schedule had then.
func (e *Explainer) placeWall(ctx context.Context, tenant tenants.ID, schedule int64, a asked, k *known) error {
	recorded := map[int64]bool{}
	rows, _ := e.api.Query(ctx, `
		SELECT nominal_at
		FROM tick
		WHERE tenant_id = $1 AND schedule_id = $2 AND nominal_at BETWEEN $3 AND $4`, tenant, schedule, a.wall.Add(-30*time.Hour), a.wall.Add(30*time.Hour)) // ForEachRow reports the error
	var at time.Time
	if _, err := pgx.ForEachRow(rows, []any{&at}, func() error { recorded[at.Unix()] = true; return nil }); err != nil {
		return fmt.Errorf("read ticks: %w", err)
	}
	k.read(a, recorded)
	return nil
}

const nearby = time.Hour // how far from the moment a manual tick is mentioned

// lookAround reads the ticks at the moment and near it that are within their retention.
func (e *Explainer) lookAround(ctx context.Context, tenant tenants.ID, p *present, keeping history.Kept, k *known) error {
	named, err := record.SchedulesOf(ctx, e.api, tenant, []int64{p.ID})
	if err != nil {
		return err
	}
	good, _ := keeping.Since(named[p.ID])
	k.kept = latest(keeping.Oldest, good)
	moved := k.at
	if i := slices.IndexFunc(k.moves, func(m cohorts.Moved) bool { return m.At.Equal(k.at) }); i >= 0 {
		moved = k.moves[i].To
	}
	rows, _ := e.api.Query(ctx, `
		(SELECT `+record.Columns+` FROM tick t
			WHERE t.tenant_id = $1 AND t.schedule_id = $2 AND t.nominal_at = $3 ORDER BY t.seq LIMIT 1)
		UNION ALL
		(SELECT `+record.Columns+` FROM tick t
			WHERE `+record.KeyIs("t", "$1", "$2", "$4", "0")+` AND $4 <> $3)
		UNION ALL
		(SELECT `+record.Columns+` FROM tick t
			WHERE t.tenant_id = $1 AND t.schedule_id = $2 AND t.nominal_at > $3 AND t.cause = ANY($5) ORDER BY t.nominal_at, t.seq LIMIT 1)
		UNION ALL
		(SELECT `+record.Columns+` FROM tick t
			WHERE t.tenant_id = $1 AND t.schedule_id = $2 AND t.nominal_at BETWEEN $6 AND $7 AND t.cause = $8
			ORDER BY abs(extract(epoch FROM t.nominal_at - $3)) LIMIT 1)`,
		tenant, p.ID, k.at, moved, timedCauses, k.at.Add(-nearby), k.at.Add(nearby), int16(record.Manual)) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[record.Tick])
	if err != nil {
		return fmt.Errorf("read ticks: %w", err)
	}
	at, err := record.SchedulesAt(ctx, e.api, tenant, found, named)
	if err != nil {
		return err
	}
	for i, t := range found {
		if keeping.Over(t, named[p.ID]) {
			continue
		}
		shown := e.history.Shown(t, at[i])
		if err := e.history.Localize(ctx, e.api, tenant, &shown); err != nil {
			return err
		}
		switch at := shown.Timestamp; {
		case at.Equal(k.at):
			k.tick = &shown
		case t.Cause == record.Manual:
			k.manual = &shown
		case at.Equal(moved):
			k.moved = &shown
		case k.after == nil:
			k.after = &shown
		}
	}
	if k.tick != nil {
		return nil
	}
	k.tick, err = e.letter(ctx, tenant, ident.TickKey{Schedule: p.ID, At: k.at})
	return err
}
