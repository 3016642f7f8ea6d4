package sweep

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// HandOut makes chunks of due ticks in the caller's transaction, which holds the locks of their shards, shared: a change came before the
// sweep had taken them. They are opened like any other chunk, in order. Ticks of one tenant and shard share chunks. If a schedule has
// several ticks, each goes into a later chunk than the previous one. Ticks above the tenant's rate wait.
func (c *Chunker) HandOut(ctx context.Context, tx pgx.Tx, due []cohorts.Due) error {
	if sabotage.RetimeForgets.On() || len(due) == 0 {
		return nil
	}
	workflows, err := workflowsOf(ctx, tx, due)
	if err != nil {
		return err
	}
	for len(due) > 0 {
		var batch []cohorts.Due
		if batch, due = firstOfEach(due); len(batch) == 0 {
			return nil
		}
		for len(batch) > 0 {
			n := slices.IndexFunc(batch, func(one cohorts.Due) bool { return one.Shard != batch[0].Shard })
			if n < 0 {
				n = len(batch)
			}
			if err := c.handOutOf(ctx, tx, batch[:n], workflows); err != nil {
				return err
			}
			batch = batch[n:]
		}
	}
	return nil
}

// handOutOf makes the chunks of one shard. Ticks that differ only in their schedule are adjacent.
func (c *Chunker) handOutOf(ctx context.Context, tx pgx.Tx, batch []cohorts.Due, workflows map[int64]string) error {
	cs := chunk.NewBatch(batch[0].Shard)
	rates := c.ratesOf(ctx, batch)
	for _, rate := range rates {
		cs.Most = min(cs.Most, max(leastHandedOut, rate))
	}
	for len(batch) > 0 {
		one, workflow := batch[0], workflows[batch[0].Schedule]
		var members []chunk.Member
		for len(batch) > 0 && alike(one, batch[0]) && workflows[batch[0].Schedule] == workflow {
			members = append(members, chunk.Member{ID: batch[0].Schedule, Missed: one.Missed})
			batch = batch[1:]
		}
		c.limiter.charge(one.Tenant, len(members))
		c.debts.Add(one.Tenant, workflow, len(members))
		g := chunk.GroupOf(one.Cohort, one.Run)
		g.Forced = one.Forced
		cs.Add(one.Tenant, workflow, g, members)
	}
	runs, err := c.insertChunks(ctx, tx, cs)
	if err != nil {
		return err
	}
	if err := c.paceChunks(ctx, tx, cs.Made, rates); err != nil {
		return err
	}
	cs.EndSpans() // before the caller's commit, which this package does not see
	for i := range runs {
		if err := cluster.AnnounceOpen(ctx, tx, runs[i].Lane, runs[i].Text()); err != nil {
			return err
		}
	}
	return nil
}

const leastHandedOut = 20 // ticks of a chunk whose tenant has a low rate

// ratesOf returns how many ticks a second the tenants of due ticks may have. A tenant whose quotas cannot be read is missing.
func (c *Chunker) ratesOf(ctx context.Context, due []cohorts.Due) map[tenants.ID]int {
	rates := map[tenants.ID]int{}
	for _, one := range due {
		if _, known := rates[one.Tenant]; known {
			continue
		}
		if quotas, err := c.quotas(ctx, one.Tenant); err == nil && quotas.TicksPerSecond > 0 {
			rates[one.Tenant] = quotas.TicksPerSecond
		}
	}
	return rates
}

// paceChunks delays the new chunks whose ticks exceed their tenants' rates.
func (c *Chunker) paceChunks(ctx context.Context, tx pgx.Tx, made []chunk.Draft, rates map[tenants.ID]int) error {
	var ids []int64
	var owners []int32
	var waits []time.Duration
	for i := range made {
		one := &made[i]
		if wait := c.limiter.pace(one.Tenant, one.Count, rates[one.Tenant], time.Now()); wait > 0 {
			ids, owners, waits = append(ids, one.ID), append(owners, int32(one.Tenant)), append(waits, wait)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		UPDATE chunk c
		SET hand_at = `+postgres.Now+` + n.wait
		FROM unnest($1::bigint[], $2::int[], $3::interval[]) AS n (id, tenant_id, wait)
		WHERE c.id = n.id AND c.tenant_id = n.tenant_id`, ids, owners, waits)
	if err != nil {
		return fmt.Errorf("pace due ticks of a change: %w", err)
	}
	return nil
}

// firstOfEach returns the first tick of each schedule, in the order of chunks, and the others.
func firstOfEach(due []cohorts.Due) (first, others []cohorts.Due) {
	seen := make(map[int64]bool, len(due))
	for _, one := range due {
		if seen[one.Schedule] {
			others = append(others, one)
			continue
		}
		seen[one.Schedule] = true
		first = append(first, one)
	}
	slices.SortFunc(first, func(a, b cohorts.Due) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Cohort, b.Cohort), a.Run.At.Compare(b.Run.At),
			cmp.Compare(a.Missed, b.Missed), cmp.Compare(a.Schedule, b.Schedule))
	})
	return first, others
}

// alike reports whether two ticks may share a group of a chunk.
func alike(a, b cohorts.Due) bool {
	b.Schedule = a.Schedule
	return a == b
}

// workflowsOf returns the workflow of each schedule.
func workflowsOf(ctx context.Context, tx pgx.Tx, due []cohorts.Due) (workflows map[int64]string, err error) {
	ids := map[tenants.ID][]int64{}
	for _, one := range due {
		ids[one.Tenant] = append(ids[one.Tenant], one.Schedule)
	}
	workflows = make(map[int64]string, len(due))
	var b pgx.Batch
	for tenant, some := range ids {
		b.Queue(`SELECT id, workflow FROM schedule WHERE tenant_id = $1 AND id = ANY ($2)`, tenant, some).Query(func(rows pgx.Rows) error {
			var id int64
			var workflow string
			_, err := pgx.ForEachRow(rows, []any{&id, &workflow}, func() error { workflows[id] = workflow; return nil })
			return err
		})
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("read workflows of due ticks: %w", err)
	}
	for _, one := range due {
		if workflows[one.Schedule] == "" {
			return nil, fmt.Errorf("schedule %d with a due tick: %w", one.Schedule, pgx.ErrNoRows)
		}
	}
	return workflows, nil
}
