package upkeep

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/tenants"
)

// parked looks for parked ticks that wait for nothing.
type parked struct {
	pool  *pgxpool.Pool
	push  *push.Pusher
	pause cluster.Seldom
}

// wakeForsaken wakes parked ticks whose wait has ended without a change of a row, such as when a keyset with a lost key is restored.
// It reads what ticks are parked for, once each, and not the ticks.
func (p *parked) wakeForsaken(ctx context.Context) error {
	began, waits := time.Now(), 0
	if !p.pause.Due(began) {
		return nil
	}
	for from, more := (record.ParkedFor{Tenant: -1}), true; more; {
		var read int
		var err error
		if from, read, err = p.wakeSome(ctx, from); err != nil {
			return fmt.Errorf("look for parked ticks: %w", err)
		}
		waits, more = waits+read, read == control.MostForsaken
	}
	p.pause.Found(time.Since(began), waits, time.Now())
	return nil
}

// ReadForsaken reads what ticks are parked for, after a tenant and a name: one row of delayed for each, with the state of the tenant, the
// workflow and the endpoint.
const ReadForsaken = `
		WITH RECURSIVE parked (tenant_id, waits_for, n) AS (
			(SELECT tenant_id, waits_for, 1
			FROM delayed
			WHERE waits_for IS NOT NULL AND (tenant_id, waits_for) > ($1, $2)
			ORDER BY tenant_id, waits_for
			LIMIT 1)
			UNION ALL
			SELECT next.tenant_id, next.waits_for, p.n + 1
			FROM parked p
			CROSS JOIN LATERAL (
				SELECT tenant_id, waits_for
				FROM delayed h
				WHERE h.waits_for IS NOT NULL AND (h.tenant_id, h.waits_for) > (p.tenant_id, p.waits_for)
				ORDER BY h.tenant_id, h.waits_for
				LIMIT 1
			) next
			WHERE p.n < $3
		)
		SELECT p.tenant_id, p.waits_for, COALESCE(` + tenants.Stopped + `, false), h.held_at IS NOT NULL, e.state, e.headers, e.secrets
		FROM parked p
		LEFT JOIN tenant t ON t.id = p.tenant_id
		LEFT JOIN endpoint e ON e.tenant_id = p.tenant_id AND e.name = p.waits_for
		LEFT JOIN workflow h ON h.tenant_id = p.tenant_id AND p.waits_for LIKE 'workflow/%' AND h.name = substr(p.waits_for, length('workflow/') + 1)
		ORDER BY p.tenant_id, p.waits_for`

// wakeSome adds rows to table wake for those of the next page of waits that have ended, and returns the last one and how many it read.
func (p *parked) wakeSome(ctx context.Context, from record.ParkedFor) (last record.ParkedFor, n int, err error) {
	rows, _ := p.pool.Query(ctx, ReadForsaken, from.Tenant, from.For, control.MostForsaken) // ForEachRow reports the error
	var w record.ParkedFor
	var stopped, held bool
	var state *string
	var headers []byte
	var secrets [][]byte
	var owners []tenants.ID
	var names []string
	_, err = pgx.ForEachRow(rows, []any{&w.Tenant, &w.For, &stopped, &held, &state, &headers, &secrets}, func() error {
		last, n = w, n+1
		waiting := w.For == "" && stopped || held
		if state != nil {
			waiting = p.push.Endpoints.StillShut(w, *state, headers, secrets)
		}
		if !waiting {
			owners, names = append(owners, w.Tenant), append(names, w.For)
		}
		return nil
	})
	if err != nil || len(owners) == 0 {
		return last, n, err
	}
	_, err = p.pool.Exec(ctx, `
		INSERT INTO wake (tenant_id, waits_for)
		SELECT * FROM unnest($1::int[], $2::text[])
		ON CONFLICT DO NOTHING`, owners, names)
	return last, n, err
}
