package push

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

const (
	pushingEvery = time.Second
	pushingOld   = 5 * time.Second // older rows of push_load do not count
)

// flight is how many requests of a tenant this process has in flight: all of them, and those to the endpoint with the most.
type flight struct{ requests, busiest int }

func (s *sender) inFlight() map[tenants.ID]flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := make(map[tenants.ID]flight, len(s.turns.running))
	for tenant, n := range s.turns.running {
		now[tenant] = flight{requests: n}
	}
	for name, q := range s.queues {
		if f, ok := now[name.Tenant]; ok {
			f.busiest = min(f.requests, max(f.busiest, q.slots))
			now[name.Tenant] = f
		}
	}
	return now
}

// writePushing writes each second how many requests this process has in flight, until ctx ends, so that any process can add them up.
func (p *Pusher) writePushing(ctx context.Context) {
	written := false // there may be rows of this process
	loop.Every(ctx, p.log.Logger, pushingEvery, "write what is in flight", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		now := p.sender.inFlight()
		if len(now) == 0 && !written {
			return nil
		}
		id, alive := p.member.Self()
		if !alive {
			return nil
		}
		var of, requests, busiest []int32
		for _, tenant := range slices.Sorted(maps.Keys(now)) {
			f := now[tenant]
			of, requests, busiest = append(of, int32(tenant)), append(requests, int32(f.requests)), append(busiest, int32(f.busiest))
		}
		var b pgx.Batch
		b.Queue(`DELETE FROM push_load WHERE process_id = $1 AND tenant_id <> ALL (COALESCE($2::int[], '{}'))`, id, of)
		b.Queue(`
			INSERT INTO push_load (process_id, tenant_id, requests, busiest, at)
			SELECT $1, tenant_id, requests, busiest, `+postgres.Now+`
			FROM unnest($2::int[], $3::int[], $4::int[]) AS n (tenant_id, requests, busiest)
			ON CONFLICT (process_id, tenant_id) DO UPDATE SET requests = excluded.requests, busiest = excluded.busiest, at = excluded.at`,
			id, of, requests, busiest)
		if err := p.pool.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		written = len(now) > 0
		return nil
	})
}

// Pushing returns the meter of how many requests to a tenant's endpoints are in flight in all processes, about a second ago. db must
// show the tenant's rows.
func Pushing(db postgres.DB) tenants.Meter { return meterPushing(db, "requests") }

// PushingToBusiest returns the meter of the requests in flight to the endpoint with the most. If processes push to several endpoints,
// it may count fewer than there are.
func PushingToBusiest(db postgres.DB) tenants.Meter { return meterPushing(db, "busiest") }

func meterPushing(db postgres.DB, column string) tenants.Meter {
	return func(ctx context.Context, tenant tenants.ID) (n int, err error) {
		err = db.QueryRow(ctx, `SELECT COALESCE(sum(`+column+`), 0)::int FROM push_load WHERE tenant_id = $1 AND at > `+postgres.Now+` - $2::interval`,
			tenant, pushingOld).Scan(&n)
		if err != nil {
			return 0, fmt.Errorf("count requests in flight: %w", err)
		}
		return n, nil
	}
}
