package history

import (
	"context"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/tenants"
)

// Kept says which ticks of a tenant are shown. Ticks past their retention are hidden at once, and deleted later.
type Kept struct {
	Now      time.Time
	Oldest   time.Time // nominal time of ticks
	attempts time.Time // end of attempts
}

// Kept returns which ticks of a tenant are shown now, by its quotas.
func (r *Reader) Kept(ctx context.Context, tenant tenants.ID) (k Kept, err error) {
	quotas, err := r.quotas(ctx, tenant)
	if err != nil {
		return k, err
	}
	k.Now = time.Now().UTC()
	k.Oldest = k.Now.Add(-time.Duration(quotas.TickRetentionDays) * record.Day)
	k.attempts = k.Now.Add(-time.Duration(quotas.AttemptRetentionDays) * record.Day)
	return k, nil
}

// Over reports whether a tick is past its retention: the tenant's, or the one of its schedule for ticks that ended in that state.
func (k Kept) Over(t *record.Tick, w record.Schedule) bool {
	if t.NominalAt.Before(k.Oldest) {
		return true
	}
	switch t.State {
	case record.Succeeded:
		return w.Succeeded > 0 && t.EndedAt.Before(k.Now.Add(-w.Succeeded))
	case record.Failed:
		return w.Failed > 0 && t.EndedAt.Before(k.Now.Add(-w.Failed))
	}
	return false
}

// Since returns from when on ended ticks of a schedule are kept: those that succeeded, and those that failed. A zero time is no limit.
func (k Kept) Since(w record.Schedule) (succeeded, failed time.Time) {
	if w.Succeeded > 0 {
		succeeded = k.Now.Add(-w.Succeeded)
	}
	if w.Failed > 0 {
		failed = k.Now.Add(-w.Failed)
	}
	return succeeded, failed
}
