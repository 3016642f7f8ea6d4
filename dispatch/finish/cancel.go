package finish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// lockTick locks the row of a tick, and reads the clock under the lock; it is nil where there is none.
func LockTick(ctx context.Context, tx pgx.Tx, tenant tenants.ID, k ident.TickKey) (t *record.Tick, now time.Time, err error) {
	rows, _ := tx.Query(ctx, `
		SELECT `+record.Columns+`
		FROM tick t
		WHERE `+record.KeyIs("t", "$1", "$2", "$3", "$4")+`
		FOR UPDATE`, tenant, k.Schedule, k.At, k.Seq) // CollectExactlyOneRow reports the error
	t, err = pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[record.Tick])
	if errors.Is(err, pgx.ErrNoRows) {
		t, err = nil, nil
	}
	if err != nil {
		return nil, now, fmt.Errorf("lock tick: %w", err)
	}
	if err := tx.QueryRow(ctx, `SELECT `+postgres.Now).Scan(&now); err != nil {
		return nil, now, fmt.Errorf("read clock: %w", err)
	}
	return t, now.UTC(), nil
}
