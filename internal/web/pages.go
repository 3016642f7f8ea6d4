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
	users int  // requests that read or wait
	heavy bool // the last page that was read had many bytes
}

const (
	manyRows    = 16              // from this number of rows on a page is large
	longestWait = 5 * time.Second // less than a query's limit
)

func newPages() *pages {
	return &pages{most: mostTurns(), byTenant: map[int32]*tenantPages{}}
}

// page is one large page that a tenant reads. A nil page is one that waits for nothing.
type page struct {
	of     *pages
	tenant int32
	mine   *tenantPages
}

// beginPage waits until the request in ctx may read a page of n rows. The caller ends the page after that. A page that would wait for
// longer than longestWait is refused.
func beginPage(ctx context.Context, n int) (*page, error) {
	a := accountOf(ctx)
	if a == nil || n < manyRows || !a.budget.turns.others(a.tenant, time.Now()) {
		return nil, nil
	}
	waiting, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	p, err := a.budget.pages.begin(waiting, a.tenant)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		f := fault.New(http.StatusTooManyRequests, "rate_limited", "a tenant reads at most %d large pages at a time in one process while other tenants use it", a.budget.pages.most)
		f.RetryAfter = time.Second
		f.Extra = map[string]any{"quota": "pages_in_flight", "limit": a.budget.pages.most, "used": a.budget.pages.most}
		return nil, f
	}
	return p, err
}

func (p *pages) begin(ctx context.Context, tenant int32) (*page, error) {
	p.mu.Lock()
	mine := p.byTenant[tenant]
	if mine == nil {
		mine = &tenantPages{turns: turns{free: p.most}}
		p.byTenant[tenant] = mine
	}
	mine.users++
	p.mu.Unlock()
	one := &page{p, tenant, mine}
	if err := mine.turns.begin(ctx, tenant); err != nil {
		one.leave()
		return nil, err
	}
	return one, nil
}

// expects reports whether the page probably has many bytes: the tenant's last page had, and since then a large page of the tenant was
// always read or waited for.
func (p *page) expects() bool {
	if p == nil {
		return false
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	return p.mine.heavy
}

// had records whether the page had many bytes.
func (p *page) had(many bool) {
	if p == nil {
		return
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.mine.heavy = many
}

// end lets the next page of the tenant begin.
func (p *page) end() {
	if p == nil {
		return
	}
	p.mine.turns.end()
	p.leave()
}

// leave removes a request from those of its tenant.
func (p *page) leave() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.mine.users--; p.mine.users == 0 {
		delete(p.of.byTenant, p.tenant)
	}
}
