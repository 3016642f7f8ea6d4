package migrations

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Two installations never have the same id, so rows can move from one to the other. Installation (cell) c takes the ids of tenants
// from c × 2^20 on, and all other ids from c × 2^44 on. The greatest id of the last cell is below 2^53: JSON readers that keep numbers
// as floats read it exactly.
const (
	MostCells  = 512
	tenantBits = 20 // tenant.id is an int
	idBits     = 44
)

// sequence is the sequence of an identity column.
type sequence struct {
	Name       string
	Bits       int
	Least      int64 // the smallest id of its range
	Greatest   int64
	Used       bool // it has given out an id
	OfSchedule bool
}

func (s sequence) cell() int64             { return s.Least >> s.Bits }
func (s sequence) bounds(c int64) [2]int64 { return [2]int64{c<<s.Bits + 1, (c+1)<<s.Bits - 1} }

// setCell gives each identity column the range of its cell. If cell is nil, the database stays in its cell, which is 0 for a new one. It
// is an error to move a database that has given out ids to another cell.
func setCell(ctx context.Context, pool *pgxpool.Pool, cell *int) error {
	if cell != nil && (*cell < 0 || *cell >= MostCells) {
		return fmt.Errorf("cell %d: a cell is a number from 0 to %d", *cell, MostCells-1)
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(isolationLock)); err != nil {
			return err
		}
		all, err := sequences(ctx, tx)
		if err != nil {
			return fmt.Errorf("look at the identity columns: %w", err)
		}
		var now int64
		used := false
		for _, s := range all {
			used = used || s.Used
			if s.OfSchedule {
				now = s.cell()
			}
		}
		to := now
		if cell != nil {
			to = int64(*cell)
		}
		if to != now && used {
			return fmt.Errorf("the database has given out ids as cell %d and cannot become cell %d: create a new database", now, to)
		}
		for _, s := range all {
			if err := s.set(ctx, tx, to); err != nil {
				return fmt.Errorf("set the range of %s: %w", s.Name, err)
			}
		}
		return nil
	})
}

func sequences(ctx context.Context, tx pgx.Tx) ([]sequence, error) {
	rows, _ := tx.Query(ctx, `
		SELECT format('%I.%I', s.schemaname, s.sequencename) AS name, CASE WHEN c.relname = 'tenant' THEN $1::int ELSE $2::int END AS bits,
			s.min_value AS least, s.max_value AS greatest, s.last_value IS NOT NULL AS used, c.relname = 'schedule' AS of_schedule
		FROM pg_class g
		JOIN pg_class c ON c.relnamespace = g.relnamespace AND c.relkind IN ('r', 'p')
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attidentity <> ''
		JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid AND d.refobjsubid = a.attnum AND d.deptype = 'i'
		JOIN pg_class q ON q.oid = d.objid AND q.relkind = 'S'
		JOIN pg_namespace n ON n.oid = q.relnamespace
		JOIN pg_sequences s ON s.schemaname = n.nspname AND s.sequencename = q.relname
		WHERE g.oid = 'goose_db_version'::regclass AND c.relname NOT LIKE 'goose%' AND c.relname NOT LIKE 'river%'
		ORDER BY c.relname`, tenantBits, idBits) // CollectRows reports the error
	return pgx.CollectRows(rows, pgx.RowToStructByName[sequence])
}

// set gives the sequence the range of a cell. One that has given out no id begins at the start of the range.
func (s sequence) set(ctx context.Context, tx pgx.Tx, cell int64) error {
	want := s.bounds(cell)
	if want == [2]int64{s.Least, s.Greatest} {
		return nil
	}
	sql := fmt.Sprintf(`ALTER SEQUENCE %s MINVALUE %d MAXVALUE %d START %d`, s.Name, want[0], want[1], want[0])
	if !s.Used {
		sql += ` RESTART`
	}
	_, err := tx.Exec(ctx, sql)
	return err
}
