package schedules

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

const batchTimeout = 30 * time.Second

// storeItems stores lines that differ in workflow or key, in one transaction, and says in each what became of it. A dry
// one stores nothing, and says what would.
func (s *Schedules) storeItems(ctx context.Context, tenant tenants.ID, by string, items []*item, quotas tenants.Quotas, dry bool) error {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	spread, err := s.spread(ctx, tenant)
	if err != nil {
		return err
	}
	for range mostRaces {
		err = postgres.Retry(ctx, func() error {
			return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
				l := load{Schedules: s, tx: tx, tenant: tenant, by: by, quotas: quotas, items: items, memo: memo{}, dry: dry}
				if err := l.run(ctx, spread); err != nil || !dry {
					return err
				}
				return errDry
			})
		})
		if errors.Is(err, errDry) {
			return nil
		}
		if !errors.Is(err, errRaced) {
			return err
		}
	}
	for _, it := range items {
		it.fail(fault.New(http.StatusServiceUnavailable, "busy", "schedules of this batch are being changed by others; send the line again"))
	}
	return nil
}

func (it *item) fail(f *fault.Error) { it.result, it.fault = Failed, f }

// load is one batch on its way into the database: what is found, then what is decided, then what is written, each for
// all lines at once. The rules are those of a single Put.
type load struct {
	*Schedules
	tx     pgx.Tx
	tenant tenants.ID
	by     string
	quotas tenants.Quotas
	items  []*item
	memo   memo
	dry    bool // nothing is written

	now    time.Time
	shards []int16 // of each item: where it is stored, or is to be
	stored []int   // items that are stored and differ, by their place
	fresh  []int   // items that are not stored

	rows []*rewrite // to be written
	due  []Due
	ends []membership
}

// rewrite is a row that is to be written for an item.
type rewrite struct {
	*row
	ord     int // of the item
	newborn bool
	joins   bool // it is a member from now on, of the cohort that is found for it
	quiet   bool // it is timed anew, which makes no version
	timing  *cohortNeed
	next    time.Time
	before  *time.Time // its next tick before this version, and by it
	after   *time.Time
	moves   *string // those of the row, as they are stored
}

type membership struct{ cohort, spread, schedule int64 }

func (l *load) run(ctx context.Context, spread int16) error {
	if err := l.follow(ctx); err != nil {
		return err
	}
	if err := l.stage(ctx, spread); err != nil {
		return err
	}
	if err := l.match(ctx); err != nil {
		return err
	}
	if err := l.redefineStored(ctx); err != nil {
		return err
	}
	if err := l.defineFresh(ctx); err != nil {
		return err
	}
	if len(l.rows) == 0 || l.dry {
		return nil
	}
	if err := l.findCohorts(ctx); err != nil {
		return err
	}
	return l.write(ctx)
}

// follow reads the profiles of the keys that lines follow, which stand until the transaction ends.
func (l *load) follow(ctx context.Context) error {
	var keys []string
	for _, it := range l.items {
		if followsKey(it.spec) {
			keys = append(keys, it.key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if err := lockKeys(ctx, l.tx, l.tenant, toFollow, keys...); err != nil {
		return err
	}
	found, err := readProfiles(ctx, l.tx, l.tenant, keys...)
	if err != nil {
		return err
	}
	for _, it := range l.items {
		if followsKey(it.spec) {
			it.profile = found[it.key]
		}
	}
	return nil
}

// bulkTable holds the lines of the batch. It lasts as long as its session, and is empty after each transaction.
const bulkTable = `
	CREATE TEMPORARY TABLE IF NOT EXISTS bulk (
		ord int PRIMARY KEY,
		workflow text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, newborn smallint NOT NULL,
		spec text NOT NULL, payload text, labels jsonb NOT NULL, note text, status text NOT NULL,
		overlap text, missed text, max_lateness_s int, on_expired text, pause_after_failures int, queue text,
		priority smallint, timeout_s int, max_attempts smallint, keep_succeeded_s int, keep_failed_s int
	) ON COMMIT DELETE ROWS`

var bulkColumns = []string{
	"ord", "workflow", "key", "newborn", "spec", "payload", "labels", "note", "status",
	"overlap", "missed", "max_lateness_s", "on_expired", "pause_after_failures", "queue",
	"priority", "timeout_s", "max_attempts", "keep_succeeded_s", "keep_failed_s",
}

// lookUp has the planner look each line up by an index. It knows nothing of the temporary table, and its plans are kept:
// those made while schedules were few would read all of them for each line.
const lookUp = `
	SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off;
	SET LOCAL enable_material = off; SET LOCAL jit = off; SET LOCAL client_min_messages = warning;`

// freely lets the planner read the few rows that a batch is joined with whole.
const freely = `SET LOCAL enable_seqscan = on; SET LOCAL enable_material = on`

// stage copies the lines into the temporary table.
func (l *load) stage(ctx context.Context, spread int16) error {
	if _, err := l.tx.Exec(ctx, lookUp+bulkTable); err != nil {
		return fmt.Errorf("make the staging table: %w", err)
	}
	l.shards = make([]int16, len(l.items))
	_, err := l.tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "bulk"}, bulkColumns, pgx.CopyFromSlice(len(l.items), func(i int) ([]any, error) {
		it := l.items[i]
		l.shards[i] = bornIn(l.tenant, spread, it.workflow, it.key)
		return []any{
			int32(i), it.workflow, it.key, l.shards[i], it.specText, it.payload, it.labels, it.note, it.status,
			it.terms.Overlap, it.terms.Missed, it.terms.MaxLateness, it.terms.OnExpired, it.terms.PauseAfterFailures, it.terms.Queue,
			it.terms.Priority, it.terms.Timeout, it.terms.MaxAttempts, it.terms.KeepSucceeded, it.terms.KeepFailed,
		}, nil
	}))
	if err != nil {
		return fmt.Errorf("stage lines: %w", err)
	}
	return nil
}

// match locks the shards, in ascending order, and finds which lines are stored, and which of those say what is stored.
func (l *load) match(ctx context.Context) error {
	var b pgx.Batch
	b.Queue(`
		SELECT shard, pg_advisory_xact_lock_shared($2, shard)::text
		FROM (
			SELECT DISTINCT COALESCE(s.shard, b.newborn) AS shard
			FROM pg_temp.bulk b
			LEFT JOIN schedule s ON s.tenant_id = $1 AND s.workflow = b.workflow AND s.key = b.key
			ORDER BY 1
		) s`, l.tenant, shardLocks)
	// In a statement of its own: one that waited for the lock would show the others' rows as they were before it.
	b.Queue(`
		SELECT b.ord, s.id, s.shard,
			s.spec = b.spec AND s.payload IS NOT DISTINCT FROM b.payload AND s.labels = b.labels
				AND (b.note IS NULL OR b.note IS NOT DISTINCT FROM s.note)
				AND (s.status = 'active' OR s.status = 'paused' AND s.paused_until IS NULL)
				AND b.status IN ('', s.status)
				AND (s.overlap, s.missed, s.max_lateness_s, s.on_expired, s.pause_after_failures, s.queue, s.priority,
					s.timeout_s, s.max_attempts, s.keep_succeeded_s, s.keep_failed_s)
				IS NOT DISTINCT FROM (b.overlap, b.missed, b.max_lateness_s, b.on_expired, b.pause_after_failures, b.queue, b.priority,
					b.timeout_s, b.max_attempts, b.keep_succeeded_s, b.keep_failed_s)
		FROM pg_temp.bulk b
		JOIN schedule s ON s.tenant_id = $1 AND s.workflow = b.workflow AND s.key = b.key`, l.tenant)
	b.Queue(`SELECT clock_timestamp()`)
	results := l.tx.SendBatch(ctx, &b)
	defer results.Close()
	locked := map[int16]bool{}
	rows, _ := results.Query() // ForEachRow reports the error
	var shard int16
	var nothing *string
	if _, err := pgx.ForEachRow(rows, []any{&shard, &nothing}, func() error { locked[shard] = true; return nil }); err != nil {
		return fmt.Errorf("lock shards: %w", err)
	}
	found := make([]bool, len(l.items))
	rows, _ = results.Query() // ForEachRow reports the error
	var ord int
	var id int64
	var same bool
	if _, err := pgx.ForEachRow(rows, []any{&ord, &id, &shard, &same}, func() error {
		found[ord], l.shards[ord], l.items[ord].id = true, shard, id
		if l.items[ord].result = Unchanged; !same {
			l.stored = append(l.stored, ord)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("find what is stored: %w", err)
	}
	if err := results.QueryRow().Scan(&l.now); err != nil {
		return fmt.Errorf("read clock: %w", err)
	}
	l.now = l.now.UTC()
	for i, is := range found {
		if !locked[l.shards[i]] { // made anew elsewhere, or deleted, since we looked for its shard
			return errRaced
		}
		if !is {
			l.fresh = append(l.fresh, i)
		}
	}
	return results.Close()
}

// redefineStored decides what the lines make of rows that are stored.
func (l *load) redefineStored(ctx context.Context) error {
	if len(l.stored) == 0 {
		return nil
	}
	if _, err := l.tx.Exec(ctx, freely); err != nil {
		return fmt.Errorf("free the planner: %w", err)
	}
	ords := make(map[int64]int, len(l.stored))
	ids := make([]int64, len(l.stored))
	for i, ord := range l.stored {
		ids[i] = l.items[ord].id
		ords[ids[i]] = ord
	}
	rows, err := l.lockRows(ctx, ids)
	if err != nil {
		return err
	}
	if len(rows) < len(ids) { // deleted since we looked
		return errRaced
	}
	for _, r := range rows {
		if err := l.redefineRow(ctx, r, ords[r.ID]); err != nil {
			return err
		}
	}
	return nil
}

// lockRows locks and reads schedules whose shards are locked, with their timings, and then the clock. Those that are gone
// are left out.
func (l *load) lockRows(ctx context.Context, ids []int64) ([]*row, error) {
	slices.Sort(ids)
	var b pgx.Batch
	b.Queue(`SELECT id FROM schedule WHERE tenant_id = $1 AND id = ANY($2) ORDER BY id FOR UPDATE`, l.tenant, ids)
	b.Queue(`SELECT `+rowColumns+` FROM `+rowTables+` WHERE s.tenant_id = $1 AND s.id = ANY($2)`, l.tenant, ids)
	b.Queue(`SELECT clock_timestamp()`)
	results := l.tx.SendBatch(ctx, &b)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return nil, fmt.Errorf("lock schedules: %w", err)
	}
	found, _ := results.Query() // CollectRows reports the error
	rows, err := pgx.CollectRows(found, pgx.RowToAddrOfStructByName[row])
	if err != nil {
		return nil, fmt.Errorf("read schedules: %w", err)
	}
	if err := results.QueryRow().Scan(&l.now); err != nil {
		return nil, fmt.Errorf("read clock: %w", err)
	}
	l.now = l.now.UTC()
	if err := results.Close(); err != nil {
		return nil, err
	}
	return rows, l.Timings.fetch(ctx, l.tx, l.tenant, rows)
}

// redefineRow is what replace is for one schedule, with its writes put off.
func (l *load) redefineRow(ctx context.Context, r *row, ord int) error {
	it := l.items[ord]
	if r.Shard != l.shards[ord] {
		return errRaced
	}
	r.wake(l.now)
	before, err := r.timing(ctx, l.tx, l.Timings, l.tenant)
	if err != nil && !errors.Is(err, errUncomputable) {
		return err
	}
	next := r.coming(before, l.now)
	c, err := l.redefine(l.tenant, r, it.definition, before, l.now, l.quotas, l.memo)
	if err != nil {
		return it.refuse(err)
	}
	if !c.differs {
		return nil
	}
	w := &rewrite{row: r, ord: ord}
	if c.moves {
		ends, due := len(l.ends), len(l.due)
		l.leaveLater(r, before)
		c.recount(r, it.definition)
		if err := l.rearmLater(w, c); err != nil {
			l.ends, l.due = l.ends[:ends], l.due[:due]
			return it.refuse(err)
		}
	}
	w.before, w.after = next, r.coming(c.timing, l.now)
	if w.moves, err = r.movesText(); err != nil {
		return err
	}
	l.rows = append(l.rows, w)
	it.result = Updated
	return nil
}

// leaveLater is leave, with its writes put off.
func (l *load) leaveLater(r *row, t *calendar.Timing) {
	if r.CohortID == nil {
		return
	}
	l.ends = append(l.ends, membership{*r.CohortID, r.Spread, r.ID})
	l.due = append(l.due, r.withdraw(l.tenant, t, l.now)...)
}

// refuse notes a fault of the line; any other error is ours, and is returned.
func (it *item) refuse(err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	it.fail(f)
	return nil
}

// rearmLater is rearm, with the cohort to be found for all rows at once.
func (l *load) rearmLater(w *rewrite, c change) error {
	after := l.now
	if w.Status != Active {
		if w.PausedUntil == nil {
			return nil
		}
		after = w.PausedUntil.Add(-time.Second)
	}
	if err := l.enterLater(w, c.timing, after); err != nil {
		return err
	}
	if !w.joins && w.Status == Active {
		return neverFires()
	}
	return nil
}

// defineFresh decides what becomes of lines that are not stored, and registers their workflows.
func (l *load) defineFresh(ctx context.Context) error {
	if len(l.fresh) == 0 {
		return nil
	}
	defaults, err := l.defaults(ctx)
	if err != nil {
		return err
	}
	missing := map[string]bool{}
	for _, ord := range l.fresh {
		it := l.items[ord]
		r, t, err := l.newborn(l.tenant, l.shards[ord], it.workflow, it.key, it.definition, l.by, l.now, l.quotas, l.memo)
		w := &rewrite{row: r, ord: ord, newborn: true}
		if err == nil {
			known, ok := defaults[it.workflow]
			r.Defaults = known
			if r.Status == Active {
				err = l.rearmLater(w, change{timing: t})
			}
			if err == nil && !ok {
				missing[it.workflow] = true
			}
		}
		if err != nil {
			if err := it.refuse(err); err != nil {
				return err
			}
			continue
		}
		w.after = r.coming(t, l.now)
		l.rows = append(l.rows, w)
		it.result = Inserted
	}
	return l.register(ctx, missing)
}
