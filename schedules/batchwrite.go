package schedules

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// cohortNeed is a cohort that rows of the batch join.
type cohortNeed struct {
	cohortName
	timing *calendar.Timing
	stamp  cohorts.Stamp
	id     int64
	alone  *row // with fixed_delay: the one member
}

// cohortName is what tells the cohorts of a tenant apart.
type cohortName struct {
	workflow string
	shard    int16
	hash     string
	missed   string
}

func (a cohortName) compare(b cohortName) int {
	return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.workflow, b.workflow), cmp.Compare(a.hash, b.hash), cmp.Compare(a.missed, b.missed))
}

// enterLater places the row in its cohort, whose number is found later.
func (l *load) enterLater(ctx context.Context, w *rewrite, t *calendar.Timing, after time.Time) error {
	terms, err := policy.Resolve(w.Stored, w.Defaults)
	if err != nil {
		return err
	}
	fresh, ok := l.renewed[t]
	if !ok {
		if fresh.timing, fresh.revision, err = l.Timings.Renew(ctx, l.tx, l.tenant, t); err != nil {
			return err
		}
		if l.renewed == nil {
			l.renewed = map[*calendar.Timing]renewal{}
		}
		l.renewed[t] = fresh
	}
	t = fresh.timing
	stamp := cohorts.Stamp{Revision: fresh.revision, TZData: t.Zones().Version()}
	if w.next, w.joins = w.enter(l.tenant, t, terms.Missed, after); w.joins {
		w.timing = &cohortNeed{cohortName: cohortName{w.Workflow, w.Shard, string(w.Hash), terms.Missed}, timing: t, stamp: stamp}
		if cohorts.Delays(t) {
			w.timing.alone = w.row
		}
	}
	return nil
}

// findCohorts finds the cohort of every row that joins one, each once, in one order for all batches.
func (l *load) findCohorts(ctx context.Context) error {
	if err := l.leaveDelays(ctx); err != nil {
		return err
	}
	needs := map[cohortName]*cohortNeed{}
	wake := map[int16]bool{}
	for _, w := range l.rows {
		if !w.joins {
			continue
		}
		if known, ok := needs[w.timing.cohortName]; ok {
			w.timing = known
		} else {
			needs[w.timing.cohortName] = w.timing
		}
		if w.next.Sub(l.now) < cohorts.Soon {
			wake[w.Shard] = true
		}
	}
	names := slices.SortedFunc(maps.Keys(needs), cohortName.compare)
	if err := l.findAwake(ctx, names, needs); err != nil {
		return err
	}
	for _, name := range names {
		need := needs[name]
		if need.id != 0 {
			continue
		}
		if need.alone != nil {
			if err := need.alone.joinDelay(ctx, l.tx, l.tenant, need.timing); err != nil {
				return err
			}
			need.id = *need.alone.CohortID
			continue
		}
		id, err := cohorts.CohortOf(ctx, l.tx, cohorts.Shared{Tenant: l.tenant, Shard: name.shard, Workflow: name.workflow, Missed: name.missed, Timing: need.timing}, need.stamp, l.now)
		if err != nil {
			return fmt.Errorf("join cohort: %w", err)
		}
		need.id = id
	}
	for _, w := range l.rows {
		if w.joins {
			w.CohortID, w.Revision, w.Timed = &w.timing.id, &w.timing.stamp.Revision, &w.timing.stamp.TZData
		}
	}
	for _, shard := range slices.Sorted(maps.Keys(wake)) {
		if err := cohorts.WakeSweep(ctx, l.tx, shard); err != nil {
			return err
		}
	}
	return nil
}

// findAwake finds the cohorts that are there and awake.
func (l *load) findAwake(ctx context.Context, names []cohortName, needs map[cohortName]*cohortNeed) error {
	var workflows, missed []string
	var shards []int16
	var hashes [][]byte
	for _, n := range names {
		if needs[n].alone != nil {
			n.missed = "" // it is armed anew, awake or not
		}
		workflows, shards, hashes, missed = append(workflows, n.workflow), append(shards, n.shard), append(hashes, []byte(n.hash)), append(missed, n.missed)
	}
	rows, _ := l.tx.Query(ctx, `
		SELECT n.ord, c.id
		FROM unnest($2::text[], $3::smallint[], $4::bytea[], $5::text[]) WITH ORDINALITY AS n (workflow, shard, hash, missed, ord)
		CROSS JOIN LATERAL (
			SELECT d.id
			FROM cohort_timing t
			JOIN cohort d ON d.shard = t.shard AND d.id = t.id AND d.tenant_id = t.tenant_id
			WHERE t.tenant_id = $1 AND t.workflow = n.workflow AND t.shard = n.shard AND t.hash = n.hash AND t.missed = n.missed AND d.due_at IS NOT NULL
			OFFSET 0
		) c`, l.tenant, workflows, shards, hashes, missed) // ForEachRow reports the error
	var ord, id int64
	_, err := pgx.ForEachRow(rows, []any{&ord, &id}, func() error {
		needs[names[ord-1]].id = id
		return nil
	})
	if err != nil {
		return fmt.Errorf("find cohorts: %w", err)
	}
	return nil
}

// defaults are those of the workflows of fresh lines, as far as they are registered.
func (l *load) defaults(ctx context.Context) (map[string][]byte, error) {
	names := map[string]bool{}
	for _, ord := range l.fresh {
		names[l.items[ord].workflow] = true
	}
	found := make(map[string][]byte, len(names))
	rows, _ := l.tx.Query(ctx, `SELECT name, defaults FROM workflow WHERE tenant_id = $1 AND name = ANY($2)`, l.tenant, slices.Collect(maps.Keys(names))) // ForEachRow reports the error
	var name string
	var stored []byte
	_, err := pgx.ForEachRow(rows, []any{&name, &stored}, func() error {
		found[name] = bytes.Clone(stored)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read workflows: %w", err)
	}
	return found, nil
}

// register has workflows be there that were not a moment ago. One that came since may have other defaults.
func (l *load) register(ctx context.Context, missing map[string]bool) error {
	if len(missing) == 0 {
		return nil
	}
	done, err := l.tx.Exec(ctx, `
		INSERT INTO workflow (tenant_id, name)
		SELECT $1, name FROM unnest($2::text[]) AS n (name)
		ON CONFLICT DO NOTHING`, l.tenant, slices.Sorted(maps.Keys(missing)))
	if err != nil {
		return fmt.Errorf("register workflows: %w", err)
	}
	if int(done.RowsAffected()) < len(missing) {
		return errRaced
	}
	return nil
}

// write hands out what is due, then writes all rows.
func (l *load) write(ctx context.Context) error {
	if err := l.handOut(ctx); err != nil {
		return err
	}
	// One order for all batches, so that two that make the same schedules wait for one another, and not both. By shard first, as
	// those of a shard fire together: a chunk finds them, and their states, on few pages.
	slices.SortFunc(l.rows, func(a, b *rewrite) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(a.Key, b.Key))
	})
	var fresh, changed columns
	bytes := 0
	for _, w := range l.rows {
		bytes += w.held()
		if w.newborn {
			fresh.add(w)
		} else {
			changed.add(w)
		}
	}
	if err := l.number(ctx, &fresh); err != nil {
		return err
	}
	var b pgx.Batch
	l.update(&b, &changed)
	l.insert(&b, &fresh)
	forecast.AddBytes(&b, l.tenant, bytes)
	if err := l.audit(ctx, &b); err != nil {
		return err
	}
	err := l.tx.SendBatch(ctx, &b).Close()
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.ConstraintName == "schedule_workflow_key" {
		return errRaced // another has made some of them since we looked
	}
	if err != nil {
		return fmt.Errorf("write schedules: %w", err)
	}
	for _, w := range changed.rows {
		w.Version, w.UpdatedAt, w.UpdatedBy = w.Version+1, l.now, l.by
	}
	return l.writeDelays(ctx)
}

// audit records single puts, each as its own change. What a call of bulk or sync did is recorded by the call.
func (l *load) audit(ctx context.Context, b *pgx.Batch) error {
	var changes []tenants.Change
	for _, w := range l.rows {
		it := l.items[w.ord]
		if !it.whole || w.quiet {
			continue
		}
		after := w.audited()
		if !w.newborn {
			after.Version++
		}
		c := w.row.audit("put", w.was, after)
		c.Origin = it.origin
		changes = append(changes, c)
	}
	return tenants.QueueAudit(ctx, b, l.tenant, l.by, changes...)
}

func (l *load) handOut(ctx context.Context) error {
	if len(l.due) == 0 {
		return nil
	}
	if err := l.HandOut(ctx, l.tx, l.due); err != nil {
		return fmt.Errorf("hand out what is due: %w", err)
	}
	return nil
}
