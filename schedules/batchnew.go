package schedules

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// nursery is what the new schedules of a batch need to know about their tenant.
type nursery struct {
	room, stored int               // for more schedules, and how many there are
	defaults     map[string][]byte // of the workflows that are registered
	missing      map[string]bool   // workflows that the batch registers
	workflows    int               // how many there are, once that is asked; before that -1
}

// defineFresh makes rows of the items that are not stored, and registers their workflows.
func (u *upserts) defineFresh(ctx context.Context) error {
	if len(u.fresh) == 0 {
		return nil
	}
	n := nursery{missing: map[string]bool{}, workflows: -1}
	var err error
	if n.defaults, err = u.defaults(ctx); err != nil {
		return err
	}
	if n.room, n.stored, err = u.batch.schedules.Forecasts.Room(ctx, u.batch.tx, u.batch.tenant, len(u.fresh), u.batch.quotas); err != nil {
		return err
	}
	for _, ord := range u.fresh {
		it := u.items[ord]
		if err := u.defineNew(ctx, it, u.shards[ord], &n); err != nil {
			if err := it.refuse(err); err != nil {
				return err
			}
		}
	}
	return u.register(ctx, n.missing)
}

// defineNew makes the row of an item that is not stored.
func (u *upserts) defineNew(ctx context.Context, it *Item, shard int16, n *nursery) error {
	if err := it.pre.Check(false, 0); err != nil {
		return err
	}
	r, t, err := u.batch.schedules.newborn(policy.Name{Tenant: u.batch.tenant, Workflow: it.Workflow, Key: it.Key}, shard, it.definition, u.batch.change, u.batch.timings.memo)
	if err != nil {
		return err
	}
	if n.room < 1 {
		return tenants.Exceeded("schedules", u.batch.quotas.Schedules, n.stored)
	}
	defaults, registered := n.defaults[it.Workflow]
	if !registered {
		if err := u.mayRegister(ctx, it.Workflow, n); err != nil {
			return err
		}
	}
	if err := u.batch.takeSpace(ctx, r.held()); err != nil {
		return err
	}
	w := &rewrite{row: r, newborn: true, action: it.action(), origin: it.origin}
	r.Defaults = defaults
	u.batch.hold(t, it.almanac)
	if r.Status == policy.Active {
		if err := u.batch.schedules.afford(u.batch.tenant, r, effect{timing: t}, nil, u.batch.quotas, u.batch.now); err != nil {
			return err
		}
		if err := u.batch.rearm(ctx, w, t); err != nil {
			return err
		}
	}
	if !registered {
		n.missing[it.Workflow] = true
	}
	u.batch.add(w, t)
	n.room, n.stored = n.room-1, n.stored+1
	it.row, it.Result = r, Inserted
	return nil
}

// mayRegister returns a fault if the tenant may not have one workflow more.
func (u *upserts) mayRegister(ctx context.Context, name string, n *nursery) (err error) {
	if n.missing[name] {
		return nil
	}
	if n.workflows < 0 {
		if n.workflows, err = countWorkflows(ctx, u.batch.tx, u.batch.tenant); err != nil {
			return err
		}
	}
	if n.workflows+len(n.missing) >= u.batch.quotas.Workflows {
		return tenants.Exceeded("workflows", u.batch.quotas.Workflows, n.workflows+len(n.missing))
	}
	return nil
}

// defaults reads the defaults of the workflows of fresh items, as far as they are registered, and draws the ids of the new schedules.
func (u *upserts) defaults(ctx context.Context) (map[string][]byte, error) {
	names := map[string]bool{}
	for _, ord := range u.fresh {
		names[u.items[ord].Workflow] = true
	}
	found := make(map[string][]byte, len(names))
	var q pgx.Batch
	q.Queue(`SELECT name, defaults FROM workflow WHERE tenant_id = $1 AND name = ANY($2)`, u.batch.tenant, slices.Collect(maps.Keys(names))).Query(func(rows pgx.Rows) error {
		var name string
		var stored []byte
		_, err := pgx.ForEachRow(rows, []any{&name, &stored}, func() error {
			found[name] = bytes.Clone(stored)
			return nil
		})
		return err
	})
	if !u.batch.dry {
		q.Queue(`SELECT nextval('schedule_id_seq') FROM generate_series(1, $1)`, len(u.fresh)).Query(func(rows pgx.Rows) (err error) {
			u.batch.writes.ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
	}
	if err := u.batch.tx.SendBatch(ctx, &q).Close(); err != nil {
		return nil, fmt.Errorf("read workflows: %w", err)
	}
	return found, nil
}

// register makes the workflows that were not there a moment ago. One that another has made since may have other defaults.
func (u *upserts) register(ctx context.Context, missing map[string]bool) error {
	if len(missing) == 0 {
		return nil
	}
	done, err := u.batch.tx.Exec(ctx, `
		INSERT INTO workflow (tenant_id, name)
		SELECT $1, name FROM unnest($2::text[]) AS n (name)
		ON CONFLICT DO NOTHING`, u.batch.tenant, slices.Sorted(maps.Keys(missing)))
	if err != nil {
		return fmt.Errorf("register workflows: %w", err)
	}
	if int(done.RowsAffected()) < len(missing) {
		return errRaced
	}
	return nil
}
