package schedules

import (
	"time"

	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/jackc/pgx/v5"
)

// columns holds rows by column, as unnest takes them. Terms are numbered and each is sent once, because many rows have the same.
type columns struct {
	rows        []*rewrite
	ids         []int64
	workflows   []string
	keys        []string
	subjects    []*string
	shards      []int16
	versions    []int32
	statuses    []string
	statusNotes []*string
	specs       []string
	payloads    []*string
	labels      []map[string]string
	notes       []*string
	ticksLeft   []*int32
	pausedAt    []*time.Time
	pausedUntil []*time.Time
	cohorts     []*int64
	phases      []int64
	tzdata      []string
	before      []*time.Time
	after       []*time.Time
	numbers     []int32         // of the terms of each row, from 1
	terms       []policy.Stored // those that differ
	moves       []*string
	movedUntil  []*time.Time
	bySync      []int64 // ids of the rows that a sync paused
}

func (c *columns) add(w *rewrite) error {
	version := w.Version
	if !w.newborn && !w.quiet {
		version++
	}
	moves, err := w.movesText()
	if err != nil {
		return err
	}
	c.rows = append(c.rows, w)
	c.ids, c.workflows, c.keys, c.shards = append(c.ids, w.ID), append(c.workflows, w.Workflow), append(c.keys, w.Key), append(c.shards, w.Shard)
	c.subjects = append(c.subjects, w.Subject)
	c.versions, c.statuses, c.statusNotes = append(c.versions, version), append(c.statuses, w.Status), append(c.statusNotes, w.StatusNote)
	c.specs, c.payloads, c.labels, c.notes = append(c.specs, w.Spec), append(c.payloads, w.Payload), append(c.labels, w.Labels), append(c.notes, w.Note)
	c.ticksLeft, c.pausedAt, c.pausedUntil = append(c.ticksLeft, w.TicksLeft), append(c.pausedAt, w.PausedAt), append(c.pausedUntil, w.PausedUntil)
	c.cohorts, c.phases, c.tzdata = append(c.cohorts, w.CohortID), append(c.phases, w.Phase), append(c.tzdata, w.TZData)
	c.before, c.after = append(c.before, w.before), append(c.after, w.after)
	if n := len(c.terms); n == 0 || !c.terms[n-1].Equal(w.Stored) { // neighbours are alike more often than not
		c.terms = append(c.terms, w.Stored)
	}
	c.moves, c.movedUntil = append(c.moves, moves), append(c.movedUntil, w.MovedUntil)
	c.numbers = append(c.numbers, int32(len(c.terms)))
	if w.PausedBy != nil {
		c.bySync = append(c.bySync, w.ID)
	}
	return nil
}

// rowsOf is the table n of the rows; its parameters begin with $4. termsOf are the terms of a row of it.
const (
	rowsOf = `unnest($4::bigint[], $5::text[], $6::text[], $7::smallint[], $8::int[], $9::text[], $10::text[], $11::text[], $12::text[], $13::jsonb[],
			$14::text[], $15::int[], $16::timestamptz[], $17::timestamptz[], $18::bigint[], $19::bigint[], $20::text[], $21::timestamptz[], $22::timestamptz[], $23::int[],
			$35::text[], $36::timestamptz[], $37::text[])
		AS n (id, workflow, key, shard, version, status, status_note, spec, payload, labels,
			note, ticks_left, paused_at, paused_until, cohort_id, phase, tzdata, next_before, next_after, term,
			moves, moved_until, subject)`
	termsOf = `($24::text[])[n.term], ($25::text[])[n.term], ($26::int[])[n.term], ($27::text[])[n.term], ($28::int[])[n.term], ($29::text[])[n.term],
		($30::smallint[])[n.term], ($31::int[])[n.term], ($32::smallint[])[n.term], ($33::int[])[n.term], ($34::int[])[n.term]`
)

// args returns the first parameters and those of rowsOf and termsOf.
func (c *columns) args(first ...any) []any {
	args := append(first, c.ids, c.workflows, c.keys, c.shards, c.versions, c.statuses, c.statusNotes, c.specs, c.payloads, c.labels,
		c.notes, c.ticksLeft, c.pausedAt, c.pausedUntil, c.cohorts, c.phases, c.tzdata, c.before, c.after, c.numbers)
	args = append(args, each(c.terms, func(t *policy.Stored) *string { return t.Overlap }), each(c.terms, func(t *policy.Stored) *string { return t.Missed }),
		each(c.terms, func(t *policy.Stored) *int32 { return t.MaxLateness }), each(c.terms, func(t *policy.Stored) *string { return t.OnExpired }),
		each(c.terms, func(t *policy.Stored) *int32 { return t.PauseAfterFailures }), each(c.terms, func(t *policy.Stored) *string { return t.Queue }),
		each(c.terms, func(t *policy.Stored) *int16 { return t.Priority }), each(c.terms, func(t *policy.Stored) *int32 { return t.Timeout }),
		each(c.terms, func(t *policy.Stored) *int16 { return t.MaxAttempts }), each(c.terms, func(t *policy.Stored) *int32 { return t.KeepSucceeded }),
		each(c.terms, func(t *policy.Stored) *int32 { return t.KeepFailed }))
	return append(args, c.moves, c.movedUntil, c.subjects)
}

func each[T, V any](all []T, of func(*T) V) []V {
	values := make([]V, len(all))
	for i := range all {
		values[i] = of(&all[i])
	}
	return values
}

// update writes the next versions of rows whose definition is another.
func (c *columns) update(q *pgx.Batch, by change) {
	if len(c.rows) == 0 {
		return
	}
	q.Queue(`
		UPDATE schedule s
		SET version = n.version, status = n.status, subject = n.subject, spec = n.spec, payload = n.payload, labels = n.labels,
			note = n.note, status_note = n.status_note, ticks_left = n.ticks_left,
			paused_at = n.paused_at, paused_until = n.paused_until, cohort_id = n.cohort_id, phase = n.phase,
			tzdata = n.tzdata, updated_at = $2, updated_by = $3, next_before = n.next_before, next_after = n.next_after,
			moves = n.moves::jsonb, moved_until = n.moved_until, paused_by = CASE WHEN n.id = ANY ($38::bigint[]) THEN 'sync' END,
			(`+policy.Columns+`) = ROW (`+termsOf+`)
		FROM `+rowsOf+`
		WHERE s.tenant_id = $1 AND s.id = n.id`,
		append(c.args(by.tenant, by.now, by.by), c.bySync)...)
}

// restate writes the state and the cohort of rows whose definition stays. A quiet row keeps its version.
func (c *columns) restate(q *pgx.Batch, by change) {
	if len(c.rows) == 0 {
		return
	}
	q.Queue(`
		UPDATE schedule s
		SET version = n.version, status = n.status, status_note = n.status_note, ticks_left = n.ticks_left,
			paused_at = n.paused_at, paused_until = n.paused_until, cohort_id = n.cohort_id, phase = n.phase, tzdata = n.tzdata,
			moves = n.moves::jsonb, moved_until = n.moved_until, paused_by = CASE WHEN n.id = ANY ($18::bigint[]) THEN 'sync' END,
			updated_at = CASE WHEN n.version > s.version THEN $2 ELSE s.updated_at END,
			updated_by = CASE WHEN n.version > s.version THEN $3 ELSE s.updated_by END,
			next_before = CASE WHEN n.version > s.version THEN n.next_before ELSE s.next_before END,
			next_after = CASE WHEN n.version > s.version THEN n.next_after ELSE s.next_after END
		FROM unnest($4::bigint[], $5::int[], $6::text[], $7::text[], $8::int[], $9::timestamptz[], $10::timestamptz[],
			$11::bigint[], $12::bigint[], $13::text[], $14::timestamptz[], $15::timestamptz[], $16::text[], $17::timestamptz[])
			AS n (id, version, status, status_note, ticks_left, paused_at, paused_until,
				cohort_id, phase, tzdata, next_before, next_after, moves, moved_until)
		WHERE s.tenant_id = $1 AND s.id = n.id`,
		by.tenant, by.now, by.by, c.ids, c.versions, c.statuses, c.statusNotes, c.ticksLeft, c.pausedAt, c.pausedUntil,
		c.cohorts, c.phases, c.tzdata, c.before, c.after, c.moves, c.movedUntil, c.bySync)
}

// insert writes the schedules of new rows, with their states.
func (c *columns) insert(q *pgx.Batch, by change) {
	if len(c.rows) == 0 {
		return
	}
	q.Queue(`
		INSERT INTO schedule (tenant_id, id, workflow, key, subject, shard, status, spec, payload, labels, note, anchor_at,
			ticks_left, cohort_id, phase, tzdata, created_at, updated_at, updated_by, version, status_note, paused_until,
			paused_at, next_before, next_after, `+policy.Columns+`)
		OVERRIDING SYSTEM VALUE
		SELECT $1, n.id, n.workflow, n.key, n.subject, n.shard, n.status, n.spec, n.payload, n.labels, n.note, $38,
			n.ticks_left, n.cohort_id, n.phase, n.tzdata, $2, $2, $3, n.version, n.status_note, n.paused_until,
			n.paused_at, n.next_before, n.next_after, `+termsOf+`
		FROM `+rowsOf,
		append(c.args(by.tenant, by.now, by.by), wholeSecond(by.now))...)
	q.Queue(`INSERT INTO schedule_state (tenant_id, schedule_id) SELECT $1, id FROM unnest($2::bigint[]) AS n (id)`, by.tenant, c.ids)
}
