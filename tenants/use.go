package tenants

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/carillonhq/carillon/internal/postgres"
)

// Use is the use of one quota of a tenant. Used is nil if the quota bounds a single size instead of a sum. Soft means that four fifths
// are used.
type Use struct {
	Limit int  `json:"limit"`
	Used  *int `json:"used"`
	Soft  bool `json:"soft"`
}

// Meter returns how much of one quota a tenant uses now.
type Meter func(ctx context.Context, tenant ID) (int, error)

// Uses measures the use of quotas.
type Uses struct {
	DB        postgres.DB
	Directory *Directory
	Meters    map[string]Meter // by quota name; this package measures some of the others
}

// Of returns the use of each quota of a tenant, by name.
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
				return nil, fmt.Errorf("measure the use of %s: %w", name, err)
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

// Soft reports whether the use has reached the soft limit: four fifths of the limit.
func Soft(used, limit int) bool { return 5*used >= 4*limit }

// counts returns the uses that this package can read: the number of rows, and the part of each rate spent in the last second.
func (u Uses) counts(ctx context.Context, tenant ID, q Quotas) (map[string]int, error) {
	used := map[string]int{"requests_per_second": 0, "upserts_per_second": 0}
	var keys, endpoints, workflows int
	var ticksAhead float64 // the part of the last second of ticks_per_second that is spent
	err := u.DB.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM api_key WHERE tenant_id = $1), (SELECT count(*) FROM endpoint WHERE tenant_id = $1),
			(SELECT count(*) FROM workflow WHERE tenant_id = $1),
			COALESCE((SELECT GREATEST(0, 1 - extract(epoch FROM `+postgres.Now+` - spent_to)) FROM allowance WHERE tenant_id = $1 AND spent_to > `+postgres.Now+` - interval '1 s'), 0)::float8`,
		tenant).Scan(&keys, &endpoints, &workflows, &ticksAhead)
	if err != nil {
		return nil, fmt.Errorf("count keys, endpoints and workflows: %w", err)
	}
	used["api_keys"], used["endpoints"], used["workflows"] = keys, endpoints, workflows
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
		var behind float64 // seconds of the rate that are already spent
		if err := rows.Scan(&quota, &behind); err != nil {
			return nil, fmt.Errorf("read rates: %w", err)
		}
		if rate, ok := rates[quota]; ok {
			used[quota] = min(rate, int(behind*float64(rate)))
		}
	}
	return used, rows.Err()
}
