package tenants

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
)

const (
	usesEvery   = 30 * time.Second // between two times that a process stores the uses of API keys
	usesApart   = 25 * time.Second // the minimum between two stored uses of a key, because several processes see the same key
	usesMax     = 10_000           // keys in memory; uses of further keys are not recorded
	usesBatch   = 1_000            // keys in one statement
	usesTimeout = 5 * time.Second  // for all statements of one run
)

// keyUses holds the last uses of API keys until they are stored. It is safe for concurrent use.
type keyUses struct {
	mu   sync.Mutex
	last map[keyName]time.Time
}

// note records a use of a key.
func (u *keyUses) note(key keyName, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	before, known := u.last[key]
	if (known || len(u.last) < usesMax) && at.After(before) {
		u.last[key] = at
	}
}

// take returns all uses and clears them.
func (u *keyUses) take() map[keyName]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := u.last
	u.last = map[keyName]time.Time{}
	return all
}

// StoreUses stores the uses of API keys every 30 s until ctx ends, and then a last time.
func (d *Directory) StoreUses(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(usesEvery)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			ended = true
		}
		if err := d.storeUses(context.WithoutCancel(ctx)); err != nil {
			log.Warn("cannot store the uses of API keys", "error", err)
		}
	}
}

// storeUses stores the recorded uses. On an error it keeps the rest for the next run.
func (d *Directory) storeUses(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, usesTimeout)
	defer cancel()
	uses := d.uses.take()
	for len(uses) > 0 {
		some := map[keyName]time.Time{}
		for key, at := range uses {
			some[key] = at
			if len(some) == usesBatch {
				break
			}
		}
		if err := d.storeSome(ctx, some); err != nil {
			for key, at := range uses {
				d.uses.note(key, at)
			}
			return err
		}
		for key := range some {
			delete(uses, key)
		}
	}
	return nil
}

// storeSome stores uses in one statement. It locks the keys in a fixed order, because several processes store uses of the same keys.
// It sends the age of a use instead of its time, because the clocks of processes differ.
func (d *Directory) storeSome(ctx context.Context, uses map[keyName]time.Time) error {
	var owners []int32
	var ids []string
	var ago []float64
	now := d.now()
	for key, at := range uses {
		owners, ids, ago = append(owners, int32(key.tenant)), append(ids, key.id), append(ago, max(now.Sub(at).Seconds(), 0))
	}
	_, err := d.db.Exec(ctx, `
		WITH used AS (
			SELECT k.tenant_id, k.id, `+postgres.Now+` - make_interval(secs => n.ago) AS at
			FROM unnest($1::int[], $2::text[], $3::float8[]) AS n (tenant_id, id, ago)
			JOIN api_key k ON k.tenant_id = n.tenant_id AND k.id = n.id
			WHERE k.last_used_at IS NULL OR k.last_used_at < `+postgres.Now+` - make_interval(secs => n.ago) - $4::interval
			ORDER BY k.tenant_id, k.id
			FOR NO KEY UPDATE OF k
		)
		UPDATE api_key k
		SET last_used_at = u.at
		FROM used u
		WHERE k.tenant_id = u.tenant_id AND k.id = u.id`, owners, ids, ago, usesApart)
	if err != nil {
		return fmt.Errorf("store uses of API keys: %w", err)
	}
	return nil
}

// exchangeAuditGap is how long further exchanges of a key from the same network are not audited.
const exchangeAuditGap = time.Hour

// keyFrom is an API key and the network of the client that exchanges it.
type keyFrom struct {
	key  keyName
	from netip.Prefix
}
