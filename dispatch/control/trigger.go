package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/state"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// TriggerParams may have a payload for this tick only, and its time.
type TriggerParams struct {
	Payload web.Raw `json:"payload,omitempty"`
	At      string  `json:"at,omitempty"` // when it fires: an instant, or a wall time in the schedule's zone; omitted: now
	In      string  `json:"in,omitempty"` // instead of At: a duration from now

	Pre version.Precondition `json:"-"` // of the schedule's version
}

// triggered is a schedule to trigger, with its workflow's defaults.
type triggered struct {
	ID       int64
	Shard    int16
	Version  int32
	CohortID *int64
	Subject  string
	UntilAt  *time.Time
	Overlap  *string
	Defaults []byte
	Stopped  bool
	Held     bool
	Now      time.Time
}

// Trigger makes one manual tick of a schedule, now or at a later time, under its overlap policy. The timing of the schedule stays as it is. replayed
// reports that the result is that of an earlier request with the same Idempotency-Key.
func (c *Control) Trigger(ctx context.Context, tenant tenants.ID, workflow, key string, p TriggerParams, request once.Request) (shown history.Tick, replayed bool, err error) {
	quotas, err := c.quotas(ctx, tenant)
	if err != nil {
		return shown, false, err
	}
	if len(p.Payload) > quotas.PayloadBytes {
		return shown, false, tenants.TooLarge("/payload", "payload_bytes", quotas.PayloadBytes, len(p.Payload))
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	// A transaction that ends a tick locks the tick before its schedule's state. One that supersedes it locks the state first. On a
	// deadlock one of the two is retried.
	err = postgres.Retry(ctx, func() error {
		return pgx.BeginFunc(ctx, c.api, func(tx pgx.Tx) error {
			shown, replayed, err = once.Do(ctx, tx, int32(tenant), request, func() (history.Tick, error) {
				t, subject, err := c.trigger(ctx, tx, policy.Name{Tenant: tenant, Workflow: workflow, Key: key}, p)
				if err != nil {
					return history.Tick{}, err
				}
				shown := c.history.Shown(t, record.Schedule{Workflow: workflow, Key: key, Subject: subject})
				if err := c.history.Localize(ctx, tx, tenant, &shown); err != nil {
					return shown, err
				}
				return shown, tenants.Audit(ctx, tx, tenant, "", tenants.Change{
					Action: "schedule.trigger", Target: tenants.ScheduleTarget(workflow, key), Subject: subject, After: auditedTick{shown.TickID, shown.State, shown.Reason, shown.Attempt},
				})
			})
			return err
		})
	})
	if err == nil && shown.DueAt == nil {
		c.sweep.Charge(tenant, workflow, 1)
	}
	return shown, replayed, err
}

// TriggerOf makes a manual tick of a schedule at once, as part of an action on many schedules, in the caller's transaction.
func (c *Control) TriggerOf(ctx context.Context, tx pgx.Tx, of policy.Name) error {
	if _, _, err := c.trigger(ctx, tx, of, TriggerParams{}); err != nil {
		return err
	}
	c.sweep.Charge(of.Tenant, of.Workflow, 1)
	return nil
}

// readTriggered reads a schedule for a manual tick, and locks it against changes until the transaction ends.
func readTriggered(ctx context.Context, tx pgx.Tx, of policy.Name) (*triggered, error) {
	rows, _ := tx.Query(ctx, `
		SELECT s.id, s.shard, s.version, s.cohort_id, COALESCE(s.subject, s.key) AS subject, `+record.UntilAt(postgres.Now)+` AS until_at, s.overlap, w.defaults,
			`+tenants.Stopped+` AS stopped, COALESCE(w.held_at IS NOT NULL, false) AS held, `+postgres.Now+` AS now
		FROM schedule s
		JOIN tenant t ON t.id = s.tenant_id
		LEFT JOIN workflow w ON w.tenant_id = s.tenant_id AND w.name = s.workflow
		WHERE s.tenant_id = $1 AND s.workflow = $2 AND s.key = $3
		FOR SHARE OF s`, of.Tenant, of.Workflow, of.Key) // CollectExactlyOneRow reports the error
	s, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[triggered])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fault.NotFound("no schedule %q of workflow %q", of.Key, of.Workflow)
	}
	if err != nil {
		return nil, fmt.Errorf("read schedule: %w", err)
	}
	return s, nil
}

// reason returns why a manual tick of the schedule is skipped; NoReason if it is not.
func (s *triggered) reason() record.Reason {
	switch {
	case s.Defaults == nil:
		return record.NoWorkflow
	case s.Stopped:
		return record.Paused
	}
	return record.NoReason
}

// trigger makes a manual tick of a schedule, in the caller's transaction.
func (c *Control) trigger(ctx context.Context, tx pgx.Tx, of policy.Name, p TriggerParams) (t *record.Tick, subject string, err error) {
	s, err := readTriggered(ctx, tx, of)
	if err != nil {
		return nil, "", err
	}
	if err := p.Pre.Check(true, int64(s.Version)); err != nil {
		return nil, "", err
	}
	if s.Held {
		return nil, "", fault.Conflict("workflow_held", "the workflow is held: release it first")
	}
	if p.At != "" || p.In != "" {
		t, err = c.triggerLater(ctx, tx, of, s, p)
		return t, s.Subject, err
	}
	terms, err := policy.Resolve(policy.Stored{Overlap: s.Overlap}, s.Defaults)
	if err != nil {
		return nil, "", err
	}
	reason, now := s.reason(), s.Now.UTC()
	t = &record.Tick{
		ScheduleID: s.ID, NominalAt: now.Truncate(time.Second), Version: s.Version, CohortID: s.CohortID, UntilAt: s.UntilAt, FiredAt: now,
		Shard: s.Shard, Attempt: 1, State: record.Running, Cause: record.Manual, DST: calendar.DSTNone, Workflow: of.Workflow,
		Trace: trace.From(ctx).Stored(),
	}
	if t.Payload, err = c.payload(ctx, tx, of.Tenant, p); err != nil {
		return nil, "", err
	}
	made, err := state.Trigger(ctx, tx, state.Schedule{Tenant: of.Tenant, ID: s.ID}, t.NominalAt, int16(reason), terms.Overlap)
	if err != nil {
		return nil, "", err
	}
	t.Seq, t.LastAt = made.Seq, made.LastAt
	switch {
	case made.Decision == state.Buffered:
		t.State = record.Scheduled
	case made.Decision == state.Skipped && reason == record.NoReason:
		t.State, t.Reason, t.EndedAt = record.Skipped, record.Overlap, &now
	case made.Decision == state.Skipped:
		t.State, t.Reason, t.EndedAt = record.Skipped, reason, &now
	}
	var stop []int64
	if terms.Overlap == "cancel_other" {
		stop = []int64{s.ID}
	}
	return t, s.Subject, c.sendManual(ctx, tx, of.Tenant, t, made.Decision, stop)
}

// payload returns the payload that the tick has of its own, or nil.
func (c *Control) payload(ctx context.Context, tx pgx.Tx, tenant tenants.ID, p TriggerParams) (*string, error) {
	if p.Payload == nil {
		return nil, nil
	}
	if err := c.mayStore(ctx, tx, tenant, len(p.Payload)); err != nil {
		return nil, err
	}
	return new(string(p.Payload)), nil
}

// sendManual records a manual tick and writes the rows of its decision. A buffered tick waits for the tick before it, which is asked to
// stop if its schedule is in stop. A skipped tick has ended. Any other tick is held for the next sweep.
func (c *Control) sendManual(ctx context.Context, tx pgx.Tx, tenant tenants.ID, t *record.Tick, decision state.Decision, stop []int64) error {
	if err := record.RecordTick(ctx, tx, tenant, t); err != nil {
		return err
	}
	now := t.FiredAt
	var b pgx.Batch
	record.QueueIndex(&b, tenant, []record.Tick{*t})
	record.QueueUse(&b, tenant, now, []record.Tick{*t})
	if t.Payload != nil {
		record.QueueUsedBytes(&b, tenant, t.Workflow, now, len(*t.Payload))
	}
	if decision != state.Buffered && decision != state.Skipped {
		record.QueueDelayed(&b, tenant, t.Shard, record.Try{TickKey: t.RowKey(), Attempt: 1}, "manual", now)
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("queue the manual tick: %w", err)
	}
	c.finish.Tail.Fired(tenant, []record.Tick{*t})
	switch decision {
	case state.Buffered:
		return c.finish.Buffer(ctx, tx, tenant, now, []ident.TickKey{t.RowKey()}, stop)
	case state.Skipped:
		return nil
	}
	return cohorts.WakeSweep(ctx, tx, t.Shard)
}
