package schedules

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
)

// cohortNeed is a cohort that rows of the batch join.
type cohortNeed struct {
	cohortName
	timing *calendar.Timing
	id     int64
}

// cohortName is what tells the cohorts of a tenant apart.
type cohortName struct {
	workflow string
	shard    int16
	hash     [16]byte
	missed   string
}

func (a cohortName) compare(b cohortName) int {
	return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.workflow, b.workflow), bytes.Compare(a.hash[:], b.hash[:]), cmp.Compare(a.missed, b.missed))
}

// enterLater places the row in its cohort, whose number is found later.
func (l *load) enterLater(w *rewrite, t *calendar.Timing, after time.Time) error {
	whole, _, err := w.effective()
	if err != nil {
		return err
	}
	if w.next, w.joins = w.enter(l.tenant, t, *whole.Missed, after); w.joins {
		w.timing = &cohortNeed{cohortName: cohortName{w.Workflow, w.Shard, t.Hash(), *whole.Missed}, timing: t}
	}
	return nil
}

// findCohorts finds the cohort of every row that joins one, each once, in one order for all batches.
func (l *load) findCohorts(ctx context.Context) error {
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
		if w.next.Sub(l.now) < soon {
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
		id, err := cohortOf(ctx, l.tx, l.tenant, name.shard, name.workflow, need.timing, name.missed, l.now)
		if err != nil {
			return fmt.Errorf("join cohort: %w", err)
		}
		need.id = id
	}
	for _, w := range l.rows {
		if w.joins {
			w.CohortID = &w.timing.id
		}
	}
	for _, shard := range slices.Sorted(maps.Keys(wake)) {
		if err := wakeSweep(ctx, l.tx, shard); err != nil {
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
		workflows, shards, hashes, missed = append(workflows, n.workflow), append(shards, n.shard), append(hashes, n.hash[:]), append(missed, n.missed)
	}
	rows, _ := l.tx.Query(ctx, `
		SELECT n.ord, c.id
		FROM unnest($2::text[], $3::smallint[], $4::bytea[], $5::text[]) WITH ORDINALITY AS n (workflow, shard, hash, missed, ord)
		JOIN cohort c ON c.tenant_id = $1 AND c.workflow = n.workflow AND c.shard = n.shard AND c.hash = n.hash AND c.missed = n.missed
		WHERE c.due_at IS NOT NULL`, l.tenant, workflows, shards, hashes, missed) // ForEachRow reports the error
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
	var fresh, changed columns
	for _, w := range l.rows {
		if w.newborn {
			fresh.add(w)
		} else {
			changed.add(w)
		}
	}
	if err := l.update(ctx, &changed); err != nil {
		return err
	}
	return l.insert(ctx, &fresh)
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

// columns are rows by column, as unnest takes them.
type columns struct {
	rows        []*rewrite
	ords        []int32
	ids         []int64
	shards      []int16
	statuses    []string
	statusNotes []*string
	pausedAt    []*time.Time
	pausedUntil []*time.Time
	ticksLeft   []*int32
	cohorts     []*int64
	spreads     []int64
	tzdata      []string
	froms       []*time.Time
	untils      []*time.Time
	joins       []bool
	versions    []int32
	before      []*time.Time
	after       []*time.Time
	moves       []*string
	movedUntil  []*time.Time
}

func (c *columns) add(w *rewrite) {
	c.rows = append(c.rows, w)
	c.ords, c.ids, c.shards = append(c.ords, int32(w.ord)), append(c.ids, w.ID), append(c.shards, w.Shard)
	c.statuses, c.statusNotes = append(c.statuses, w.Status), append(c.statusNotes, w.StatusNote)
	c.pausedAt, c.pausedUntil = append(c.pausedAt, w.PausedAt), append(c.pausedUntil, w.PausedUntil)
	c.ticksLeft, c.cohorts, c.spreads = append(c.ticksLeft, w.TicksLeft), append(c.cohorts, w.CohortID), append(c.spreads, w.Spread)
	c.tzdata, c.joins = append(c.tzdata, w.TZData), append(c.joins, w.joins)
	c.froms, c.untils = append(c.froms, w.FromAt), append(c.untils, w.UntilAt)
	version := w.Version + 1
	if w.quiet {
		version = w.Version
	}
	c.versions = append(c.versions, version)
	c.before, c.after = append(c.before, w.before), append(c.after, w.after)
	c.moves, c.movedUntil = append(c.moves, w.moves), append(c.movedUntil, w.MovedUntil)
}

// update ends the stored versions of rows, and writes the next ones with their memberships.
func (l *load) update(ctx context.Context, c *columns) error {
	if len(c.rows) == 0 {
		return nil
	}
	var b pgx.Batch
	b.Queue(endVersions, l.tenant, c.ids, false, l.now, l.by)
	l.expel(&b)
	c.enroll(&b, l)
	b.Queue(`
		UPDATE schedule s
		SET version = n.version, status = n.status, spec = b.spec, payload = b.payload, labels = b.labels,
			note = COALESCE(b.note, s.note), status_note = n.status_note, ticks_left = n.ticks_left,
			paused_at = n.paused_at, paused_until = n.paused_until, cohort_id = n.cohort_id, spread = n.spread,
			tzdata = n.tzdata, updated_at = $2, updated_by = $3,
			overlap = b.overlap, missed = b.missed, max_lateness_s = b.max_lateness_s, on_expired = b.on_expired,
			pause_after_failures = b.pause_after_failures, queue = b.queue, priority = b.priority, timeout_s = b.timeout_s,
			max_attempts = b.max_attempts, keep_succeeded_s = b.keep_succeeded_s, keep_failed_s = b.keep_failed_s,
			next_before = n.next_before, next_after = n.next_after, moves = n.moves::jsonb, moved_until = n.moved_until
		FROM unnest($4::int[], $5::bigint[], $6::int[], $7::text[], $8::text[], $9::int[], $10::timestamptz[], $11::timestamptz[],
			$12::bigint[], $13::bigint[], $14::text[], $15::timestamptz[], $16::timestamptz[], $17::text[], $18::timestamptz[])
			AS n (ord, id, version, status, status_note, ticks_left, paused_at, paused_until, cohort_id, spread, tzdata, next_before, next_after,
				moves, moved_until)
		JOIN pg_temp.bulk b ON b.ord = n.ord
		WHERE s.tenant_id = $1 AND s.id = n.id`,
		l.tenant, l.now, l.by, c.ords, c.ids, c.versions, c.statuses, c.statusNotes, c.ticksLeft, c.pausedAt, c.pausedUntil,
		c.cohorts, c.spreads, c.tzdata, c.before, c.after, c.moves, c.movedUntil)
	if err := l.tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("update schedules: %w", err)
	}
	return nil
}

// expel deletes the memberships that end.
func (l *load) expel(b *pgx.Batch) {
	if len(l.ends) == 0 {
		return
	}
	var cohorts, spreads, ids []int64
	for _, m := range l.ends {
		cohorts, spreads, ids = append(cohorts, m.cohort), append(spreads, m.spread), append(ids, m.schedule)
	}
	b.Queue(`
		DELETE FROM member m
		USING unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS n (cohort_id, spread, schedule_id)
		WHERE m.cohort_id = n.cohort_id AND m.spread = n.spread AND m.schedule_id = n.schedule_id AND m.tenant_id = $1`,
		l.tenant, cohorts, spreads, ids)
}

// insert makes the schedules of rows, with their states and memberships.
func (l *load) insert(ctx context.Context, c *columns) error {
	if len(c.rows) == 0 {
		return nil
	}
	if _, err := l.tx.Exec(ctx, lookUp); err != nil {
		return fmt.Errorf("bind the planner: %w", err)
	}
	places := make(map[[2]string]int, len(c.rows))
	for i, w := range c.rows {
		places[[2]string{w.Workflow, w.Key}] = i
	}
	rows, _ := l.tx.Query(ctx, `
		INSERT INTO schedule (tenant_id, workflow, key, shard, status, spec, payload, labels, note, anchor_at,
			ticks_left, cohort_id, spread, tzdata, created_at, updated_at, updated_by,
			overlap, missed, max_lateness_s, on_expired, pause_after_failures, queue, priority, timeout_s,
			max_attempts, keep_succeeded_s, keep_failed_s, paused_at, next_after)
		SELECT $1, b.workflow, b.key, n.shard, n.status, b.spec, b.payload, b.labels, b.note, $12,
			n.ticks_left, n.cohort_id, n.spread, n.tzdata, $2, $2, $3,
			b.overlap, b.missed, b.max_lateness_s, b.on_expired, b.pause_after_failures, b.queue, b.priority, b.timeout_s,
			b.max_attempts, b.keep_succeeded_s, b.keep_failed_s, n.paused_at, n.next_after
		FROM unnest($4::int[], $5::smallint[], $6::text[], $7::int[], $8::timestamptz[], $9::bigint[], $10::bigint[], $11::text[], $13::timestamptz[])
			AS n (ord, shard, status, ticks_left, paused_at, cohort_id, spread, tzdata, next_after)
		JOIN pg_temp.bulk b ON b.ord = n.ord
		ORDER BY b.workflow, b.key
		ON CONFLICT ON CONSTRAINT schedule_workflow_key DO NOTHING
		RETURNING id, workflow, key`,
		l.tenant, l.now, l.by, c.ords, c.shards, c.statuses, c.ticksLeft, c.pausedAt, c.cohorts, c.spreads, c.tzdata, wholeSecond(l.now), c.after) // ForEachRow reports the error
	var id int64
	var name [2]string
	made, err := pgx.ForEachRow(rows, []any{&id, &name[0], &name[1]}, func() error {
		i := places[name]
		c.ids[i], l.items[c.ords[i]].id = id, id
		return nil
	})
	if err != nil {
		return fmt.Errorf("insert schedules: %w", err)
	}
	if int(made.RowsAffected()) < len(c.rows) { // another has made some of them since we looked
		return errRaced
	}
	var b pgx.Batch
	b.Queue(`INSERT INTO schedule_state (tenant_id, schedule_id) SELECT $1, id FROM unnest($2::bigint[]) AS n (id) ORDER BY id`, l.tenant, c.ids)
	c.enroll(&b, l)
	if err := l.tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("insert states and members: %w", err)
	}
	return nil
}

// enroll makes rows that join a cohort members of it.
func (c *columns) enroll(b *pgx.Batch, l *load) {
	b.Queue(`
		INSERT INTO member (cohort_id, spread, schedule_id, tenant_id, from_at, until_at)
		SELECT cohort_id, spread, id, $1, from_at, until_at
		FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::timestamptz[], $6::timestamptz[], $7::bool[])
			AS n (cohort_id, spread, id, from_at, until_at, joins)
		WHERE joins
		ORDER BY cohort_id, spread, id`, l.tenant, c.cohorts, c.spreads, c.ids, c.froms, c.untils, c.joins)
}
