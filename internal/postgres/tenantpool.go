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

// TenantPool is a DB that isolates tenants: a query sees only the rows of the tenant in its context (see ForTenant). The row policies of the
// tables hide all other rows, whatever the query is. A context without a tenant is an error, and nothing is sent.
//
// A session stores the last tenant that was set in it. To set another one, TenantPool sends the setting in the same round trip as the query,
// or with BEGIN, so isolation costs no extra round trip.
type TenantPool struct {
	pool     *pgxpool.Pool
	shares   *shares // of the pool's connections, by tenant
	fallback string  // in tests, the tenant of contexts without one
}

// NewTenantPool returns a TenantPool over a pool that was opened with APIRole.
func NewTenantPool(pool *pgxpool.Pool) *TenantPool {
	return &TenantPool{pool: pool, shares: newShares(int(pool.Config().MaxConns))}
}

// NewTestTenantPool returns a TenantPool for tests. Its queries without a tenant in their context belong to tenantID.
func NewTestTenantPool(pool *pgxpool.Pool, tenantID int32) *TenantPool {
	p := NewTenantPool(pool)
	p.fallback = strconv.Itoa(int(tenantID))
	return p
}

// Close closes the pool.
func (p *TenantPool) Close() { p.pool.Close() }

// Waited returns how long the tenant's first waiting call has waited for a connection; 0: no call waits.
func (p *TenantPool) Waited(tenantID int32) time.Duration {
	if !p.shares.waiting() {
		return 0
	}
	return p.shares.waited(strconv.Itoa(int(tenantID)))
}

// Connections returns the maximum number of connections.
func (p *TenantPool) Connections() int { return p.shares.size }

const setTenant = `SELECT set_config('` + TenantSetting + `', $1, false)`

// session is a connection acquired for a tenant.
type session struct {
	*pgxpool.Conn
	tenant string
	shares *shares
}

// Release returns the connection to the pool, and lets a waiting call take it.
func (s session) Release() {
	s.Conn.Release()
	s.shares.leave(s.tenant)
}

func (p *TenantPool) session(ctx context.Context) (session, error) {
	tenant, ok := ctx.Value(tenantKey{}).(string)
	if !ok {
		tenant = p.fallback
	}
	if tenant == "" {
		return session{}, errNoTenant
	}
	if err := p.shares.enter(ctx, tenant); err != nil {
		return session{}, err
	}
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		p.shares.leave(tenant)
	}
	return session{conn, tenant, p.shares}, err
}

// isSet reports whether the session already has this tenant.
func (s session) isSet() bool { return s.data()[TenantSetting] == s.tenant }

func (s session) data() map[string]any { return s.Conn.Conn().PgConn().CustomData() }

// end returns the connection to the pool. Only a successful statement has set the tenant: a failed one rolls the setting back.
func (s session) end(err error) {
	if err == nil {
		s.data()[TenantSetting] = s.tenant
	}
	s.Release()
}

// send sends a batch after a statement that sets the tenant, and reads the result of that statement.
func (s session) send(ctx context.Context, b *pgx.Batch) (pgx.BatchResults, error) {
	delete(s.data(), TenantSetting)
	setting := &pgx.QueuedQuery{SQL: setTenant, Arguments: []any{s.tenant}}
	results := s.SendBatch(ctx, &pgx.Batch{QueuedQueries: append([]*pgx.QueuedQuery{setting}, b.QueuedQueries...)})
	if _, err := results.Exec(); err != nil {
		_ = results.Close() // it returns the same error
		s.end(err)
		return nil, err
	}
	return results, nil
}

// Exec implements DB.
func (p *TenantPool) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	s, err := p.session(ctx)
	if err != nil {
		return tag, err
	}
	if s.isSet() {
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
func (p *TenantPool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	s, err := p.session(ctx)
	if err != nil {
		return noRows{err}, err
	}
	if s.isSet() {
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
		_ = results.Close() // it returns the same error
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
func (p *TenantPool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	r, _ := p.Query(ctx, sql, args...) // Scan reports the error
	return row{r}
}

// SendBatch implements DB.
func (p *TenantPool) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	s, err := p.session(ctx)
	if err != nil {
		return noResults{err}
	}
	if s.isSet() {
		return &batchResults{BatchResults: s.Conn.SendBatch(ctx, b), end: func(error) { s.Release() }}
	}
	results, err := s.send(ctx, b)
	if err != nil {
		return noResults{err}
	}
	return &batchResults{BatchResults: results, end: s.end}
}

// Begin implements DB. The transaction belongs to the tenant in ctx, whatever tenant the contexts of its queries have.
func (p *TenantPool) Begin(ctx context.Context) (pgx.Tx, error) {
	s, err := p.session(ctx)
	if err != nil {
		return nil, err
	}
	var o pgx.TxOptions
	if !s.isSet() { // LOCAL leaves the session's tenant unchanged; the tenant is a number, so it needs no quoting
		o.BeginQuery = `begin; set local ` + TenantSetting + ` = '` + s.tenant + `'`
	}
	tx, err := s.Conn.BeginTx(ctx, o)
	if err != nil {
		s.Release()
		return nil, err
	}
	return &transaction{Tx: tx, release: s.Release}, nil
}

// CopyFrom implements DB. PostgreSQL has no COPY into a table with row policies, so CopyFrom sends one INSERT per row, in one batch.
func (p *TenantPool) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	var n int64
	err := pgx.BeginFunc(ctx, p, func(tx pgx.Tx) (err error) {
		n, err = tx.CopyFrom(ctx, table, columns, source)
		return err
	})
	return n, err
}

// transaction is a pgx.Tx that releases its connection at its end.
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

// CopyFrom implements pgx.Tx in the same way as TenantPool.CopyFrom.
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
