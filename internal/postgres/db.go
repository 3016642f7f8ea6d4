// Package postgres opens pools of connections to PostgreSQL, and gives queries the rules of this service.
//
//   - Open returns a pool with time limits on statements, locks and idle transactions. Cluster finds the primary after a failover.
//   - TenantPool isolates tenants: it sets the tenant of each query, and the row policies of the tables hide all other rows. It divides
//     the connections among tenants.
//   - Notify sends notifications after COMMIT. Watch records whether a request may have changed the database.
//   - The clock constants and Fold are parts of the server's SQL.
//   - The constants of LockClass are the classes of advisory locks of all packages.
//   - Oldest deletes rows by their age. The caller owns the table. Edge says where such a look begins.
//
// The package itself writes table folded only. Its locks are in memory. After a crash PostgreSQL rolls back open transactions; notifications
// of the last commits may be lost.
package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB is a pool or a transaction. A function that takes a DB works with both.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error)
	Begin(ctx context.Context) (pgx.Tx, error)
}
