package schedules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// cohortNeed is a cohort that rows of the batch join.
type cohortNeed struct {
	cohortName
	timing *calendar.Timing
	stamp  cohorts.Stamp
	id     int64
	alone  *row // with fixed_delay: the one member
}

// cohortName identifies a cohort of a tenant.
type cohortName struct {
	workflow string
	shard    int16
	hash     string
	missed   string
}

func (a cohortName) compare(b cohortName) int {
	return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.workflow, b.workflow), cmp.Compare(a.hash, b.hash), cmp.Compare(a.missed, b.missed))
}

// findCohorts finds the cohort of every row that joins one, each once, in one order for all batches.
func (b *batch) findCohorts(ctx context.Context) error {
	if err := b.leaveDelays(ctx); err != nil {
		return err
	}
	needs := map[cohortName]*cohortNeed{}
	wake := map[int16]bool{}
	for _, w := range b.writes.rows {
		if !w.joins {
			continue
		}
		if known, ok := needs[w.timing.cohortName]; ok {
			w.timing = known
		} else {
			needs[w.timing.cohortName] = w.timing
		}
		if w.next.Sub(b.now) < cohorts.Soon {
			wake[w.Shard] = true
		}
	}
	names := slices.SortedFunc(maps.Keys(needs), cohortName.compare)
	if err := b.findAwake(ctx, names, needs); err != nil {
		return err
	}
	for _, name := range names {
		if err := b.makeCohort(ctx, needs[name]); err != nil {
			return err
		}
	}
	for _, w := range b.writes.rows {
		if w.joins {
			w.CohortID, w.Revision, w.Timed = &w.timing.id, &w.timing.stamp.Revision, &w.timing.stamp.TZData
		}
	}
	for _, shard := range slices.Sorted(maps.Keys(wake)) {
		if err := cohorts.WakeSweep(ctx, b.tx, shard); err != nil {
			return err
		}
	}
	return nil
}

// makeCohort makes a cohort that is not awake.
func (b *batch) makeCohort(ctx context.Context, need *cohortNeed) (err error) {
	if need.id != 0 {
		return nil
	}
	if need.alone != nil {
		if err := need.alone.joinDelay(ctx, b.tx, b.tenant, need.timing); err != nil {
			return err
		}
		need.id = *need.alone.CohortID
		return nil
	}
	need.id, err = cohorts.MakeCohort(ctx, b.tx, cohorts.Shared{Tenant: b.tenant, Shard: need.shard, Workflow: need.workflow, Missed: need.missed, Timing: need.timing}, need.stamp, b.now)
	if err != nil {
		return fmt.Errorf("join cohort: %w", err)
	}
	return nil
}

// findAwake finds the cohorts that are there and awake.
func (b *batch) findAwake(ctx context.Context, names []cohortName, needs map[cohortName]*cohortNeed) error {
	if len(names) == 0 {
		return nil
	}
	var workflows, missed []string
	var shards []int16
	var hashes [][]byte
	for _, n := range names {
		if needs[n].alone != nil {
			n.missed = "" // it is armed anew, awake or not
		}
		workflows, shards, hashes, missed = append(workflows, n.workflow), append(shards, n.shard), append(hashes, []byte(n.hash)), append(missed, n.missed)
	}
	rows, _ := b.tx.Query(ctx, `
		SELECT n.ord, c.id
		FROM unnest($2::text[], $3::smallint[], $4::bytea[], $5::text[]) WITH ORDINALITY AS n (workflow, shard, hash, missed, ord)
		CROSS JOIN LATERAL (
			SELECT d.id
			FROM cohort_timing t
			JOIN cohort d ON d.shard = t.shard AND d.id = t.id AND d.tenant_id = t.tenant_id
			WHERE t.tenant_id = $1 AND t.workflow = n.workflow AND t.shard = n.shard AND t.hash = n.hash AND t.missed = n.missed AND d.due_at IS NOT NULL
			OFFSET 0
		) c`, b.tenant, workflows, shards, hashes, missed) // ForEachRow reports the error
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

// write finds cohorts, hands out what is due, then writes all rows.
func (b *batch) write(ctx context.Context) error {
	if b.dry || len(b.writes.rows)+len(b.writes.gone)+len(b.writes.refresh) == 0 {
		return nil
	}
	// One order for all batches, so that two that make the same schedules wait for one another, and not both. By shard first, as
	// those of a shard fire together: a chunk finds them, and their states, on few pages.
	slices.SortFunc(b.writes.rows, func(x, y *rewrite) int {
		return cmp.Or(cmp.Compare(x.Shard, y.Shard), cmp.Compare(x.Workflow, y.Workflow), cmp.Compare(x.Key, y.Key))
	})
	ids := b.writes.ids
	for _, w := range b.writes.rows {
		if w.newborn {
			w.ID, ids = ids[0], ids[1:]
		}
	}
	if err := b.findCohorts(ctx); err != nil {
		return err
	}
	if err := b.handOut(ctx); err != nil {
		return err
	}
	var q pgx.Batch
	if err := b.writes.queue(ctx, &q, b.change); err != nil {
		return err
	}
	err := b.tx.SendBatch(ctx, &q).Close()
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.ConstraintName == "schedule_workflow_key" {
		return errRaced // another has made some of them since we looked
	}
	if err != nil {
		return fmt.Errorf("write schedules: %w", err)
	}
	for _, w := range b.writes.rows {
		if !w.newborn && !w.quiet {
			w.Version, w.UpdatedAt, w.UpdatedBy = w.Version+1, b.now, b.by
		}
	}
	return nil
}

// handOut hands out ticks that were due before their schedules changed, and those that a change asks for.
func (b *batch) handOut(ctx context.Context) error {
	for _, w := range b.writes.rows {
		if w.fire == nil {
			continue
		}
		if w.joins {
			w.fire.Cohort = *w.CohortID
		}
		b.writes.due = append(b.writes.due, *w.fire)
	}
	if len(b.writes.due) == 0 {
		return nil
	}
	if err := b.schedules.HandOut(ctx, b.tx, b.writes.due); err != nil {
		return fmt.Errorf("hand out what is due: %w", err)
	}
	return nil
}

// queue queues all writes but those of cohorts. by is who changes the schedules, and when.
func (ws *writes) queue(ctx context.Context, q *pgx.Batch, by change) error {
	var fresh, redefined, restated columns
	var ended []int64
	bytes := 0
	for _, w := range ws.rows {
		to := &restated
		switch {
		case w.newborn:
			to = &fresh
		case w.redefined:
			to = &redefined
		}
		if err := to.add(w); err != nil {
			return err
		}
		if !w.quiet {
			bytes += w.held()
		}
		if !w.quiet && !w.newborn {
			ended = append(ended, w.ID)
		}
	}
	if len(ended) > 0 {
		q.Queue(endVersions, by.tenant, ended, false, by.now, by.by)
	}
	ws.expel(q, by)
	redefined.update(q, by)
	restated.restate(q, by)
	fresh.insert(q, by)
	ws.enroll(q, by)
	ws.delete(q, by)
	ws.reset(q, by)
	if len(ws.rezoned) > 0 {
		q.Queue(`UPDATE schedule_state SET rezoned_at = $3 WHERE tenant_id = $1 AND schedule_id = ANY($2)`, by.tenant, ws.rezoned, by.now)
	}
	ws.queueDelays(q, by)
	forecast.AddBytes(q, by.tenant, bytes)
	return ws.audit(ctx, q, by)
}

// expel deletes the memberships that end.
func (ws *writes) expel(q *pgx.Batch, by change) {
	if len(ws.left) == 0 {
		return
	}
	var cohorts, phases, ids []int64
	for _, m := range ws.left {
		cohorts, phases, ids = append(cohorts, m.cohort), append(phases, m.phase), append(ids, m.schedule)
	}
	q.Queue(sabotage.DeletedGoesOn.Instead(`
		DELETE FROM member m
		USING unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS n (cohort_id, phase, schedule_id)
		WHERE m.cohort_id = n.cohort_id AND m.phase = n.phase AND m.schedule_id = n.schedule_id AND m.tenant_id = $1`, "AND m.tenant_id = $1", "AND $1 < 0"),
		by.tenant, cohorts, phases, ids)
}

// enroll makes rows that join a cohort members of it.
func (ws *writes) enroll(q *pgx.Batch, by change) {
	var cohorts, phases, ids []int64
	var froms, untils []*time.Time
	for _, w := range ws.rows {
		if w.joins {
			cohorts, phases, ids = append(cohorts, *w.CohortID), append(phases, w.Phase), append(ids, w.ID)
			froms, untils = append(froms, w.FromAt), append(untils, w.UntilAt)
		}
	}
	if len(ids) == 0 {
		return
	}
	q.Queue(`
		INSERT INTO member (cohort_id, phase, schedule_id, tenant_id, from_at, until_at)
		SELECT cohort_id, phase, id, $1, from_at, until_at
		FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::timestamptz[], $6::timestamptz[])
			AS n (cohort_id, phase, id, from_at, until_at)
		ORDER BY cohort_id, phase, id`, by.tenant, cohorts, phases, ids, froms, untils)
}

// delete deletes schedules with their states, and what operations paused of them; their last versions stay.
func (ws *writes) delete(q *pgx.Batch, by change) {
	if len(ws.byHand) > 0 {
		q.Queue(forgetPauses, by.tenant, ws.byHand)
	}
	if len(ws.gone) == 0 {
		return
	}
	ids := make([]int64, len(ws.gone))
	for i, r := range ws.gone {
		ids[i] = r.ID
	}
	q.Queue(endVersions, by.tenant, ids, true, by.now, by.by)
	q.Queue(`DELETE FROM schedule_state WHERE tenant_id = $1 AND schedule_id = ANY($2)`, by.tenant, ids)
	q.Queue(forgetPauses, by.tenant, ids)
	q.Queue(`DELETE FROM schedule WHERE tenant_id = $1 AND id = ANY($2)`, by.tenant, ids)
}

// reset sets when cohorts fire next whose timings say something else by now. The sweep is away, as the shards are locked.
func (ws *writes) reset(q *pgx.Batch, by change) {
	if len(ws.refresh) == 0 {
		return
	}
	var shards []int16
	var ids []int64
	var next []*time.Time
	for key, at := range ws.refresh {
		shards, ids = append(shards, key.shard), append(ids, key.id)
		if next = append(next, nil); !at.IsZero() {
			next[len(next)-1] = &at
		}
	}
	q.Queue(`
		UPDATE cohort c
		SET next_at = n.next_at, due_at = `+cohorts.NotPast("n.next_at")+`
		FROM unnest($2::smallint[], $3::bigint[], $4::timestamptz[]) AS n (shard, id, next_at)
		WHERE c.tenant_id = $1 AND c.shard = n.shard AND c.id = n.id AND c.run_at IS NULL AND c.retime_at IS NULL`, by.tenant, shards, ids, next)
}

// audit records the changes that have an audit of their own.
func (ws *writes) audit(ctx context.Context, q *pgx.Batch, by change) error {
	changes := ws.audits
	for _, w := range ws.rows {
		if w.action == "" {
			continue
		}
		after := w.audited()
		if !w.newborn && !w.quiet {
			after.Version++
		}
		c := w.row.audit(w.action, w.was, after)
		c.Origin = w.origin
		changes = append(changes, c)
	}
	return tenants.QueueAudit(ctx, q, by.tenant, by.by, changes...)
}
