package explain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Planned is a nominal time of a day, with what became or will become of it. Tick is its record, if there is one.
type Planned struct {
	Timestamp time.Time
	LocalTime string // in the zone that the schedule had then
	Outcome   string
	Detail    string
	Tick      *history.Tick
}

// Day is what a schedule did and will do from a moment until another. More reports that it has more ticks than are listed.
type Day struct {
	Planned []Planned
	More    bool
	Existed bool // the schedule was there at some time of the day
}

// mostPlanned limits the ticks of a Day.
const mostPlanned = 100

// Day explains all ticks of a schedule with nominal times from from on and before to: those that its versions name, and those that are
// recorded for other reasons.
func (e *Explainer) Day(ctx context.Context, of policy.Name, from, to time.Time) (d Day, err error) {
	keeping, err := e.history.Kept(ctx, of.Tenant)
	if err != nil {
		return d, err
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	p, err := e.present(ctx, of.Tenant, of.Workflow, of.Key)
	if err != nil {
		return d, err
	}
	k := known{now: p.Now.UTC()}
	if k.story, err = e.story(ctx, of.Tenant, p, from); err != nil {
		return d, err
	}
	d.Existed = k.created.Before(to)
	ticks, more, err := e.ticksOn(ctx, of.Tenant, p.ID, from, to)
	if err != nil {
		return d, err
	}
	named, err := record.SchedulesOf(ctx, e.api, of.Tenant, []int64{p.ID})
	if err != nil {
		return d, err
	}
	good, _ := keeping.Since(named[p.ID])
	k.kept = latest(keeping.Oldest, good)
	shown, err := e.shown(ctx, of.Tenant, ticks, named, keeping)
	if err != nil {
		return d, err
	}
	times, moreTimes := k.plannedOn(from, to)
	d.More = more || moreTimes
	for _, at := range times {
		one, err := e.planned(ctx, of.Tenant, p.ID, k, at, shown)
		if err != nil {
			return d, err
		}
		switch one.Outcome {
		case outcomeNotDue, outcomeAfterEnd, outcomeBeforeCreated:
		default:
			d.Planned = append(d.Planned, one)
		}
	}
	for i := range shown {
		t := &shown[i]
		if !t.Timestamp.Before(to) || slices.ContainsFunc(times, t.Timestamp.Equal) {
			continue
		}
		d.Planned = append(d.Planned, k.asRecorded(t))
	}
	slices.SortStableFunc(d.Planned, func(a, b Planned) int { return a.Timestamp.Compare(b.Timestamp) })
	return d, nil
}

// RecordedOn is Day for a schedule that is deleted: it knows only the recorded ticks.
func (e *Explainer) RecordedOn(ctx context.Context, tenant tenants.ID, schedule int64, zone *time.Location, from, to time.Time) (d Day, err error) {
	keeping, err := e.history.Kept(ctx, tenant)
	if err != nil {
		return d, err
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	named, err := record.SchedulesOf(ctx, e.api, tenant, []int64{schedule})
	if err != nil {
		return d, err
	}
	ticks, more, err := e.ticksOn(ctx, tenant, schedule, from, to)
	if err != nil {
		return d, err
	}
	shown, err := e.shown(ctx, tenant, ticks, named, keeping)
	if err != nil {
		return d, err
	}
	k := known{story: story{versions: []version{{}}}}
	d.More = more
	for i := range shown {
		if !shown[i].Timestamp.Before(to) {
			continue
		}
		one := k.asRecorded(&shown[i])
		one.LocalTime = one.Timestamp.In(zone).Format(time.RFC3339)
		d.Planned, d.Existed = append(d.Planned, one), true
	}
	return d, nil
}

// ticksOn reads the ticks of a schedule in a span, and the first timed one after it, in the order of nominal time.
func (e *Explainer) ticksOn(ctx context.Context, tenant tenants.ID, schedule int64, from, to time.Time) (found []*record.Tick, more bool, err error) {
	rows, _ := e.api.Query(ctx, `
		(SELECT `+record.Columns+` FROM tick t
			WHERE t.tenant_id = $1 AND t.schedule_id = $2 AND t.nominal_at >= $3 AND t.nominal_at < $4 ORDER BY t.nominal_at, t.seq LIMIT $5)
		UNION ALL
		(SELECT `+record.Columns+` FROM tick t
			WHERE t.tenant_id = $1 AND t.schedule_id = $2 AND t.nominal_at >= $4 AND t.cause = ANY($6) ORDER BY t.nominal_at, t.seq LIMIT 1)`,
		tenant, schedule, from, to, mostPlanned+1, timedCauses) // CollectRows reports the error
	found, err = pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[record.Tick])
	if err != nil {
		return nil, false, fmt.Errorf("read ticks: %w", err)
	}
	in := 0
	for _, t := range found {
		if t.NominalAt.Before(to) {
			in++
		}
	}
	if in > mostPlanned {
		found, more = slices.Delete(found, mostPlanned, in), true
	}
	return found, more, nil
}

// timedCauses are those of the ticks of a schedule's sequence.
var timedCauses = []int16{int16(record.BySchedule), int16(record.CatchUp), int16(record.Buffered)}

// shown returns ticks as the API shows them, without those past their retention.
func (e *Explainer) shown(ctx context.Context, tenant tenants.ID, ticks []*record.Tick, named map[int64]record.Schedule, keeping history.Kept) ([]history.Tick, error) {
	at, err := record.SchedulesAt(ctx, e.api, tenant, ticks, named)
	if err != nil {
		return nil, err
	}
	list := make([]history.Tick, 0, len(ticks))
	for i, t := range ticks {
		if !keeping.Over(t, named[t.ScheduleID]) {
			list = append(list, e.history.Shown(t, at[i]))
		}
	}
	return list, e.localize(ctx, tenant, list)
}

func (e *Explainer) localize(ctx context.Context, tenant tenants.ID, list []history.Tick) error {
	all := make([]*history.Tick, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return e.history.Localize(ctx, e.api, tenant, all...)
}

// letter returns the dead letter of a tick, or nil: a dead letter outlives its tick.
func (e *Explainer) letter(ctx context.Context, tenant tenants.ID, k ident.TickKey) (*history.Tick, error) {
	l, err := e.history.Letter(ctx, e.api, tenant, k)
	if err != nil || l == nil {
		return nil, err
	}
	shown := e.history.Shown(&l.Tick, l.Schedule())
	return &shown, e.history.Localize(ctx, e.api, tenant, &shown)
}

// planned explains one nominal time. ticks are those of the day and the first timed one after it.
func (e *Explainer) planned(ctx context.Context, tenant tenants.ID, schedule int64, k known, at time.Time, ticks []history.Tick) (Planned, error) {
	k.at = at
	for i := range ticks {
		t := &ticks[i]
		timed := t.Cause != record.Manual.String() && t.Cause != record.Backfill.String()
		switch {
		case t.Timestamp.Equal(at) && k.tick == nil:
			k.tick = t
		case timed && k.after == nil && t.Timestamp.After(at):
			k.after = t
		}
	}
	if k.tick == nil && at.Before(k.now) {
		letter, err := e.letter(ctx, tenant, ident.TickKey{Schedule: schedule, At: at})
		if err != nil {
			return Planned{}, err
		}
		k.tick = letter
	}
	said := k.explain()
	return Planned{Timestamp: at, LocalTime: k.local(at), Outcome: said.Outcome, Detail: said.Detail, Tick: k.tick}, nil
}

// asRecorded explains a recorded tick that no version names, such as a manual one.
func (k *known) asRecorded(t *history.Tick) Planned {
	outcome, detail := k.recorded(t)
	return Planned{Timestamp: t.Timestamp, LocalTime: k.local(t.Timestamp), Outcome: outcome, Detail: detail, Tick: t}
}

// local returns an instant in the zone that the schedule had then, in RFC 3339 form.
func (k *known) local(at time.Time) string {
	if t := k.timingAt(at); t != nil {
		return t.Local(at).Format(time.RFC3339)
	}
	return at.UTC().Format(time.RFC3339)
}

// plannedOn returns the nominal times from from on and before to that the versions of the schedule name, and whether there are more.
// Times of a pause are among them.
func (s *story) plannedOn(from, to time.Time) (times []time.Time, more bool) {
	for i := range s.versions {
		v := &s.versions[i]
		if v.timing == nil || !v.from.Before(to) {
			continue
		}
		for tick := range v.timing.All(latest(from.Add(-time.Second), v.from)) {
			if !tick.At.Before(to) || !v.to.IsZero() && tick.At.After(v.to) {
				break
			}
			if len(times) == mostPlanned {
				return times, true
			}
			times = append(times, tick.At)
		}
	}
	return times, false
}
