package postgres

import "context"

// Finds reports whether a query has a row. Work that most often finds nothing asks this first: it takes one trip and no transaction.
func Finds(ctx context.Context, db DB, sql string) (found bool, err error) {
	err = db.QueryRow(ctx, `SELECT EXISTS (`+sql+`)`).Scan(&found)
	return found, err
}
