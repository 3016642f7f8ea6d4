package lease

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

const (
	writePollsEvery = 10 * time.Second
	mostNotedPolls  = 100_000 // workflows: beyond them a poll is not noted
)

// polls are the workflows that workers have polled since they were last written. The zero value is empty.
type polls struct {
	mu   sync.Mutex
	seen map[polledWorkflow]bool
}

type polledWorkflow struct {
	tenant   tenants.ID
	workflow string
}

func (p *polls) add(tenant tenants.ID, workflows []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[polledWorkflow]bool{}
	}
	for _, workflow := range workflows {
		if len(p.seen) < mostNotedPolls {
			p.seen[polledWorkflow{tenant, workflow}] = true
		}
	}
}

// take returns the polled workflows, and forgets them.
func (p *polls) take() (owners []int32, names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for one := range p.seen {
		owners, names = append(owners, int32(one.tenant)), append(names, one.workflow)
	}
	p.seen = nil
	return owners, names
}

// WritePolls writes which workflows were polled since it was last called, or are polled now. Workflows that do not exist are left out.
func (w *PollWatch) WritePolls(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	owners, names := w.ready.polls.take()
	now := w.notifier.Polled()
	owners, names = append(owners, now.Tenants...), append(names, now.Workflows...)
	if len(owners) == 0 {
		return nil
	}
	_, err := w.pool.Exec(ctx, `
		INSERT INTO workflow_poll (tenant_id, workflow, polled_at)
		SELECT DISTINCT n.tenant_id, n.name, `+postgres.TxNow+`
		FROM unnest($1::int[], $2::text[]) AS n (tenant_id, name)
		CROSS JOIN LATERAL (SELECT FROM workflow WHERE tenant_id = n.tenant_id AND name = n.name OFFSET 0) w
		ORDER BY 1, 2
		ON CONFLICT (tenant_id, workflow) DO UPDATE SET polled_at = excluded.polled_at`, owners, names)
	if err != nil {
		return fmt.Errorf("write polls: %w", err)
	}
	return nil
}
