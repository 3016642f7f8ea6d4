package rate

import (
	"context"
	"sync"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// Debts counts ticks of workflows that this process handed out without a token, until Settle charges them. Its zero value is empty.
type Debts struct {
	mu    sync.Mutex
	ticks map[Name]int
}

// Add counts n ticks of a workflow.
func (d *Debts) Add(tenant tenants.ID, workflow string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ticks == nil {
		d.ticks = map[Name]int{}
	}
	d.ticks[Name{tenant, Workflow, workflow}] += n
}

// Settle charges the buckets of the workflows. After an error the debts remain.
func (d *Debts) Settle(ctx context.Context, db postgres.DB) error {
	d.mu.Lock()
	ticks := d.ticks
	d.ticks = nil
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := Charge(ctx, db, ticks)
	if err != nil {
		for of, n := range ticks {
			d.Add(of.Tenant, of.Name, n)
		}
	}
	return err
}
