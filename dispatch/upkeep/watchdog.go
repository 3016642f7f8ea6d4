package upkeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/sweep"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

const (
	watchEvery   = 15 * time.Second
	watchLimit   = 10 * time.Second
	watchPatrol  = 2_500           // schedules looked at in one round, in the order of their numbers
	watchMost    = 10_000          // of what is counted or remembered
	withoutAfter = 2 * time.Minute // what has come to its end is marked as completed long before that
)

// numbered is the position of a schedule in the order in which the watchdog reads all of them.
type numbered struct {
	Tenant tenants.ID
	ID     int64
}

// watchdog sets metrics of what should not exist: due times that the sweep has not reached, chunks that no process opens, quarantined
// schedules, and active schedules without a next time. It repairs nothing. What it reads is bounded and does not grow with the number
// of schedules. Its checks remember what they saw between two looks.
type watchdog struct {
	metrics   *Metrics
	late      lateness
	exhausted withoutNext
	patrol    patrol
}

func newWatchdog(c Config, delays *delayWalk) *watchdog {
	return &watchdog{
		metrics:   c.Metrics,
		late:      lateness{pool: c.Pool, sweep: c.Sweep, unopened: c.Unopened, horizon: c.Horizon, metrics: c.Metrics},
		exhausted: withoutNext{pool: c.Pool, walk: delays, exhausted: map[int64]time.Time{}, unarmed: map[int64]time.Time{}},
		patrol:    patrol{pool: c.Pool, ids: c.IDs, log: c.Log, adrift: map[numbered]bool{}},
	}
}

// look runs all checks once, as of now.
func (w *watchdog) look(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, watchLimit)
	defer cancel()
	without, err := w.exhausted.count(ctx, now)
	err = errors.Join(w.late.look(ctx), err, w.patrol.look(ctx))
	if err != nil {
		return err
	}
	w.metrics.withoutNext.Set(float64(without + len(w.patrol.adrift)))
	w.metrics.watched.Set(float64(now.Unix()))
	return nil
}

// lateness measures how late the sweep and the opening are.
type lateness struct {
	pool     *pgxpool.Pool
	sweep    *sweep.Sweeper
	floors   sweep.DueFloors
	unopened *chunk.Unopened
	horizon  *cluster.Horizon
	metrics  *Metrics
}

// look reads the first due row of each queue, and sets the metrics of delays.
func (w *lateness) look(ctx context.Context) error {
	var cohort, delayed, turn time.Duration
	err := w.sweep.FirstDue(ctx, &w.floors, allShards, allShards, func(s sweep.ShardDue) {
		cohort, delayed, turn = max(cohort, s.Overdue(s.Cohort)), max(delayed, s.Overdue(s.Delayed)), max(turn, s.Overdue(s.Turn))
	})
	if err != nil {
		return fmt.Errorf("look for what is overdue: %w", err)
	}
	unopened, _, err := w.unopened.Read(ctx, w.pool, w.horizon)
	if err != nil {
		return err
	}
	var now time.Time
	var quarantined int
	err = w.pool.QueryRow(ctx, `
		SELECT `+postgres.Now+`, (SELECT count(*) FROM (SELECT FROM schedule WHERE status = 'quarantined' LIMIT $1) q)`, watchMost,
	).Scan(&now, &quarantined)
	if err != nil {
		return fmt.Errorf("look for quarantined schedules: %w", err)
	}
	var chunk time.Duration
	if len(unopened) > 0 {
		chunk = max(0, now.Sub(unopened[0].SweptAt))
	}
	w.metrics.overdue.WithLabelValues("cohort").Set(cohort.Seconds())
	w.metrics.overdue.WithLabelValues("delayed").Set(delayed.Seconds())
	w.metrics.overdue.WithLabelValues("turn").Set(turn.Seconds())
	w.metrics.unopened.Set(chunk.Seconds())
	w.metrics.quarantined.Set(float64(quarantined))
	return nil
}

// allShards are the numbers of all shards.
var allShards = func() (all []int16) {
	for shard := range int16(cohorts.Shards) {
		all = append(all, shard)
	}
	return all
}()

// withoutNext counts active schedules without a next time.
type withoutNext struct {
	pool      *pgxpool.Pool
	exhausted map[int64]time.Time // cohorts with active members and no next time, and when they were first seen
	overdue   int                 // members of exhausted cohorts when they were counted last
	pause     *cluster.Seldom     // between two such counts
	unarmed   map[int64]time.Time // the same for cohorts with fixed_delay
	walk      *delayWalk          // through these
	at        delaysPlace         // of the walk
}

// count counts the members of cohorts that have had no next time for withoutAfter. Upkeep completes them before that if their
// time is over.
func (w *withoutNext) count(ctx context.Context, now time.Time) (n int, err error) {
	if began := time.Now(); w.pause.Due(began) {
		if err := w.countExhausted(ctx, now); err != nil {
			return 0, fmt.Errorf("look for schedules without a next time: %w", err)
		}
		w.pause.Found(time.Since(began), len(w.exhausted), time.Now())
	}
	delays, err := w.unarmedDelays(ctx, now)
	return w.overdue + delays, err
}

// countExhausted counts the members of cohorts that are exhausted and not completed.
func (w *withoutNext) countExhausted(ctx context.Context, now time.Time) error {
	rows, err := w.pool.Query(ctx, `
		SELECT c.id, COALESCE((SELECT t.n FROM tally t WHERE t.tenant_id = c.tenant_id AND t.cohort_id = c.id), 1)
		FROM (SELECT tenant_id, id, run_at FROM cohort WHERE due_at IS NULL AND empty_at IS NULL AND (NOT delay OR over) LIMIT $1) c
		CROSS JOIN LATERAL (
			SELECT m.schedule_id
			FROM member m
			JOIN schedule s ON s.tenant_id = m.tenant_id AND s.id = m.schedule_id
			WHERE m.cohort_id = c.id AND m.tenant_id = c.tenant_id AND s.status = 'active'
			LIMIT 1
		) m
		WHERE c.run_at IS NULL`, watchMost)
	if err != nil {
		return err
	}
	seen, n := map[int64]time.Time{}, 0
	var id int64
	var members int
	if _, err := pgx.ForEachRow(rows, []any{&id, &members}, func() error {
		since, known := w.exhausted[id]
		if !known {
			since = now
		}
		seen[id] = since
		if now.Sub(since) >= withoutAfter {
			n += max(1, members)
		}
		return nil
	}); err != nil {
		return err
	}
	w.exhausted, w.overdue = seen, n
	return nil
}

// unarmedDelays reads the next page of schedules with fixed_delay that have no due time, and counts those that had no tick under way
// for withoutAfter.
func (w *withoutNext) unarmedDelays(ctx context.Context, now time.Time) (n int, err error) {
	page, next, err := w.walk.resting(ctx, w.at)
	if err != nil {
		return 0, err
	}
	in := map[int64]bool{}
	for _, r := range page {
		in[r.place.cohort] = r.unarmed
		if _, known := w.unarmed[r.place.cohort]; r.unarmed && !known && len(w.unarmed) < watchMost {
			w.unarmed[r.place.cohort] = now
		}
	}
	whole := w.at == delaysPlace{} && next == delaysPlace{}
	for cohort, since := range w.unarmed {
		if unarmed, looked := in[cohort]; looked && !unarmed || whole && !looked {
			delete(w.unarmed, cohort)
		} else if now.Sub(since) >= withoutAfter {
			n++
		}
	}
	w.at = next
	return n, nil
}

// patrol walks through all schedules, and finds those that are in no cohort.
type patrol struct {
	pool   *pgxpool.Pool
	ids    ident.Codec
	log    *slog.Logger
	adrift map[numbered]bool // active schedules that are in no cohort
	at     numbered          // of the walk
}

// look checks the next schedules, and again those in adrift: an active schedule is a member of an existing cohort. A walk through
// millions takes hours, because a check of all at once would cost too much.
func (w *patrol) look(ctx context.Context) error {
	var owners []tenants.ID
	var ids []int64
	for one := range w.adrift {
		owners, ids = append(owners, one.Tenant), append(ids, one.ID)
	}
	rows, err := w.pool.Query(ctx, `
		SELECT s.tenant_id, s.id, s.status = 'active' AND m.there IS NULL, s.fresh
		FROM (
			(SELECT tenant_id, id, status, shard, cohort_id, phase, true AS fresh
			FROM schedule
			WHERE (tenant_id, id) > ($1, $2)
			ORDER BY tenant_id, id
			LIMIT $3)
			UNION ALL
			SELECT s.tenant_id, s.id, s.status, s.shard, s.cohort_id, s.phase, false
			FROM unnest($4::int[], $5::bigint[]) AS i (tenant_id, id)
			CROSS JOIN LATERAL (SELECT * FROM schedule WHERE tenant_id = i.tenant_id AND id = i.id OFFSET 0) s
		) s
		LEFT JOIN LATERAL (
			SELECT true AS there
			FROM member m
			WHERE m.cohort_id = s.cohort_id AND m.phase = s.phase AND m.schedule_id = s.id AND m.tenant_id = s.tenant_id
				AND EXISTS (SELECT FROM cohort c WHERE c.shard = s.shard AND c.id = s.cohort_id)
			OFFSET 0
		) m ON true
		ORDER BY s.tenant_id, s.id`, w.at.Tenant, w.at.ID, watchPatrol, owners, ids)
	if err != nil {
		return fmt.Errorf("go through schedules: %w", err)
	}
	found := map[numbered]bool{}
	last, read := numbered{}, 0
	var one numbered
	var adrift, fresh bool
	if _, err := pgx.ForEachRow(rows, []any{&one.Tenant, &one.ID, &adrift, &fresh}, func() error {
		if fresh {
			last, read = one, read+1
		}
		if adrift && len(found) < watchMost {
			found[one] = true
		}
		return nil
	}); err != nil {
		return fmt.Errorf("go through schedules: %w", err)
	}
	for one := range found {
		if !w.adrift[one] {
			w.log.Error("an active schedule is in no cohort, and does not fire", "tenant", one.Tenant, "schedule", w.ids.Schedule(one.ID))
		}
	}
	if w.at = last; read < watchPatrol {
		w.at = numbered{}
	}
	w.adrift = found
	return nil
}
