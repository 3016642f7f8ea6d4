package upkeep

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/tenants"
)

const thinTenants = 1000 // whose rows one query looks for

// dayKeys are the columns of each table's key after the tenant, with a value below all others.
var dayKeys = map[string]struct {
	columns string
	first   []any
}{
	"tick":      {"schedule_id, nominal_at, seq", []any{int64(-1), time.Time{}, int32(0)}},
	"attempt":   {"schedule_id, nominal_at, seq, attempt", []any{int64(-1), time.Time{}, int32(0), int16(0)}},
	"tick_time": {"nominal_at, id", []any{time.Time{}, int64(0)}},
}

// thinPlace is how far a partition is thinned: the tenants before tenant, and its rows up to key.
type thinPlace struct {
	tenant tenants.ID
	key    []any
}

// thinner deletes the rows of single tenants from the partitions of the record.
type thinner struct {
	pool     *pgxpool.Pool
	thinned  map[string]string    // by partition: for which tenants it was thinned, and on which date
	thinning map[string]thinPlace // by partition
}

// thin deletes from partitions the ended ticks and attempts of tenants that keep them for less time than the tenant with the
// longest retention, whose days are dropped whole. It thins a day once it is past the retention of a tenant.
func (t *thinner) thin(ctx context.Context, a ages, now time.Time) error {
	var errs []error
	for _, table := range partitioned {
		found, err := dayTables(ctx, t.pool, table.name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, p := range found {
			if !p.Attached {
				continue
			}
			if err := t.thinDay(ctx, p, a, now); err != nil {
				errs = append(errs, err)
			}
			if ctx.Err() != nil {
				return errors.Join(errs...)
			}
		}
	}
	return errors.Join(errs...)
}

var thinSeed = maphash.MakeSeed()

// over returns the tenants that do not keep a day any more, and a hash of them and the date.
func (p dayTable) over(a ages, now time.Time) (over []tenants.ID, sign string) {
	longest, sum := days(p.table, a.longest), uint64(0)
	for _, id := range a.ids {
		kept := days(p.table, a.of[id])
		if p.from.IsZero() || kept < longest && p.past(ago(now, kept)) {
			over = append(over, id)
			sum += maphash.Comparable(thinSeed, id)
		}
	}
	return over, now.UTC().Format(time.DateOnly) + "/" + strconv.FormatUint(sum, 16)
}

// thinDay deletes from one partition the rows of the tenants that do not keep its day any more. It looks at a day that was thinned for
// the same tenants once a date, for ticks that ended late, and at the default partition in each run.
func (t *thinner) thinDay(ctx context.Context, p dayTable, a ages, now time.Time) error {
	over, sign := p.over(a, now)
	if len(over) == 0 || !p.from.IsZero() && t.thinned[p.Name] == sign {
		return nil
	}
	place := t.thinning[p.Name]
	for len(over) > 0 {
		some := over[:min(thinTenants, len(over))]
		over = over[len(some):]
		if some[len(some)-1] < place.tenant {
			continue
		}
		// One row of each tenant is looked for (OFFSET 0): a join may read the whole day.
		rows, _ := t.pool.Query(ctx, `
			SELECT t.id
			FROM unnest($1::int[]) AS t (id)
			WHERE t.id >= $2 AND EXISTS (SELECT FROM `+p.Name+` p WHERE p.tenant_id = t.id OFFSET 0)
			ORDER BY t.id`, some, place.tenant) // CollectRows reports the error
		with, err := pgx.CollectRows(rows, pgx.RowTo[int32])
		if err != nil {
			return fmt.Errorf("look for tenants in %s: %w", p.Name, err)
		}
		for _, id := range with {
			tenant := tenants.ID(id)
			if tenant != place.tenant {
				place = thinPlace{tenant: tenant}
			}
			if err := t.thinTenant(ctx, p, place, ago(now, days(p.table, a.of[tenant]))); err != nil {
				return err
			}
		}
	}
	delete(t.thinning, p.Name)
	t.thinned[p.Name] = sign
	return nil
}

// thinTenant deletes the rows of one tenant from a partition, in batches in the order of the key.
func (t *thinner) thinTenant(ctx context.Context, p dayTable, place thinPlace, oldest time.Time) error {
	keys := dayKeys[p.table]
	ended, from := "true", ""
	if p.table == "tick" {
		ended = "state > 1"
	}
	for i := range keys.first {
		from += ", $" + strconv.Itoa(i+4)
	}
	sql := `
		WITH batch AS (
			SELECT ctid AS place, ` + ended + ` AS ended, ` + keys.columns + `
			FROM ` + p.Name + `
			WHERE tenant_id = $1 AND nominal_at < $2 AND (` + keys.columns + `) > (` + from[2:] + `)
			ORDER BY ` + keys.columns + `
			LIMIT $3
		), gone AS (
			DELETE FROM ` + p.Name + `
			WHERE tenant_id = $1 AND ctid = ANY (ARRAY (SELECT place FROM batch WHERE ended))
		)
		SELECT count(*) OVER (), ` + keys.columns + `
		FROM batch
		ORDER BY ROW (` + keys.columns + `) DESC
		LIMIT 1`
	if place.key == nil {
		place.key = keys.first
	}
	for {
		rows, _ := t.pool.Query(ctx, sql, append([]any{place.tenant, oldest, record.MostCleared}, place.key...)...) // CollectRows reports the error
		last, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
		if err != nil {
			return fmt.Errorf("thin %s: %w", p.Name, err)
		}
		if len(last) == 0 {
			return nil
		}
		place.key = last[0][1:]
		t.thinning[p.Name] = place
		if n, _ := last[0][0].(int64); n < record.MostCleared {
			return nil
		}
	}
}
