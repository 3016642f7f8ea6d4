package rate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// Name names a bucket: of a workflow, or of an endpoint.
type Name struct {
	Tenant tenants.ID
	Kind   string // Workflow or Endpoint
	Name   string
}

// The kinds of buckets.
const (
	Workflow = "workflow"
	Endpoint = "endpoint"
)

// Grant is the answer to a request for tokens.
type Grant struct {
	N    int           // tokens that were taken
	Wait time.Duration // how long until there is another one
}

// Lock locks a bucket until the transaction ends, and returns it as it is now.
func Lock(ctx context.Context, tx pgx.Tx, of Name, r Rate) (bucket Bucket, err error) {
	var b pgx.Batch
	b.Queue(`INSERT INTO rate_allowance (tenant_id, kind, name) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, of.Tenant, of.Kind, of.Name)
	b.Queue(`SELECT tokens, at, ramp_from FROM rate_allowance WHERE tenant_id = $1 AND kind = $2 AND name = $3 FOR UPDATE`, of.Tenant, of.Kind, of.Name)
	b.Queue(`SELECT ` + postgres.Now)
	results := tx.SendBatch(ctx, &b)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return bucket, fmt.Errorf("lock the rate of %s %q: %w", of.Kind, of.Name, err)
	}
	if err := results.QueryRow().Scan(&bucket.Tokens, &bucket.At, &bucket.RampFrom); err != nil {
		return bucket, fmt.Errorf("lock the rate of %s %q: %w", of.Kind, of.Name, err)
	}
	var now time.Time
	if err := results.QueryRow().Scan(&now); err != nil {
		return bucket, fmt.Errorf("read clock: %w", err)
	}
	bucket.Fill(r, now)
	return bucket, results.Close()
}

// QueueStore writes a locked bucket.
func QueueStore(b *pgx.Batch, of Name, bucket Bucket) {
	b.Queue(`UPDATE rate_allowance SET tokens = $4, at = $5, ramp_from = $6 WHERE tenant_id = $1 AND kind = $2 AND name = $3`,
		of.Tenant, of.Kind, of.Name, bucket.Tokens, bucket.At, bucket.RampFrom)
}

// Take takes up to want tokens, after it has charged debt: tokens of ticks that went out without one.
func Take(ctx context.Context, db postgres.DB, of Name, r Rate, want, debt int) (g Grant, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = off`); err != nil { // a crash gives back what was taken, no more
			return err
		}
		bucket, err := Lock(ctx, tx, of, r)
		if err != nil {
			return err
		}
		bucket.Tokens -= float64(debt)
		g = Grant{N: bucket.Spend(want), Wait: bucket.Wait(r)}
		var b pgx.Batch
		QueueStore(&b, of, bucket)
		return tx.SendBatch(ctx, &b).Close()
	})
	return g, err
}

// Charge charges the buckets of workflows for ticks that went out without a token. Workflows without a rate are left out.
func Charge(ctx context.Context, db postgres.DB, ticks map[Name]int) error {
	if len(ticks) == 0 {
		return nil
	}
	var owners, counts []int32
	var names []string
	for of, n := range ticks {
		owners, names, counts = append(owners, int32(of.Tenant)), append(names, of.Name), append(counts, int32(n))
	}
	_, err := db.Exec(ctx, `
		INSERT INTO rate_allowance AS a (tenant_id, kind, name, tokens)
		SELECT n.tenant_id, $4, n.name, -n.ticks
		FROM unnest($1::int[], $2::text[], $3::int[]) AS n (tenant_id, name, ticks)
		CROSS JOIN LATERAL (SELECT FROM workflow WHERE tenant_id = n.tenant_id AND name = n.name AND rate IS NOT NULL OFFSET 0) w
		ORDER BY n.tenant_id, n.name
		ON CONFLICT (tenant_id, kind, name) DO UPDATE SET tokens = a.tokens + excluded.tokens`, owners, names, counts, Workflow)
	if err != nil {
		return fmt.Errorf("charge rates of workflows: %w", err)
	}
	return nil
}
