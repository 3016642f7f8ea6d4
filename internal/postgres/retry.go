package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

const mostRetries = 5

// Retry runs fn again where it lost a deadlock or a serialization conflict to another transaction: fn is a whole
// transaction, and has left nothing behind. Any other error is returned as it is.
func Retry(ctx context.Context, fn func() error) error {
	for attempt := 1; ; attempt++ {
		err := fn()
		pgErr, ok := errors.AsType[*pgconn.PgError](err)
		lost := ok && (pgErr.Code == "40P01" || pgErr.Code == "40001")
		if !lost || attempt == mostRetries || ctx.Err() != nil {
			return err
		}
	}
}
