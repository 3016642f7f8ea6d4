package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/tenants"
)

// DeadReplayParams ask for the dead letters of a filter to be delivered again. The zero Filter picks all.
type DeadReplayParams struct {
	Filter history.DeadFilter `json:"filter,omitzero"`
	DryRun bool               `json:"dry_run,omitempty"` // nothing is delivered: the answer tells what would be
}

// DeadReplayPreview is what a replay would deliver again now: how many ticks, and the latest of them.
type DeadReplayPreview struct {
	Matched int64          `json:"matched"`
	Sample  []history.Tick `json:"sample"`
}

const mostDeadSampled = 20

// PreviewReplayDead returns what ReplayDead would deliver again.
func (rs *Replays) PreviewReplayDead(ctx context.Context, tenant tenants.ID, f history.DeadFilter) (out DeadReplayPreview, err error) {
	if err := f.Check(); err != nil {
		return out, err
	}
	if out.Matched, err = rs.history.CountDead(ctx, tenant, f); err != nil {
		return out, err
	}
	out.Sample, _, err = rs.history.DeadLetters(ctx, tenant, f, mostDeadSampled, "")
	return out, err
}

const (
	deadReplayKind  = "replay_dead_letters"
	deadReplayBatch = 100 // a second
)

// ReplayDead begins an operation that delivers the dead letters of a filter again, newest first, a hundred a second:
// those that were there when it began.
func (rs *Replays) ReplayDead(ctx context.Context, tenant tenants.ID, p DeadReplayParams, by string, request once.Request) (op operations.Answer, replayed bool, err error) {
	if err := p.Filter.Check(); err != nil {
		return op, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, rs.api, func(tx pgx.Tx) error {
		op, replayed, err = once.Do(ctx, tx, int32(tenant), request, func() (operations.Answer, error) {
			return rs.operations.Begin(ctx, tx, operations.Request{Tenant: tenant, Kind: deadReplayKind, Params: p, Subject: p.Filter.Key, By: by})
		})
		return err
	})
	return op, replayed, err
}

// deadReplayStep delivers the next dead letters again. Dead letters whose schedule or workflow is deleted stay as they are.
func (rs *Replays) deadReplayStep(ctx context.Context, tx pgx.Tx, op *operations.Operation) (done bool, err error) {
	var p DeadReplayParams
	from := history.DeadAt{}
	stepped, err := op.Read(&p, &from)
	if err != nil {
		return false, err
	}
	if !stepped {
		from.At = p.Filter.Until()
	}
	letters, more, err := rs.history.DeadBefore(ctx, tx, op.Tenant, p.Filter, from, deadReplayBatch)
	if err != nil {
		return false, err
	}
	for _, l := range letters {
		from = l.Place()
		if l.FailedAt.After(op.Begun) {
			continue
		}
		err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
			_, err := rs.replay(ctx, inner, op.Tenant, l.RowKey())
			return err
		})
		f, refused := errors.AsType[*fault.Error](err)
		switch {
		case err == nil:
			op.Count("replayed", 1)
		case fault.IsNewerVersion(err):
			return false, err
		case refused:
			op.Count(f.Code, 1)
		case errors.Is(err, errNoLetter):
			continue
		default:
			return false, fmt.Errorf("deliver dead letters again: %w", err)
		}
		op.Done++
	}
	op.WaitUntil = op.Now.Add(time.Second)
	return !more, op.Keep(from)
}

// RegisterSteps registers the operation that replays dead letters. It is called once, before any operation runs.
func (rs *Replays) RegisterSteps() {
	rs.operations.Register(deadReplayKind, rs.deadReplayStep)
}

// revive records the tick of a dead letter again, if its row is gone with its day. It returns nil if there is no such dead letter.
func (rs *Replays) revive(ctx context.Context, tx pgx.Tx, tenant tenants.ID, k ident.TickKey) (*record.Tick, error) {
	l, err := rs.history.Letter(ctx, tx, tenant, k)
	if err != nil || l == nil {
		return nil, err
	}
	l.Tick.Workflow = l.Workflow
	if err := record.RecordTick(ctx, tx, tenant, &l.Tick); err != nil {
		return nil, err
	}
	var b pgx.Batch
	record.QueueIndex(&b, tenant, []record.Tick{l.Tick})
	return &l.Tick, tx.SendBatch(ctx, &b).Close()
}
