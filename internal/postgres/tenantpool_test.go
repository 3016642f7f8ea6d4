package postgres_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.MainNoLeaks(m) }

// narrow is a TenantPool with one connection: a connection that is not released blocks all later calls.
func narrow(t *testing.T) *postgres.TenantPool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), postgrestest.URL(t), postgres.Options{MaxConns: 1, Role: postgres.APIRole})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return postgres.NewTenantPool(pool)
}

const (
	whose  = `SELECT current_setting('carillon.tenant')`
	broken = `SELECT 1 / 0`
)

// Each query runs for the tenant of its own context, whatever queries ran before in the session, and however they ended.
func TestEachQueryIsOfItsOwnTenant(t *testing.T) {
	t.Parallel()
	tenants := narrow(t)
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 400 {
		tenant := random.Int32N(3) + 1
		ctx, want := postgres.ForTenant(t.Context(), tenant), strconv.Itoa(int(tenant))
		way := random.IntN(len(ways))
		if got, err := ways[way](ctx, tenants); err != nil || got != want {
			t.Fatalf("query %d, way %d: of tenant %q, %v, want %q", n, way, got, err, want)
		}
	}
}

var errUndo = errors.New("undo")

// ways are all ways to send a tenant's query. Each returns the tenant that the database saw.
var ways = []func(context.Context, *postgres.TenantPool) (string, error){
	func(ctx context.Context, w *postgres.TenantPool) (got string, err error) {
		err = w.QueryRow(ctx, whose).Scan(&got)
		return got, err
	},
	func(ctx context.Context, w *postgres.TenantPool) (string, error) {
		rows, _ := w.Query(ctx, whose+` FROM generate_series(1, $1::int)`, 3) // CollectRows reports the error
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(all) != 3 {
			return "", errors.Join(err, errors.New("rows are missing"))
		}
		return all[2], nil
	},
	func(ctx context.Context, w *postgres.TenantPool) (string, error) { // closed before it is read
		rows, err := w.Query(ctx, whose+` FROM generate_series(1, 1000)`)
		if err != nil {
			return "", err
		}
		defer rows.Close()
		rows.Next()
		values, err := rows.Values()
		if err != nil {
			return "", err
		}
		return values[0].(string), nil
	},
	func(ctx context.Context, w *postgres.TenantPool) (got string, err error) {
		var b pgx.Batch
		b.Queue(`SELECT 1`)
		b.Queue(whose).QueryRow(func(row pgx.Row) error { return row.Scan(&got) })
		return got, w.SendBatch(ctx, &b).Close()
	},
	func(ctx context.Context, w *postgres.TenantPool) (got string, err error) {
		err = pgx.BeginFunc(ctx, w, func(tx pgx.Tx) error { return tx.QueryRow(ctx, whose).Scan(&got) })
		return got, err
	},
	func(ctx context.Context, w *postgres.TenantPool) (got string, err error) {
		err = pgx.BeginFunc(ctx, w, func(tx pgx.Tx) error {
			inner := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, `SELECT set_config('carillon.tenant', '9', true)`); err != nil {
					return err
				}
				return errUndo
			})
			return errors.Join(inner, tx.QueryRow(ctx, whose).Scan(&got))
		})
		if !errors.Is(err, errUndo) {
			return "", err
		}
		return got, nil
	},
	func(ctx context.Context, w *postgres.TenantPool) (string, error) { // failures, and then a query
		_, execErr := w.Exec(ctx, broken)
		_, syntaxErr := w.Query(ctx, `SELEC`)
		scanErr := w.QueryRow(ctx, broken).Scan(new(int))
		var b pgx.Batch
		b.Queue(broken)
		batchErr := w.SendBatch(ctx, &b).Close()
		txErr := pgx.BeginFunc(ctx, w, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, broken)
			return err
		})
		noneErr := w.QueryRow(ctx, `SELECT WHERE false`).Scan()
		for _, err := range []error{execErr, syntaxErr, scanErr, batchErr, txErr} {
			if _, ok := errors.AsType[*pgconn.PgError](err); !ok {
				return "", errors.Join(errors.New("what is broken is not told"), err)
			}
		}
		if !errors.Is(noneErr, pgx.ErrNoRows) {
			return "", noneErr
		}
		var got string
		err := w.QueryRow(ctx, whose).Scan(&got)
		return got, err
	},
	func(ctx context.Context, w *postgres.TenantPool) (string, error) { // cancelled, which may cost the connection
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := w.Exec(gone, `SELECT 1`); !errors.Is(err, context.Canceled) {
			return "", errors.Join(errors.New("it was not cancelled"), err)
		}
		tag, err := w.Exec(ctx, `SELECT FROM generate_series(1, current_setting('carillon.tenant')::int)`)
		return strconv.FormatInt(tag.RowsAffected(), 10), err
	},
}

// PostgreSQL has no COPY into a table with row policies. CopyFrom stores the tenant's own rows nevertheless, and no other tenant's.
func TestCopyIsHeldByThePolicies(t *testing.T) {
	t.Parallel()
	tenants, ctx := narrow(t), postgres.ForTenant(t.Context(), 1)
	columns := []string{"tenant_id", "cohort_id", "n"}
	if n, err := tenants.CopyFrom(ctx, pgx.Identifier{"tally_delta"}, columns, pgx.CopyFromRows([][]any{{1, 7, 1}, {1, 8, -1}})); n != 2 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := tenants.CopyFrom(ctx, pgx.Identifier{"tally_delta"}, columns, pgx.CopyFromRows([][]any{{1, 9, 1}, {2, 9, 1}})); err == nil {
		t.Error("another tenant's row came")
	}
	var rows int
	if err := tenants.QueryRow(ctx, `SELECT count(*) FROM tally_delta`).Scan(&rows); err != nil || rows != 2 {
		t.Errorf("got %d rows, %v", rows, err)
	}
	if err := tenants.QueryRow(postgres.ForTenant(ctx, 2), `SELECT count(*) FROM tally_delta`).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("another tenant sees %d rows, %v", rows, err)
	}
}

func TestWithoutATenantNothingIsSent(t *testing.T) {
	t.Parallel()
	tenants, ctx := narrow(t), t.Context()
	_, execErr := tenants.Exec(ctx, whose)
	_, queryErr := tenants.Query(ctx, whose)
	_, beginErr := tenants.Begin(ctx)
	_, copyErr := tenants.CopyFrom(ctx, pgx.Identifier{"tally_delta"}, nil, pgx.CopyFromRows(nil))
	var b pgx.Batch
	b.Queue(whose)
	results := tenants.SendBatch(ctx, &b)
	_, firstErr := results.Exec()
	rowErr := results.QueryRow().Scan(new(string))
	for n, err := range []error{execErr, queryErr, beginErr, copyErr, firstErr, rowErr, results.Close(), tenants.QueryRow(ctx, whose).Scan(new(string))} {
		if err == nil {
			t.Errorf("way %d: a query was sent", n)
		}
	}
}

// The parameter carillon.tenant in a URL does not set a tenant: a context without one still fails.
func TestAURLGivesNoTenant(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(postgrestest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams[postgres.TenantSetting] = "5"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := postgres.NewTenantPool(pool).Exec(t.Context(), `SELECT 1`); err == nil {
		t.Error("a query without a tenant was sent")
	}
}
