package open

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/state"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// triggered is a manual tick whose time has come, with its schedule as it is now. ID is nil if the schedule is deleted.
type triggered struct {
	ScheduleID int64
	NominalAt  time.Time
	Seq        int32
	ID         *int64
	Shard      int16
	Version    *int32
	CohortID   *int64
	UntilAt    *time.Time
	Paused     *bool
	Stopped    bool
	Overlap    *string
	Defaults   []byte

	later *state.Later
}

// readTriggered reads and locks the ticks that still wait for their time. The others were cancelled meanwhile.
func readTriggered(ctx context.Context, tx pgx.Tx, tenant tenants.ID, tries []record.Try) ([]*triggered, error) {
	var a record.Keys
	for _, t := range tries {
		a.Add(t.TickKey, 0)
	}
	rows, _ := tx.Query(ctx, `
		SELECT k.schedule_id, k.nominal_at, k.seq, k.shard, s.id, s.version, s.cohort_id,
			CASE WHEN s.id IS NOT NULL THEN `+record.UntilAt("k.nominal_at")+` END AS until_at,
			s.status = 'paused' AND (s.paused_until IS NULL OR s.paused_until > k.nominal_at) AS paused,
			`+tenants.Stopped+` AS stopped, s.overlap, w.defaults
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[]) AS i (id, at, seq)
		JOIN tick k ON `+record.InKeys("k")+` AND k.nominal_at BETWEEN $5 AND $6
		JOIN tenant t ON t.id = k.tenant_id
		LEFT JOIN schedule s ON s.tenant_id = k.tenant_id AND s.id = k.schedule_id
		LEFT JOIN workflow w ON w.tenant_id = s.tenant_id AND w.name = s.workflow
		WHERE k.state = $7 AND k.attempt = 0
		ORDER BY k.schedule_id, k.nominal_at, k.seq
		FOR UPDATE OF k`, tenant, a.IDs, a.At, a.Seqs, a.From, a.Through, int16(record.Scheduled)) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByNameLax[triggered])
	if err != nil {
		return nil, fmt.Errorf("read manual ticks whose times have come: %w", err)
	}
	return found, nil
}

// fireTriggered decides manual ticks whose times have come, like triggers of this moment. A tick that is handed out is held for the next
// sweep; the tick of a deleted schedule is cancelled.
func (o *Opener) fireTriggered(ctx context.Context, tx pgx.Tx, p *plan, tries []record.Try) error {
	if len(tries) == 0 {
		return nil
	}
	tenant := p.chunk.TenantID
	found, err := readTriggered(ctx, tx, tenant, tries)
	if err != nil {
		return err
	}
	var decided []*state.Later
	for _, t := range found {
		if err := t.prepare(); err != nil {
			return err
		}
		if t.ID != nil {
			decided = append(decided, t.later)
		}
	}
	if err := state.FireLater(ctx, tx, tenant, decided); err != nil {
		return err
	}
	var b pgx.Batch
	for _, t := range found {
		t.settle(p, &b, tenant)
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("fire manual ticks: %w", err)
	}
	if len(p.aside.held) == 0 {
		return nil
	}
	return cohorts.WakeSweep(ctx, tx, p.chunk.Shard)
}

// tellTriggered tells the followers of the tenant what became of manual ticks whose times had come. It runs after the commit.
func (o *Opener) tellTriggered(p *plan) {
	for _, one := range p.triggered {
		if one.is == record.Running {
			o.finish.Tail.Released(p.chunk.TenantID, one.key)
		} else {
			o.finish.Tail.EndedOne(p.chunk.TenantID, one.key, one.is)
		}
	}
}

// prepare sets what the decision of the tick depends on.
func (t *triggered) prepare() error {
	t.later = &state.Later{Schedule: t.ScheduleID, At: t.NominalAt, Seq: t.Seq, Reason: int16(t.reason())}
	if t.Defaults == nil {
		t.later.Overlap = policy.BuiltIn().Overlap
		return nil
	}
	terms, err := policy.Resolve(policy.Stored{Overlap: t.Overlap}, t.Defaults)
	t.later.Overlap = terms.Overlap
	return err
}

// reason returns why the tick is skipped whatever else runs; NoReason if it is not.
func (t *triggered) reason() record.Reason {
	switch {
	case t.Defaults == nil:
		return record.NoWorkflow
	case t.Stopped || t.Paused != nil && *t.Paused:
		return record.Paused
	}
	return record.NoReason
}

// settle writes what became of the tick.
func (t *triggered) settle(p *plan, b *pgx.Batch, tenant tenants.ID) {
	k := ident.TickKey{Schedule: t.ScheduleID, At: t.NominalAt.UTC(), Seq: t.Seq}
	is, why, attempt, ended := record.Running, record.NoReason, int16(1), (*time.Time)(nil)
	switch {
	case t.ID == nil || t.later.Gone:
		is, attempt, ended = record.Cancelled, 0, &p.now
		record.QueueEndedUse(b, tenant, p.now, is, why, t.ScheduleID)
	case t.later.Decision == state.Skipped:
		is, why, ended = record.Skipped, record.Reason(t.later.Reason), &p.now
		if why == record.NoReason {
			why = record.Overlap
		}
		record.QueueEndedUse(b, tenant, p.now, is, why, t.ScheduleID)
	case t.later.Decision == state.Buffered:
		is = record.Scheduled
		p.aside.buffered = append(p.aside.buffered, k)
		if t.later.Overlap == "cancel_other" {
			p.aside.stops = append(p.aside.stops, t.ScheduleID)
		}
	default:
		record.QueueFiredUse(b, tenant, p.now, &record.Tick{ScheduleID: t.ScheduleID, NominalAt: t.NominalAt, FiredAt: p.now, Cause: record.Manual, State: record.Scheduled})
		p.aside.held = append(p.aside.held, record.Delayed{Try: record.Try{TickKey: k, Attempt: 1}, Shard: t.Shard, Why: "manual", Due: p.now})
	}
	b.Queue(`
		UPDATE tick
		SET state = $5, reason = $6, attempt = $7, ended_at = $8, fired_at = GREATEST($9::timestamptz, nominal_at), last_at = $10, until_at = $11,
			version = COALESCE($12, version), cohort_id = $13
		WHERE `+record.ByKey, tenant, k.Schedule, k.At, k.Seq,
		int16(is), int16(why), attempt, ended, p.now, t.later.LastAt, t.UntilAt, t.Version, t.CohortID)
	if is != record.Scheduled {
		p.triggered = append(p.triggered, settled{k, is})
	}
}
