package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/state"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// The limits of manual ticks that wait for their time.
const (
	mostWaiting  = 100 // of one schedule
	longestAhead = 366 * 24 * time.Hour
)

// triggerLater makes a manual tick that waits for its time, in the caller's transaction. The sweep takes it from delayed then, and it is
// decided when it is opened. Deleting the schedule makes it due at once, so that it is cancelled.
func (c *Control) triggerLater(ctx context.Context, tx pgx.Tx, of policy.Name, s *triggered, p TriggerParams) (*record.Tick, error) {
	due, err := c.dueOf(ctx, tx, of.Tenant, s, p)
	if err != nil {
		return nil, err
	}
	t := &record.Tick{
		ScheduleID: s.ID, NominalAt: due, Version: s.Version, CohortID: s.CohortID, FiredAt: due,
		Shard: s.Shard, State: record.Scheduled, Cause: record.Manual, DST: calendar.DSTNone, Workflow: of.Workflow,
		Trace: trace.From(ctx).Stored(),
	}
	if t.Payload, err = c.payload(ctx, tx, of.Tenant, p); err != nil {
		return nil, err
	}
	if t.Seq, t.LastAt, err = state.NumberLater(ctx, tx, state.Schedule{Tenant: of.Tenant, ID: s.ID}); err != nil {
		return nil, err
	}
	// The lock of the state orders the triggers of a schedule, so that none misses the tick of another.
	var waiting int
	err = tx.QueryRow(ctx, `
		SELECT count(*)
		FROM delayed
		WHERE tenant_id = $1 AND schedule_id = $2 AND why = 'later'`, of.Tenant, s.ID).Scan(&waiting)
	if err != nil {
		return nil, fmt.Errorf("count waiting ticks: %w", err)
	}
	if waiting >= mostWaiting {
		return nil, tenants.Exceeded("waiting_triggers", mostWaiting, waiting)
	}
	if err := record.RecordTick(ctx, tx, of.Tenant, t); err != nil {
		return nil, err
	}
	now := s.Now.UTC()
	var b pgx.Batch
	record.QueueIndex(&b, of.Tenant, []record.Tick{*t})
	record.QueueUse(&b, of.Tenant, now, []record.Tick{*t})
	if t.Payload != nil {
		record.QueueUsedBytes(&b, of.Tenant, of.Workflow, now, len(*t.Payload))
	}
	record.QueueDelayed(&b, of.Tenant, s.Shard, record.Try{TickKey: t.RowKey()}, "later", due)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("queue a manual tick for later: %w", err)
	}
	return t, nil
}

// dueOf returns when a tick for later is due: a whole second after now, at most longestAhead away.
func (c *Control) dueOf(ctx context.Context, tx pgx.Tx, tenant tenants.ID, s *triggered, p TriggerParams) (time.Time, error) {
	now := s.Now.UTC()
	if p.At != "" && p.In != "" {
		return now, fault.Invalid("/in", "give at or in, not both")
	}
	if p.In != "" {
		d, ok := policy.ParseDuration(p.In)
		switch {
		case !ok:
			return now, fault.Invalid("/in", "%.40q is not a duration like 90s, 5m, 1h30m, 1d or 1w", p.In)
		case d > longestAhead:
			return now, fault.Invalid("/in", "it is at most 366 days")
		}
		return now.Add(d + time.Second - time.Nanosecond).Truncate(time.Second), nil
	}
	timings, _, err := c.messages.TimingsOf(ctx, tx, tenant, []*record.Tick{{ScheduleID: s.ID, Version: s.Version, CohortID: s.CohortID, Shard: s.Shard}})
	if err != nil {
		return now, err
	}
	if timings[0] == nil {
		return now, fault.Invalid("", "the schedule's spec cannot be computed")
	}
	at, err := timings[0].Moment(p.At)
	if faults, is := errors.AsType[calendar.Faults](err); is {
		return now, fault.Invalid("/at", "%s", faults[0].Detail)
	}
	switch {
	case err != nil:
		return now, err
	case !at.After(now):
		return now, fault.Invalid("/at", "it has passed: omit it to trigger now")
	case at.After(now.Add(longestAhead)):
		return now, fault.Invalid("/at", "it is at most 366 days from now")
	}
	return at, nil
}
