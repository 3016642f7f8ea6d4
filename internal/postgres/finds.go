package postgres

import "context"

// Finds reports whether a query returns a row, in one round trip and without a transaction. Periodic work that rarely finds anything
// calls it first.
func Finds(ctx context.Context, db DB, sql string) (found bool, err error) {
	err = db.QueryRow(ctx, `SELECT EXISTS (`+sql+`)`).Scan(&found)
	return found, err
}
