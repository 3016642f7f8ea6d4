package tenants

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/carillonhq/carillon/internal/postgres"
)

// Use is a quota of a tenant's and how much of it is used: nil where it bounds a size and not a sum. Soft says that four
// fifths of it are.
type Use struct {
	Limit int  `json:"limit"`
	Used  *int `json:"used"`
	Soft  bool `json:"soft"`
}

// Meter tells how much of one quota a tenant uses just now.
type Meter func(ctx context.Context, tenant ID) (int, error)

// Uses tells a tenant's quotas and how much of each is used.
type Uses struct {
	DB        postgres.DB
	Directory *Directory
	Meters    map[string]Meter // by the quota's name; what is not here is metered by this package, or not
}

// Of tells how much a tenant uses of each of its quotas, by their names.
func (u Uses) Of(ctx context.Context, tenant ID) (map[string]Use, error) {
	q, err := u.Directory.Quotas(ctx, tenant)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	var limits map[string]int
	if err := json.Unmarshal(text, &limits); err != nil {
		return nil, err
	}
	used, err := u.counts(ctx, tenant, q)
	if err != nil {
		return nil, err
	}
	uses := map[string]Use{}
	for name, limit := range limits {
		one := Use{Limit: limit}
		n, known := used[name]
		if meter := u.Meters[name]; meter != nil {
			if n, err = meter(ctx, tenant); err != nil {
				return nil, fmt.Errorf("use of %s: %w", name, err)
			}
			known = true
		}
		if known {
			one.Used, one.Soft = &n, n > 0 && Soft(n, limit)
		}
		uses[name] = one
	}
	return uses, nil
}

// Soft tells whether so much of a limit is used that a warning is due: four fifths.
func Soft(used, limit int) bool { return 5*used >= 4*limit }

// counts are the uses that rows of this package tell: what is there, and what of each rate was spent of the last second.
func (u Uses) counts(ctx context.Context, tenant ID, q Quotas) (map[string]int, error) {
	used := map[string]int{"requests_per_second": 0, "upserts_per_second": 0}
	var keys, endpoints int
	var ticksAhead float64 // seconds of ticks_per_second that are spent of the last one
	err := u.DB.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM api_key WHERE tenant_id = $1), (SELECT count(*) FROM endpoint WHERE tenant_id = $1),
			COALESCE((SELECT GREATEST(0, 1 - extract(epoch FROM `+postgres.Now+` - spent_to)) FROM allowance WHERE tenant_id = $1 AND spent_to > `+postgres.Now+` - interval '1 s'), 0)::float8`,
		tenant).Scan(&keys, &endpoints, &ticksAhead)
	if err != nil {
		return nil, fmt.Errorf("count keys and endpoints: %w", err)
	}
	used["api_keys"], used["endpoints"] = keys, endpoints
	used["ticks_per_second"] = min(q.TicksPerSecond, int(ticksAhead*float64(q.TicksPerSecond)))
	rows, err := u.DB.Query(ctx, `
		SELECT quota, GREATEST(0, extract(epoch FROM full_at - `+postgres.Now+`))::float8
		FROM bucket
		WHERE tenant_id = $1`, tenant)
	if err != nil {
		return nil, fmt.Errorf("read rates: %w", err)
	}
	defer rows.Close()
	rates := map[string]int{"requests_per_second": q.RequestsPerSecond, "upserts_per_second": q.UpsertsPerSecond}
	for rows.Next() {
		var quota string
		var behind float64 // seconds of the rate that are spent ahead
		if err := rows.Scan(&quota, &behind); err != nil {
			return nil, fmt.Errorf("read rates: %w", err)
		}
		if rate, ok := rates[quota]; ok {
			used[quota] = min(rate, int(behind*float64(rate)))
		}
	}
	return used, rows.Err()
}
