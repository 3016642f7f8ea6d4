package sweep

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
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

// measurePressure counts the unopened chunks periodically until ctx ends.
func (s *Sweeper) measurePressure(ctx context.Context) {
	var took time.Duration
	pace := func() time.Duration { return max(s.idle.Pace(pressureEvery, restPressure), pressurePart*took) }
	loop.Paced(ctx, s.log, pace, "count unopened chunks", func(ctx context.Context) error {
		defer func(began time.Time) { took = time.Since(began) }(time.Now())
		return s.CountUnopened(ctx)
	})
}

// CountUnopened counts the unopened chunks of each tenant.
func (s *Sweeper) CountUnopened(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	first, all, err := s.unopened.Read(ctx, s.pool, s.horizon)
	if err != nil {
		return err
	}
	chunks := map[tenants.ID]int{}
	for _, c := range first {
		chunks[c.Tenant]++
	}
	if !all {
		clear(chunks)
		from, stuck := s.unopened.From(s.horizon)
		rows, _ := s.pool.Query(ctx, `
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
	s.fair.pressure.set(chunks)
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
