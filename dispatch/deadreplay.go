package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// DeadReplayParams ask for the dead letters of a filter to be delivered again; one that restricts nothing, or none, is all.
type DeadReplayParams struct {
	Filter DeadFilter `json:"filter,omitzero"`
}

const (
	deadReplayKind  = "replay_dead_letters"
	deadReplayBatch = 100 // a second
)

func (f DeadFilter) check() error {
	var errs []error
	if f.Workflow != "" {
		errs = append(errs, policy.CheckName("/filter/workflow", "workflow", f.Workflow))
	}
	if f.Key != "" && !policy.ValidKey(f.Key) {
		errs = append(errs, fault.Invalid("/filter/key", "a key is 1 to 256 bytes of UTF-8 without control characters"))
	}
	return fault.Join(errs...)
}

// ReplayDead begins an operation that delivers the dead letters of a filter again, newest first, a hundred a second:
// those that were there when it began. The reply is the operation, 202.
func (d *Dispatch) ReplayDead(ctx context.Context, tenant tenants.ID, p DeadReplayParams, by string, once web.Once) (reply web.Reply, err error) {
	if err := p.Filter.check(); err != nil {
		return reply, err
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, d.API, func(tx pgx.Tx) error {
		reply, err = once.Run(ctx, tx, int32(tenant), func() (int, any, error) {
			op, err := d.Operations.Begin(ctx, tx, operations.Request{Tenant: tenant, Kind: deadReplayKind, Params: p, Key: p.Filter.Key, By: by})
			return http.StatusAccepted, op, err
		})
		return err
	})
	return reply, err
}

// deadReplayStep delivers the next dead letters again. Those whose schedule or workflow is gone stay as they are.
func (d *Dispatch) deadReplayStep(ctx context.Context, tx pgx.Tx, op *operations.Operation) (done bool, err error) {
	var p DeadReplayParams
	from := deadAt{}
	stepped, err := op.Read(&p, &from)
	if err != nil {
		return false, err
	}
	if !stepped {
		from.At = p.Filter.to()
	}
	letters, more, err := d.deadBefore(ctx, tx, op.Tenant, p.Filter, from, deadReplayBatch)
	if err != nil {
		return false, err
	}
	for _, l := range letters {
		from = l.place()
		if l.FailedAt.After(op.Begun) {
			continue
		}
		err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
			_, err := d.replay(ctx, inner, op.Tenant, l.RowKey())
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

// RegisterSteps makes the operations of this package known, before anything runs.
func (d *Dispatch) RegisterSteps() {
	d.Operations.Register(backfillKind, d.backfillStep)
	d.Operations.Register(deadReplayKind, d.deadReplayStep)
}

// revive puts back the tick of a dead letter whose day is gone from the record, so that it can be delivered again.
func (d *Dispatch) revive(ctx context.Context, tx pgx.Tx, tenant tenants.ID, k ident.TickKey) (*record.Tick, error) {
	l, err := d.letter(ctx, tx, tenant, k)
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
