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

// mostUnopened is how many chunks of a tenant's are swept ahead of their opening: a backlog waits in its cohorts, where it
// can be halted, and not among River's jobs.
const mostUnopened = 4000

const (
	pressureEvery = 500 * time.Millisecond
	restPressure  = time.Second
	pressurePart  = 20 // a look takes one part in so many of the time: the more is unopened, the longer it takes
)

// pressure is how many unopened chunks each tenant has: as of the last look at them, with those that this process has
// swept since.
type pressure struct {
	mu     sync.Mutex
	chunks map[tenants.ID]int
}

func (p *pressure) of(tenant tenants.ID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.chunks[tenant]
}

// add counts one more chunk, and tells how many there were.
func (p *pressure) add(tenant tenants.ID) (before int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.chunks == nil {
		p.chunks = map[tenants.ID]int{}
	}
	p.chunks[tenant]++
	return p.chunks[tenant] - 1
}

// set replaces the counts by those of a new look.
func (p *pressure) set(chunks map[tenants.ID]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chunks = chunks
}

// measurePressure counts the unopened chunks until ctx ends.
func (s *Sweeper) measurePressure(ctx context.Context) {
	var took time.Duration
	pace := func() time.Duration { return max(s.idle.Pace(pressureEvery, restPressure), pressurePart*took) }
	loop.Paced(ctx, s.log, pace, "count unopened chunks", func(ctx context.Context) error {
		defer func(began time.Time) { took = time.Since(began) }(time.Now())
		return s.CountUnopened(ctx)
	})
}

// countUnopened counts the unopened chunks of each tenant.
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

// priority is River's (1 is first) of a chunk of which so many of the tenant's are unopened before it: who has few is not
// held up by who has many, in any lane.
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

// looks remembers when something was last looked for in each shard.
type looks struct {
	mu sync.Mutex
	at map[int16]time.Time
}

// due tells whether it is time to look again, and notes that it is done.
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
