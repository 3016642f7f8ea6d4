package postgres

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Wall is a DB for one tenant's rows at a time: those of the tenant that the context says, see ForTenant. The policies of
// the tables hide all others, whatever a query asks for. A context without a tenant is an error, and no query is sent.
//
// A session keeps the tenant that it was told last, and is told another one in the same trip as the query, or with the
// beginning of the transaction, so that the wall costs no trip of its own.
type Wall struct {
	pool     *pgxpool.Pool
	shares   *shares // of the pool's connections, by tenant
	standing string  // in tests, the tenant of contexts that say none
}

// NewWall returns the wall over a pool that was opened with APIRole.
func NewWall(pool *pgxpool.Pool) *Wall {
	return &Wall{pool: pool, shares: newShares(int(pool.Config().MaxConns))}
}

// NewTestWall returns a wall for tests: contexts without a tenant belong to tenantID.
func NewTestWall(pool *pgxpool.Pool, tenantID int32) *Wall {
	w := NewWall(pool)
	w.standing = strconv.Itoa(int(tenantID))
	return w
}

// Close closes the pool.
func (w *Wall) Close() { w.pool.Close() }

// Waited returns how long the first waiting call of a tenant has waited for a connection by now; 0: none waits.
func (w *Wall) Waited(tenantID int32) time.Duration {
	if !w.shares.waiting() {
		return 0
	}
	return w.shares.waited(strconv.Itoa(int(tenantID)))
}

// Connections returns how many connections the pool has at most.
func (w *Wall) Connections() int { return w.shares.size }

const tellTenant = `SELECT set_config('` + TenantSetting + `', $1, false)`

// session is a connection that was acquired for a tenant.
type session struct {
	*pgxpool.Conn
	tenant string
	shares *shares
}

// Release gives the connection back to the pool, and then to the other calls that wait for one.
func (s session) Release() {
	s.Conn.Release()
	s.shares.leave(s.tenant)
}

func (w *Wall) session(ctx context.Context) (session, error) {
	tenant, ok := ctx.Value(tenantKey{}).(string)
	if !ok {
		tenant = w.standing
	}
	if tenant == "" {
		return session{}, errNoTenant
	}
	if err := w.shares.enter(ctx, tenant); err != nil {
		return session{}, err
	}
	conn, err := w.pool.Acquire(ctx)
	if err != nil {
		w.shares.leave(tenant)
	}
	return session{conn, tenant, w.shares}, err
}

// knows tells whether the session was told its tenant already.
func (s session) knows() bool { return s.told()[TenantSetting] == s.tenant }

func (s session) told() map[string]any { return s.Conn.Conn().PgConn().CustomData() }

// end gives the connection back. What was told in a statement that failed was not told.
func (s session) end(err error) {
	if err == nil {
		s.told()[TenantSetting] = s.tenant
	}
	s.Release()
}

// send sends a batch, before it what tells the tenant, and has read the result of that.
func (s session) send(ctx context.Context, b *pgx.Batch) (pgx.BatchResults, error) {
	delete(s.told(), TenantSetting)
	telling := &pgx.QueuedQuery{SQL: tellTenant, Arguments: []any{s.tenant}}
	results := s.SendBatch(ctx, &pgx.Batch{QueuedQueries: append([]*pgx.QueuedQuery{telling}, b.QueuedQueries...)})
	if _, err := results.Exec(); err != nil {
		_ = results.Close() // it says the same
		s.end(err)
		return nil, err
	}
	return results, nil
}

// Exec implements DB.
func (w *Wall) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	s, err := w.session(ctx)
	if err != nil {
		return tag, err
	}
	if s.knows() {
		defer s.Release()
		return s.Conn.Exec(ctx, sql, args...)
	}
	var b pgx.Batch
	b.Queue(sql, args...)
	results, err := s.send(ctx, &b)
	if err != nil {
		return tag, err
	}
	tag, err = results.Exec()
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	s.end(err)
	return tag, err
}

// Query implements DB.
func (w *Wall) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	s, err := w.session(ctx)
	if err != nil {
		return noRows{err}, err
	}
	if s.knows() {
		r, err := s.Conn.Query(ctx, sql, args...)
		if err != nil {
			s.Release()
			return noRows{err}, err
		}
		return &rows{Rows: r, end: func() error { s.Release(); return nil }}, nil
	}
	var b pgx.Batch
	b.Queue(sql, args...)
	results, err := s.send(ctx, &b)
	if err != nil {
		return noRows{err}, err
	}
	r, err := results.Query()
	if err != nil {
		_ = results.Close() // it says the same
		s.end(err)
		return noRows{err}, err
	}
	return &rows{Rows: r, end: func() error {
		err := results.Close()
		s.end(err)
		return err
	}}, nil
}

// QueryRow implements DB.
func (w *Wall) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	r, _ := w.Query(ctx, sql, args...) // Scan reports the error
	return row{r}
}

// SendBatch implements DB.
func (w *Wall) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	s, err := w.session(ctx)
	if err != nil {
		return noResults{err}
	}
	if s.knows() {
		return &batchResults{BatchResults: s.Conn.SendBatch(ctx, b), end: func(error) { s.Release() }}
	}
	results, err := s.send(ctx, b)
	if err != nil {
		return noResults{err}
	}
	return &batchResults{BatchResults: results, end: s.end}
}

// Begin implements DB. The tenant of the transaction is that of ctx, whatever is said to its queries.
func (w *Wall) Begin(ctx context.Context) (pgx.Tx, error) {
	s, err := w.session(ctx)
	if err != nil {
		return nil, err
	}
	var o pgx.TxOptions
	if !s.knows() { // the session's own stays as it is; the tenant is a number
		o.BeginQuery = `begin; set local ` + TenantSetting + ` = '` + s.tenant + `'`
	}
	tx, err := s.Conn.BeginTx(ctx, o)
	if err != nil {
		s.Release()
		return nil, err
	}
	return &transaction{Tx: tx, release: s.Release}, nil
}

// CopyFrom implements DB. PostgreSQL knows no COPY to a table with policies: the rows are inserted one by one, in one trip.
func (w *Wall) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	var n int64
	err := pgx.BeginFunc(ctx, w, func(tx pgx.Tx) (err error) {
		n, err = tx.CopyFrom(ctx, table, columns, source)
		return err
	})
	return n, err
}

// transaction is a pgx.Tx that gives its connection back.
type transaction struct {
	pgx.Tx
	release func()
}

func (t *transaction) end() {
	if t.release != nil {
		t.release()
		t.release = nil
	}
}

// Commit implements pgx.Tx.
func (t *transaction) Commit(ctx context.Context) error {
	defer t.end()
	return t.Tx.Commit(ctx)
}

// Rollback implements pgx.Tx.
func (t *transaction) Rollback(ctx context.Context) error {
	defer t.end()
	return t.Tx.Rollback(ctx)
}

// Begin implements pgx.Tx.
func (t *transaction) Begin(ctx context.Context) (pgx.Tx, error) {
	inner, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &transaction{Tx: inner}, nil
}

// CopyFrom implements pgx.Tx as Wall.CopyFrom does.
func (t *transaction) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	names, values := make([]string, len(columns)), make([]string, len(columns))
	for i, column := range columns {
		names[i], values[i] = pgx.Identifier{column}.Sanitize(), "$"+strconv.Itoa(i+1)
	}
	sql := `INSERT INTO ` + table.Sanitize() + ` (` + strings.Join(names, ", ") + `) VALUES (` + strings.Join(values, ", ") + `)`
	var b pgx.Batch
	for source.Next() {
		one, err := source.Values()
		if err != nil {
			return 0, err
		}
		b.Queue(sql, one...)
	}
	if err := source.Err(); err != nil || b.Len() == 0 {
		return 0, err
	}
	return int64(b.Len()), t.SendBatch(ctx, &b).Close()
}
