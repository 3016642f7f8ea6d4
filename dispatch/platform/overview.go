package platform

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/upkeep"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/cohorts"
)

// Engine reads the engine's tables over all tenants. It is safe for concurrent use.
type Engine struct {
	DB       postgres.DB // of the engine, which sees all tenants
	Cursors  *web.Cursor
	Unopened func() (floor int64, stuck []int64) // where unopened chunks begin, and those before
}

// Process is a living process of Carillon.
type Process struct {
	Name      string   `json:"name"`    // host and pid
	Roles     []string `json:"roles"`   // api, sweep and dispatch
	Version   string   `json:"version"` // of its program
	BeatAgeMS int64    `json:"beat_age_ms"`
	Shards    int      `json:"shards"` // how many shards it sweeps
}

// Overview says how the engine is. Counts end at 1,000 for each shard and at 10,000 for each queue.
type Overview struct {
	At             time.Time        `json:"at"`
	Processes      []Process        `json:"processes"`
	Due            int64            `json:"due"`               // due times that no sweep has come to
	OldestDueAgeMS int64            `json:"oldest_due_age_ms"` // for how long the oldest has been due; 0: none is
	Unopened       int64            `json:"unopened"`          // ticks that were swept and are not handed out
	Queues         map[string]int64 `json:"queues"`            // jobs that wait, by River queue
	BrokenPromises int64            `json:"broken_promises"`   // rows that contradict a promise
	Tenants        Tenants          `json:"tenants"`
}

// Tenants are the numbers of tenants by status.
type Tenants struct {
	Active    int64 `json:"active"`
	Suspended int64 `json:"suspended"` // those that are being erased too
	Erasing   int64 `json:"erasing"`
}

const (
	mostDue     = 1_000  // counted in a shard
	mostJobs    = 10_000 // counted in a queue
	mostWaiting = 10_000 // unopened chunks that are added up
)

// roles are the parts of the work that a process can do.
var roles = []string{"api", "sweep", "dispatch"}

// lanes are the queues of River that Carillon works.
var lanes = []string{chunk.SmallLane, chunk.LargeLane, chunk.CatchUpLane, chunk.WorkLane}

// Overview returns the state of the engine.
func (e *Engine) Overview(ctx context.Context) (v Overview, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	v = Overview{Processes: []Process{}, Queues: map[string]int64{}}
	var b pgx.Batch
	e.queueProcesses(&b, &v)
	queueDue(&b, &v)
	e.queueUnopened(&b, &v)
	queueJobs(&b, &v)
	queueTenants(&b, &v)
	if err := e.DB.SendBatch(ctx, &b).Close(); err != nil {
		return v, fmt.Errorf("read the overview of the platform: %w", err)
	}
	broken, err := upkeep.Scan(ctx, e.DB, false)
	for _, b := range broken {
		v.BrokenPromises += int64(b.Rows)
	}
	return v, err
}

// queueProcesses queues the clock and the processes whose heartbeat is not too old.
func (e *Engine) queueProcesses(b *pgx.Batch, v *Overview) {
	b.Queue(`
		SELECT now.at, id, name, serves, sweeps, dispatches, version, (extract(epoch FROM now.at - beat_at) * 1000)::bigint
		FROM (SELECT `+postgres.Now+` AS at) now
		LEFT JOIN process ON beat_at > now.at - make_interval(secs => $1)
		ORDER BY id`, cluster.DeadAfter.Seconds()).Query(func(rows pgx.Rows) error {
		var sweepers, numbers []int64
		var id, age *int64
		var name, version *string
		var serves, sweeps, dispatches *bool
		_, err := pgx.ForEachRow(rows, []any{&v.At, &id, &name, &serves, &sweeps, &dispatches, &version, &age}, func() error {
			if id == nil {
				return nil
			}
			p := Process{Name: *name, Version: *version, BeatAgeMS: max(0, *age), Roles: []string{}}
			for i, does := range []bool{*serves, *sweeps, *dispatches} {
				if does {
					p.Roles = append(p.Roles, roles[i])
				}
			}
			if *sweeps {
				sweepers = append(sweepers, *id)
			}
			v.Processes, numbers = append(v.Processes, p), append(numbers, *id)
			return nil
		})
		v.At = v.At.UTC()
		for i, n := range numbers {
			v.Processes[i].Shards = len(cluster.ShardsOf(n, sweepers))
		}
		return err
	})
}

// queueDue queues the due times of timings and of delayed ticks that no sweep has come to.
func queueDue(b *pgx.Batch, v *Overview) {
	b.Queue(`
		SELECT count(*), COALESCE((extract(epoch FROM max(now.at) - min(d.due_at)) * 1000)::bigint, 0)
		FROM (SELECT `+postgres.Now+` AS at) now
		CROSS JOIN generate_series(0, $1::int - 1) AS s (shard)
		CROSS JOIN LATERAL (
			(SELECT due_at FROM cohort WHERE shard = s.shard::smallint AND due_at <= now.at ORDER BY due_at LIMIT $2)
			UNION ALL
			(SELECT due_at FROM delayed WHERE shard = s.shard::smallint AND due_at <= now.at ORDER BY due_at LIMIT $2)
		) d`, cohorts.Shards, mostDue).QueryRow(func(row pgx.Row) error { return row.Scan(&v.Due, &v.OldestDueAgeMS) })
}

// queueUnopened queues the number of ticks that are swept but not opened.
func (e *Engine) queueUnopened(b *pgx.Batch, v *Overview) {
	floor, stuck := e.Unopened()
	b.Queue(`
		SELECT COALESCE(sum(ticks), 0)::bigint
		FROM (
			(SELECT ticks FROM chunk WHERE opened_at IS NULL AND swept_at IS NOT NULL AND id >= $1 ORDER BY id LIMIT $3)
			UNION ALL
			SELECT c.ticks FROM chunk c WHERE c.id = ANY ($2) AND c.id < $1 AND `+chunk.StillUnopened+`
		) c`, floor, stuck, mostWaiting).QueryRow(func(row pgx.Row) error { return row.Scan(&v.Unopened) })
}

// queueJobs queues the numbers of jobs that wait in the queues.
func queueJobs(b *pgx.Batch, v *Overview) {
	b.Queue(`
		SELECT q.name, n.jobs
		FROM unnest($1::text[]) AS q (name)
		CROSS JOIN LATERAL (
			SELECT count(*) AS jobs FROM (SELECT FROM river_job WHERE state = 'available' AND queue = q.name LIMIT $2) j
		) n`, lanes, mostJobs).Query(func(rows pgx.Rows) error {
		var name string
		var n int64
		_, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error {
			v.Queues[name] = n
			return nil
		})
		return err
	})
}

func queueTenants(b *pgx.Batch, v *Overview) {
	b.Queue(`SELECT count(*) FILTER (WHERE status = 'active'), count(*) FILTER (WHERE status = 'suspended'), count(erasing_at) FROM tenant`).
		QueryRow(func(row pgx.Row) error { return row.Scan(&v.Tenants.Active, &v.Tenants.Suspended, &v.Tenants.Erasing) })
}
