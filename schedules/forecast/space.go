package forecast

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// spaceMargin is the distance to the quota beyond which a count of bytes may be 2 s old. Nearer to the quota, each write reads the count.
const spaceMargin = 256 << 20

// Space is how many bytes a tenant may still store, and how many it has stored.
type Space struct{ Left, Used int }

// SpaceFor returns the space that a tenant has for so many bytes. Writes that run at the same time do not see each other, so
// together they may exceed the quota by what they write.
func (f *Forecasts) SpaceFor(ctx context.Context, db postgres.DB, tenant tenants.ID, bytes int, q tenants.Quotas) (Space, error) {
	if used, fits := f.bytes.take(tenant, bytes, q.StoredBytes-spaceMargin); fits {
		return Space{bytes, used}, nil
	}
	used, err := countBytes(ctx, db, tenant, q)
	if err != nil {
		return Space{}, err
	}
	f.bytes.keep(tenant, used+min(bytes, max(0, q.StoredBytes-used)))
	return Space{q.StoredBytes - used, used}, nil
}

// countBytes returns how many bytes a tenant has stored: those of specs and payloads, and those of the days of ticks that
// it keeps.
func countBytes(ctx context.Context, db postgres.DB, tenant tenants.ID, q tenants.Quotas) (n int, err error) {
	kept := time.Now().UTC().AddDate(0, 0, -q.TickRetentionDays)
	err = db.QueryRow(ctx, `
		SELECT GREATEST(0, COALESCE((SELECT n FROM tally WHERE tenant_id = $1 AND cohort_id = $2), 0)
			+ COALESCE((SELECT sum(n) FROM tally_delta WHERE tenant_id = $1 AND cohort_id = $2 AND `+postgres.Unfolded("tally_delta")+`), 0)
			+ COALESCE((SELECT sum(GREATEST(0, bytes)) FROM daily_use WHERE tenant_id = $1 AND workflow = '' AND day >= $3::date), 0)
			+ COALESCE((SELECT sum(bytes) FROM daily_use_delta WHERE tenant_id = $1 AND day >= $3::date AND `+postgres.Unfolded("daily_use_delta")+`), 0))::bigint`,
		tenant, AllBytes, kept).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count stored bytes: %w", err)
	}
	return n, nil
}

// MayStore returns a fault if the tenant's quota has no room for so many bytes.
func (f *Forecasts) MayStore(ctx context.Context, db postgres.DB, tenant tenants.ID, bytes int) error {
	if bytes == 0 {
		return nil
	}
	q, err := f.quotas(ctx, tenant)
	if err != nil {
		return err
	}
	has, err := f.SpaceFor(ctx, db, tenant, bytes, q)
	if err == nil && bytes > has.Left {
		err = tenants.Exceeded("stored_bytes", q.StoredBytes, has.Used)
	}
	return err
}

// AddBytes adds to the count of a tenant's bytes what the transaction stores. A change of a schedule stores a version more:
// the one that ends stays as a revision.
func AddBytes(b *pgx.Batch, tenant tenants.ID, bytes int) {
	if bytes != 0 {
		b.Queue(`INSERT INTO tally_delta (tenant_id, cohort_id, n) VALUES ($1, $2, $3)`, tenant, AllBytes, bytes)
	}
}

// StoredBytes is how many bytes of its quota a tenant uses.
func (f *Forecasts) StoredBytes(ctx context.Context, tenant tenants.ID) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	q, err := f.quotas(ctx, tenant)
	if err != nil {
		return 0, err
	}
	return countBytes(ctx, f.pool, tenant, q)
}

// BytesOf is an SQL expression for the bytes that the row of a schedule or of a version stores. PostgreSQL knows the length of a text
// that is stored outside the row without reading it.
const BytesOf = `octet_length(spec) + COALESCE(octet_length(payload), 0)`

// RecountBytes adds up what a tenant's schedules and versions store, once a day, and corrects the count if it differs: a program that
// does not count may have written some of them. The first time is a day after the tenant was created, as a new tenant's count is right.
// It reads the rows and the count in one snapshot. Only one process may call it at a time.
func RecountBytes(ctx context.Context, db postgres.DB, tenant tenants.ID) error {
	due, err := db.Exec(ctx, `
		INSERT INTO tally (tenant_id, cohort_id, counted_at)
		SELECT id, $2, `+postgres.Now+`
		FROM tenant
		WHERE id = $1 AND erasing_at IS NULL AND created_at < (SELECT `+postgres.Now+`) - interval '1 day'
			AND NOT EXISTS (SELECT FROM tally WHERE tenant_id = $1 AND cohort_id = $2 AND counted_at > (SELECT `+postgres.Now+`) - interval '1 day')
		FOR KEY SHARE OF tenant
		ON CONFLICT (tenant_id, cohort_id) DO UPDATE SET counted_at = excluded.counted_at`, tenant, AllBytes)
	if err != nil || due.RowsAffected() == 0 {
		return err
	}
	_, err = db.Exec(ctx, `
		INSERT INTO tally_delta (tenant_id, cohort_id, n)
		SELECT $1, $2, n
		FROM (SELECT COALESCE((SELECT sum(`+BytesOf+`) FROM schedule WHERE tenant_id = $1), 0)
			+ COALESCE((SELECT sum(`+BytesOf+`) FROM revision WHERE tenant_id = $1), 0)
			- COALESCE((SELECT n FROM tally WHERE tenant_id = $1 AND cohort_id = $2), 0)
			- COALESCE((SELECT sum(n) FROM tally_delta WHERE tenant_id = $1 AND cohort_id = $2 AND `+postgres.Unfolded("tally_delta")+`), 0) AS n) missing
		WHERE n <> 0`, tenant, AllBytes)
	return err
}
