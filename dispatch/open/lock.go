package open

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// EarlierChunks reads the unopened chunks that may share a schedule with a chunk of a run, and must be opened before it. The sweep numbers
// the chunks of a shard under its lock, so of two chunks with the same schedule the lower number has the earlier nominal time. The query
// searches for each chunk (OFFSET 0) by shard and tenant, from number $3 on and among $4. The sum e.id + 0 keeps the planner from reading
// all lower numbers.
var EarlierChunks = `
		SELECT c.id, e.id, e.nominal_at, e.items
		FROM chunk c
		CROSS JOIN LATERAL (
			SELECT e.id, e.nominal_at, e.items
			FROM ` + chunk.UnopenedBefore("c.id", "c.shard", "c.tenant_id", "$3", "$4") + ` e
			WHERE e.id + 0 < c.id AND e.kind = 0 AND e.first_id <= c.last_id AND e.last_id >= c.first_id
			OFFSET 0
		) e
		WHERE ` + chunk.OfRun + ` AND c.kind = 0
		ORDER BY c.id, e.id`

// locked has the locked chunks of a transaction.
type locked struct {
	ready  []*plan
	behind map[int64]int64 // those left, and the earlier chunk that each waits for
	later  []error         // why others are left to a later try
}

// lockChunks locks the unopened chunks of a run. In the same trip it reads the clock, and then what their opening needs: the chunks
// before them, their tenants and workflows. It waits for the lock of a single chunk, and leaves out locked ones of several.
func (o *Opener) lockChunks(ctx context.Context, tx pgx.Tx, first, through int64) (l locked, err error) {
	skip := ""
	if through > first {
		skip = " AND c.kind = 0 ORDER BY c.id FOR UPDATE SKIP LOCKED"
	} else {
		skip = " FOR UPDATE"
	}
	var b pgx.Batch
	b.Queue(postgres.GenericPlans) // planning for each set of values would cost a third of the opening of a small chunk
	b.Queue(`SELECT `+chunk.Columns+` FROM chunk c WHERE `+chunk.OfRun+skip, first, through)
	floor, stuck := o.unopened.From(o.cluster.Horizon)
	b.Queue(`SELECT ` + postgres.Now) // before everything that decides the ticks is read
	b.Queue(sabotage.OrderIgnored.Instead(EarlierChunks, "e.id + 0 < c.id", "false"), first, through, floor, stuck)
	b.Queue(`
		SELECT t.id, `+tenants.Stopped+`
		FROM tenant t
		WHERE t.id IN (SELECT c.tenant_id FROM chunk c WHERE `+chunk.OfRun+`)`, first, through)
	b.Queue(sabotage.ForeignEndpoint.Without(`
		SELECT `+routeOf+`
		FROM (SELECT DISTINCT c.tenant_id, n.name FROM chunk c CROSS JOIN unnest(c.workflows) AS n (name) WHERE `+chunk.OfRun+`) n
		JOIN workflow w ON w.tenant_id = n.tenant_id AND w.name = n.name
		LEFT JOIN endpoint e ON e.tenant_id = w.tenant_id AND e.name = w.endpoint`, "e.tenant_id = w.tenant_id AND"), first, through)
	results := tx.SendBatch(ctx, &b)
	defer func() { err = errors.Join(err, results.Close()) }()
	if _, err := results.Exec(); err != nil {
		return l, fmt.Errorf("set the planner: %w", err)
	}
	rows, _ := results.Query() // CollectRows reports the error
	chunks, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[chunk.Chunk])
	if err != nil {
		return l, fmt.Errorf("lock chunks: %w", err)
	}
	if len(chunks) == 0 {
		return l, nil
	}
	return l, o.describe(&l, chunks, results)
}

// describe reads what was asked for of chunks that are locked.
func (o *Opener) describe(l *locked, chunks []*chunk.Chunk, results pgx.BatchResults) (err error) {
	all := make(map[int64]*plan, len(chunks))
	for _, c := range chunks {
		c.NominalAt = c.NominalAt.UTC()
		p := &plan{chunk: c, trace: trace.Read(c.Trace)}
		if all[c.ID] = p; c.Kind == chunk.LaterTries {
			continue
		}
		if p.groups, err = chunk.UnpackGroups(c.NominalAt, c.Items); err != nil {
			return fmt.Errorf("chunk %d: %w", c.ID, err)
		}
		for _, g := range p.groups {
			p.items += len(g.IDs)
		}
	}
	var now time.Time
	if err := results.QueryRow().Scan(&now); err != nil {
		return fmt.Errorf("read clock: %w", err)
	}
	if l.behind, err = behindOthers(all, results); err != nil {
		return fmt.Errorf("look for earlier chunks: %w", err)
	}
	halted := map[tenants.ID]bool{}
	var tenant tenants.ID
	var stopped bool
	rows, _ := results.Query() // ForEachRow reports the error
	if _, err := pgx.ForEachRow(rows, []any{&tenant, &stopped}, func() error { halted[tenant] = stopped; return nil }); err != nil {
		return fmt.Errorf("read tenants: %w", err)
	}
	rows, _ = results.Query() // ForEachRow reports the error
	known, err := o.readRoutes(rows)
	if err != nil {
		return fmt.Errorf("read workflows: %w", err)
	}
	for _, c := range chunks {
		p := all[c.ID]
		stopped, there := halted[c.TenantID]
		if !there {
			return fmt.Errorf("chunk %d: its tenant is gone", c.ID)
		}
		if _, waits := l.behind[c.ID]; waits {
			continue
		}
		p.now, p.stopped, p.routes = now.UTC(), stopped, known.of(c.TenantID, c.Workflows)
		if why := p.unready(!sabotage.LocalClock.On()); why != nil {
			l.later = append(l.later, why)
			continue
		}
		l.ready = append(l.ready, p)
	}
	return nil
}

// behindOthers finds which chunks must wait for an earlier one that holds a schedule of theirs, and for which.
func behindOthers(all map[int64]*plan, results pgx.BatchResults) (map[int64]int64, error) {
	behind := map[int64]int64{}
	var id, earlier int64
	var at time.Time
	var items []byte
	rows, _ := results.Query() // ForEachRow reports the error
	_, err := pgx.ForEachRow(rows, []any{&id, &earlier, &at, &items}, func() error {
		p := all[id]
		if _, waits := behind[id]; waits || p == nil {
			return nil
		}
		if !slices.ContainsFunc(p.groups, func(g chunk.Group) bool { return at.Before(g.At) }) { // of one run, cut into parts
			return nil
		}
		other, err := chunk.UnpackGroups(at, items)
		if err == nil && chunk.Shares(p.groups, other) {
			behind[id] = earlier
		}
		return err
	})
	return behind, err
}
