package schedules

import (
	"context"

	"github.com/carillonhq/carillon/tenants"
)

// takeSpace refuses a row of the batch that stores more bytes than the tenant's quota has room for.
func (l *load) takeSpace(ctx context.Context, bytes int) error {
	if l.space == nil {
		all := 0
		for _, some := range [][]int{l.stored, l.fresh} {
			for _, ord := range some {
				all += l.items[ord].held()
			}
		}
		has, err := l.Forecasts.SpaceFor(ctx, l.tx, l.tenant, all, l.quotas)
		if err != nil {
			return err
		}
		l.space = &has
	}
	if bytes > l.space.Left {
		return tenants.Exceeded("stored_bytes", l.quotas.StoredBytes, l.space.Used)
	}
	l.space.Left -= bytes
	l.space.Used += bytes
	return nil
}

// held is how many bytes a definition stores.
func (d *definition) held() int {
	if d.payload == nil {
		return len(d.specText)
	}
	return len(d.specText) + len(*d.payload)
}
