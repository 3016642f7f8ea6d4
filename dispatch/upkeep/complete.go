package upkeep

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// completion marks schedules that have come to their end: the members of exhausted cohorts, and those past their own last time.
type completion struct {
	pool      *pgxpool.Pool
	unopened  *chunk.Unopened
	horizon   *cluster.Horizon
	exhausted exhaustedWalk
	ended     endedWalk
}

func newCompletion(c Config) *completion {
	return &completion{
		pool: c.Pool, unopened: c.Unopened, horizon: c.Horizon,
		exhausted: exhaustedWalk{pool: c.Pool, pause: cluster.Seldom{Every: upkeepEvery}},
		ended: endedWalk{pool: c.Pool, horizon: c.Horizon, pause: cluster.Seldom{Every: upkeepEvery}, low: cluster.LowEnd{
			Index:  "member_ended",
			First:  `SELECT (SELECT until_at FROM member WHERE until_at < (SELECT ` + postgres.Now + `) AND until_at >= $1 ORDER BY until_at LIMIT 1)`,
			Below:  `SELECT (SELECT until_at FROM member WHERE until_at >= $1 AND until_at < $2 ORDER BY until_at LIMIT 1)`,
			Search: cluster.Search{Every: cluster.SeldomSearch, Most: mostSearched, Wide: true},
		}},
	}
}

// completeSome marks the next schedules without a nominal time left as completed, a page of each walk. A schedule with a limit of ticks
// stays active while a chunk of its ticks is unopened, because the opening of a tick announces the next ones.
func (c *completion) completeSome(ctx context.Context) (more bool, err error) {
	var found endings
	moreExhausted, err := c.exhausted.next(ctx, &found)
	if err != nil {
		return false, fmt.Errorf("look for exhausted cohorts: %w", err)
	}
	moreEnded, err := c.ended.next(ctx, &found)
	if err != nil {
		return false, fmt.Errorf("look for schedules past their last time: %w", err)
	}
	if len(found.ids) == 0 {
		return moreExhausted || moreEnded, nil
	}
	if err := c.complete(ctx, found); err != nil {
		return false, fmt.Errorf("complete schedules: %w", err)
	}
	return moreExhausted || moreEnded, nil
}

// endings are memberships that may have come to their end, as the columns of a query.
type endings struct {
	tenants []int32
	shards  []int16
	cohorts []int64
	phases  []int64
	ids     []int64
}

func (e *endings) add(one ending) {
	e.tenants, e.shards, e.cohorts = append(e.tenants, one.tenant), append(e.shards, one.shard), append(e.cohorts, one.cohort)
	e.phases, e.ids = append(e.phases, one.phase), append(e.ids, one.id)
}

type ending struct {
	tenant            int32
	shard             int16
	cohort, phase, id int64
}

func (e *ending) fields() []any { return []any{&e.tenant, &e.shard, &e.cohort, &e.phase, &e.id} }

// exhaustedWalk walks through the members of exhausted cohorts. These are few, but while an old snapshot is open their index keeps the
// entries of all that were completed since. So reading in vain is followed by a pause.
type exhaustedWalk struct {
	pool  *pgxpool.Pool
	at    ending        // of the last row; its zero value: a walk begins
	took  time.Duration // by the looks of this walk
	rows  int           // that they found
	pause cluster.Seldom
}

// next adds the next page of members, and reports whether there may be more.
func (w *exhaustedWalk) next(ctx context.Context, found *endings) (more bool, err error) {
	began := time.Now()
	if w.at == (ending{}) {
		if !w.pause.Due(began) {
			return false, nil
		}
		w.at, w.took, w.rows = ending{shard: math.MinInt16, phase: math.MinInt64}, 0, 0
	}
	var one ending
	rows, last := 0, w.at
	err = postgres.ReadPage(ctx, w.pool, `
		SELECT c.tenant_id, c.shard, c.id, m.phase, m.schedule_id
		FROM cohort c
		CROSS JOIN LATERAL (
			SELECT phase, schedule_id
			FROM member
			WHERE cohort_id = c.id AND tenant_id = c.tenant_id
				AND (phase, schedule_id) > (CASE WHEN c.id = $2 THEN $3::bigint ELSE '-9223372036854775808' END, CASE WHEN c.id = $2 THEN $4::bigint ELSE 0 END)
			ORDER BY phase, schedule_id
			LIMIT $5
		) m
		WHERE c.due_at IS NULL AND c.empty_at IS NULL AND c.run_at IS NULL AND (NOT c.delay OR c.over) AND (c.shard, c.id) >= ($1, $2)
		ORDER BY c.shard, c.id
		LIMIT $5`, []any{w.at.shard, w.at.cohort, w.at.phase, w.at.id, record.MostCleared}, one.fields(), func() error {
		rows++
		last = one
		found.add(one)
		return nil
	})
	if err != nil {
		w.at = ending{}
		return false, err
	}
	w.took, w.rows = w.took+time.Since(began), w.rows+rows
	if more = rows == record.MostCleared; more {
		w.at = last
	} else {
		w.at = ending{}
		w.pause.Found(w.took, w.rows, time.Now())
	}
	return more, nil
}

// endedWalk walks through the memberships past their last time, from the earliest that is left. Many that cannot be completed yet may be
// left, such as those of a held workflow, so reading in vain is followed by a pause.
type endedWalk struct {
	pool    *pgxpool.Pool
	horizon *cluster.Horizon
	low     cluster.LowEnd
	at      ending        // of the last row
	until   time.Time     // of the last row; the zero time: a walk begins
	took    time.Duration // by the looks of this walk
	over    int           // rows of this walk that can be completed
	pause   cluster.Seldom
}

// next adds the next page of memberships that no time of their cohorts falls in, and reports whether there may be more.
func (w *endedWalk) next(ctx context.Context, found *endings) (more bool, err error) {
	began := time.Now()
	if w.until.IsZero() {
		if !w.pause.Due(began) {
			return false, nil
		}
		_, first, err := w.low.Look(ctx, w.pool, w.horizon)
		if err != nil || first.IsZero() {
			return false, err
		}
		w.at, w.until, w.took, w.over = ending{}, first, 0, 0
	}
	var one ending
	var until time.Time
	var over bool
	rows, last, lastUntil := 0, w.at, w.until
	err = postgres.ReadPage(ctx, w.pool, `
		SELECT m.tenant_id, COALESCE(s.shard, 0::smallint), m.cohort_id, m.phase, m.schedule_id, m.until_at,
			COALESCE(c.there AND c.run_at IS NULL AND (c.next_at IS NULL OR c.next_at > m.until_at), false)
		FROM (
			SELECT tenant_id, cohort_id, phase, schedule_id, until_at
			FROM member
			WHERE (until_at, cohort_id, phase, schedule_id) > ($1, $2, $3, $4) AND until_at < (SELECT `+postgres.Now+`)
			ORDER BY until_at, cohort_id, phase, schedule_id
			LIMIT $5
		) m
		LEFT JOIN LATERAL (SELECT shard FROM schedule WHERE tenant_id = m.tenant_id AND id = m.schedule_id LIMIT 1) s ON true
		LEFT JOIN LATERAL (SELECT true AS there, run_at, next_at FROM cohort WHERE shard = s.shard AND id = m.cohort_id AND tenant_id = m.tenant_id LIMIT 1) c ON true`,
		[]any{w.until, w.at.cohort, w.at.phase, w.at.id, record.MostCleared}, append(one.fields(), &until, &over), func() error {
			rows++
			last, lastUntil = one, until
			if over {
				w.over++
				found.add(one)
			}
			return nil
		})
	if err != nil {
		w.until = time.Time{}
		return false, err
	}
	w.took += time.Since(began)
	if more = rows == record.MostCleared; more {
		w.at, w.until = last, lastUntil
	} else {
		w.until = time.Time{}
		w.pause.Found(w.took, w.over, time.Now())
	}
	return more, nil
}

// complete completes those of the schedules that have come to their end.
func (c *completion) complete(ctx context.Context, found endings) error {
	return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		floor, stuck := c.unopened.From(c.horizon)
		rows, err := tx.Query(ctx, lockCompleted, found.tenants, found.shards, found.cohorts, found.phases, found.ids, floor, stuck)
		if err != nil {
			return err
		}
		var locked endings
		var one ending
		if _, err := pgx.ForEachRow(rows, one.fields(), func() error {
			locked.add(one)
			return nil
		}); err != nil || len(locked.ids) == 0 {
			return err
		}
		var b pgx.Batch
		b.Queue(`
			DELETE FROM member m
			USING unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[]) AS o (tenant_id, id, cohort_id, phase)
			WHERE m.cohort_id = o.cohort_id AND m.phase = o.phase AND m.schedule_id = o.id AND m.tenant_id = o.tenant_id`,
			locked.tenants, locked.ids, locked.cohorts, locked.phases)
		b.Queue(`
			UPDATE schedule s
			SET status = 'completed', cohort_id = NULL, paused_at = NULL, paused_until = NULL
			FROM unnest($1::int[], $2::bigint[]) AS o (tenant_id, id)
			WHERE s.tenant_id = o.tenant_id AND s.id = o.id`, locked.tenants, locked.ids)
		b.Queue(`
			INSERT INTO notice_delta (tenant_id, event, cause, n, schedule_id)
			SELECT s.tenant_id, $3::text, s.workflow, count(*), min(s.id)
			FROM (SELECT n.id FROM (SELECT DISTINCT id FROM unnest($1::int[]) AS d (id)) n WHERE `+tenants.SubscribedEach("n.id", "$3::text")+` OFFSET 0) t
			CROSS JOIN LATERAL (SELECT o.id FROM unnest($1::int[], $2::bigint[]) AS o (tenant_id, id) WHERE o.tenant_id = t.id OFFSET 0) o
			CROSS JOIN LATERAL (SELECT tenant_id, id, workflow FROM schedule WHERE tenant_id = t.id AND id = o.id OFFSET 0) s
			GROUP BY s.tenant_id, s.workflow`, locked.tenants, locked.ids, tenants.ScheduleCompleted)
		return tx.SendBatch(ctx, &b).Close()
	})
}

// lockCompleted locks the schedules of memberships that have no nominal time left, each with its membership and its cohort. PostgreSQL
// checks the conditions on the newest version of a row that it locks. The statement waits for no lock, so that it is part of no
// deadlock: it leaves a schedule that another transaction changes for the next run. A subquery that locks can only be joined by a
// nested loop, so each reads one row of an index.
var lockCompleted = `
	SELECT s.tenant_id, f.shard, f.cohort_id, m.phase, s.id
	FROM (SELECT DISTINCT * FROM unnest($1::int[], $2::smallint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS i (tenant_id, shard, cohort_id, phase, schedule_id)) f
	CROSS JOIN LATERAL (
		SELECT tenant_id, id
		FROM schedule
		WHERE tenant_id = f.tenant_id AND id = f.schedule_id AND cohort_id = f.cohort_id
		FOR UPDATE SKIP LOCKED
	) s
	CROSS JOIN LATERAL (
		SELECT n.phase, n.until_at
		FROM member n
		WHERE n.cohort_id = f.cohort_id AND n.phase = f.phase AND n.schedule_id = s.id AND n.tenant_id = s.tenant_id
			AND (n.until_at IS NULL OR NOT EXISTS (
				SELECT FROM ` + chunk.UnopenedOf("f.shard", "f.tenant_id", "$6", "$7") + ` k WHERE k.nominal_at <= n.until_at))
		FOR UPDATE SKIP LOCKED
	) m
	CROSS JOIN LATERAL (
		SELECT
		FROM cohort
		WHERE shard = f.shard AND id = f.cohort_id AND tenant_id = f.tenant_id AND run_at IS NULL
			AND (due_at IS NULL AND empty_at IS NULL AND (NOT delay OR over)
				OR m.until_at < (SELECT ` + postgres.Now + `) AND (next_at IS NULL OR next_at > m.until_at))
		FOR UPDATE SKIP LOCKED
	) c`
