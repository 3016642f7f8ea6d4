package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

const maxAttempts = 5

// Retry runs fn up to five times while it returns a deadlock or a serialization failure. fn must be a whole transaction, so that a
// failed attempt leaves nothing. Retry returns any other error at once.
func Retry(ctx context.Context, fn func() error) error {
	for attempt := 1; ; attempt++ {
		err := fn()
		pgErr, ok := errors.AsType[*pgconn.PgError](err)
		lost := ok && (pgErr.Code == "40P01" || pgErr.Code == "40001")
		if !lost || attempt == maxAttempts || ctx.Err() != nil {
			return err
		}
	}
}
