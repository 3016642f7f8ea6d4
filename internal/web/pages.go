package web

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
)

// pages bounds how many large pages a tenant reads at the same time while other tenants make requests: as many as there are turns. The
// database works for each page, and a page with many bytes holds its connection while it waits for a turn. The pages of different tenants do
// not wait for one another here, because a read may take as long as the database does.
type pages struct {
	most int

	mu       sync.Mutex
	byTenant map[int32]*tenantPages
}

// tenantPages are the large pages of one tenant.
type tenantPages struct {
	turns turns
	users int // requests that read or wait
}

const (
	manyRows    = 16              // from this number of rows on a page is large
	longestWait = 5 * time.Second // less than a query's limit
)

func newPages() *pages {
	return &pages{most: mostTurns(), byTenant: map[int32]*tenantPages{}}
}

// beginPage waits until the request in ctx may read a page of n rows. The caller calls end after that. A page that would wait for longer
// than longestWait is refused.
func beginPage(ctx context.Context, n int) (end func(), err error) {
	a := accountOf(ctx)
	if a == nil || n < manyRows || !a.budget.turns.others(a.tenant, time.Now()) {
		return func() {}, nil
	}
	waiting, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	end, err = a.budget.pages.begin(waiting, a.tenant)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		f := fault.New(http.StatusTooManyRequests, "rate_limited", "a tenant reads at most %d large pages at a time in one process while other tenants use it", a.budget.pages.most)
		f.RetryAfter = time.Second
		f.Extra = map[string]any{"quota": "pages_in_flight", "limit": a.budget.pages.most, "used": a.budget.pages.most}
		return nil, f
	}
	return end, err
}

func (p *pages) begin(ctx context.Context, tenant int32) (end func(), err error) {
	p.mu.Lock()
	mine := p.byTenant[tenant]
	if mine == nil {
		mine = &tenantPages{turns: turns{free: p.most}}
		p.byTenant[tenant] = mine
	}
	mine.users++
	p.mu.Unlock()
	if err := mine.turns.begin(ctx, tenant); err != nil {
		p.leave(tenant, mine)
		return nil, err
	}
	return func() {
		mine.turns.end()
		p.leave(tenant, mine)
	}, nil
}

// leave removes a request from those of its tenant.
func (p *pages) leave(tenant int32, mine *tenantPages) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if mine.users--; mine.users == 0 {
		delete(p.byTenant, tenant)
	}
}
