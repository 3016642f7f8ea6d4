package sweep

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// mostUnopened is the maximum number of a tenant's unopened chunks. A larger backlog waits in its cohorts, where a halt stops it, instead
// of in River's jobs.
const mostUnopened = 4000

const (
	pressureEvery = 500 * time.Millisecond
	restPressure  = time.Second
	pressurePart  = 20 // counting takes at most one part in so many of the time; it is slow if many chunks are unopened
)

// pressure is the number of each tenant's unopened chunks: the last count, and the chunks that this process has swept since.
type pressure struct {
	mu     sync.Mutex
	chunks map[tenants.ID]int
}

func (p *pressure) of(tenant tenants.ID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.chunks[tenant]
}

// add counts one more chunk, and returns the number before it.
func (p *pressure) add(tenant tenants.ID) (before int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.chunks == nil {
		p.chunks = map[tenants.ID]int{}
	}
	p.chunks[tenant]++
	return p.chunks[tenant] - 1
}

// set replaces the counts.
func (p *pressure) set(chunks map[tenants.ID]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chunks = chunks
}

// Backlog counts the chunks of each tenant that wait to be opened.
type Backlog struct {
	pool     *pgxpool.Pool
	unopened *chunk.Unopened
	horizon  *cluster.Horizon
	idle     *Idle
	pressure *pressure
	log      *slog.Logger
}

// NewBacklog returns the Backlog that limits what the chunker of c writes.
func NewBacklog(c Config, unopened *chunk.Unopened) *Backlog {
	return &Backlog{pool: c.Pool, unopened: unopened, horizon: c.Cluster.Horizon, idle: c.Idle, pressure: &c.Chunker.pressure, log: c.Log.Logger}
}

// Run counts periodically until ctx ends. Each process does so, because changes of schedules hand out ticks too.
func (b *Backlog) Run(ctx context.Context) {
	var took time.Duration
	pace := func() time.Duration { return max(b.idle.Pace(pressureEvery, restPressure), pressurePart*took) }
	loop.Paced(ctx, b.log, pace, "count unopened chunks", func(ctx context.Context) error {
		defer func(began time.Time) { took = time.Since(began) }(time.Now())
		return b.Count(ctx)
	})
}

// Count counts the unopened chunks of each tenant.
func (b *Backlog) Count(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	first, all, err := b.unopened.Read(ctx, b.pool, b.horizon)
	if err != nil {
		return err
	}
	chunks := map[tenants.ID]int{}
	for _, c := range first {
		chunks[c.Tenant]++
	}
	if !all {
		clear(chunks)
		from, stuck := b.unopened.From(b.horizon)
		rows, _ := b.pool.Query(ctx, `
			SELECT tenant_id, count(*)
			FROM (
				SELECT tenant_id FROM chunk WHERE opened_at IS NULL AND swept_at IS NOT NULL AND id >= $1
				UNION ALL
				SELECT c.tenant_id FROM chunk c WHERE c.id = ANY ($2) AND c.id < $1 AND `+chunk.StillUnopened+`
			) c
			GROUP BY tenant_id`, from, stuck) // ForEachRow reports the error
		var tenant tenants.ID
		var n int
		if _, err := pgx.ForEachRow(rows, []any{&tenant, &n}, func() error { chunks[tenant] = n; return nil }); err != nil {
			return fmt.Errorf("count unopened chunks: %w", err)
		}
	}
	b.pressure.set(chunks)
	return nil
}

// priority returns River's priority (1 is first) of a chunk, given how many chunks of its tenant are unopened before it. So a tenant with
// few chunks never waits for a tenant with many, in any lane.
func priority(before int) int {
	switch {
	case before < 16:
		return 1
	case before < 128:
		return 2
	case before < 1024:
		return 3
	}
	return 4
}

// looks stores the time of the last look in each shard.
type looks struct {
	mu sync.Mutex
	at map[int16]time.Time
}

// due reports whether the next look is due, and records it as done.
func (l *looks) due(shard int16) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.at[shard]) < otherLook {
		return false
	}
	if l.at == nil {
		l.at = map[int16]time.Time{}
	}
	l.at[shard] = time.Now()
	return true
}
