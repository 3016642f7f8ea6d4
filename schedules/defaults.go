package schedules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// defaultsKind is the kind of operation that a change of a workflow's defaults begins.
const defaultsKind = "defaults"

// inheritance holds the parameters of such an operation. The present default is read with each schedule.
type inheritance struct {
	Workflow string `json:"workflow"`
	Missed   string `json:"missed"`
}

// inheriting is how far such an operation has come: past these shards, then to this schedule.
type inheriting struct {
	Shard int16 `json:"shard"`
	Position
}

// inherited is what the schedules of a workflow take from it; the zero value if there is no workflow.
type inherited struct {
	defaults []byte
	fallback *string // the zone of subjects without a profile
}

// lockDefaults locks a workflow, and reads what its schedules inherit.
func lockDefaults(ctx context.Context, tx pgx.Tx, tenant tenants.ID, workflow string) (stored inherited, err error) {
	err = tx.QueryRow(ctx, `SELECT defaults, fallback_timezone FROM workflow WHERE tenant_id = $1 AND name = $2 FOR UPDATE`, tenant, workflow).Scan(&stored.defaults, &stored.fallback)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return stored, fmt.Errorf("read defaults: %w", err)
	}
	return stored, nil
}

// inherit begins the operation that moves the schedules of a workflow to other cohorts, if the default of its missed policy changes: that
// policy is part of what identifies a cohort. All other defaults are read when they are needed.
func (s *Schedules) inherit(ctx context.Context, tx pgx.Tx, tenant tenants.ID, workflow string, was, is []byte) error {
	before, err := policy.OfWorkflow(was)
	if err != nil {
		return err
	}
	after, err := policy.OfWorkflow(is)
	if err != nil || after.Missed == before.Missed {
		return err
	}
	_, err = s.Operations.Begin(ctx, tx, operations.Request{Tenant: tenant, Kind: defaultsKind, Params: inheritance{workflow, after.Missed}, By: "carillon"})
	return err
}

// inheritStep first waits, shard by shard, for transactions that read the old defaults and have not committed. Then it moves the schedules
// that inherit the policy and are in a cohort of another policy.
func (s *Schedules) inheritStep(ctx context.Context, tx pgx.Tx, op *operations.Operation) (done bool, err error) {
	var p inheritance
	var at inheriting
	if _, err := op.Read(&p, &at); err != nil {
		return false, err
	}
	if at.Shard < cohorts.Shards {
		var b pgx.Batch
		cohorts.LockShard(&b, at.Shard)
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return false, fmt.Errorf("wait for shard %d: %w", at.Shard, err)
		}
		at.Shard++
		return false, op.Keep(at)
	}
	w := walk{filter: Filter{Workflow: p.Workflow}, after: at.Position, action: actRetime, picked: func(r *row, _ *time.Time) bool {
		return r.Stored.Missed == nil && r.CohortID != nil
	}}
	done, last, err := s.step(ctx, tx, op, w)
	if err != nil {
		return false, err
	}
	at.Position = last
	return done, op.Keep(at)
}
