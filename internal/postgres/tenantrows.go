package postgres

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// rows are pgx.Rows that release their connection when they are read or closed.
type rows struct {
	pgx.Rows
	end    func() error // releases the connection; nil: released
	endErr error
}

// Close implements pgx.Rows.
func (r *rows) Close() {
	r.Rows.Close()
	if r.end != nil {
		r.endErr = r.end()
		r.end = nil
	}
}

// Err implements pgx.Rows.
func (r *rows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.endErr
}

// Next implements pgx.Rows.
func (r *rows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Scan implements pgx.Rows.
func (r *rows) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	if err != nil {
		r.Close()
	}
	return err
}

// Values implements pgx.Rows.
func (r *rows) Values() ([]any, error) {
	values, err := r.Rows.Values()
	if err != nil {
		r.Close()
	}
	return values, err
}

// row is a pgx.Row: the first row of a query.
type row struct{ rows pgx.Rows }

// Scan implements pgx.Row.
func (r row) Scan(dest ...any) error {
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// batchResults are pgx.BatchResults that release their connection when they are closed.
type batchResults struct {
	pgx.BatchResults
	end func(error) // releases the connection; nil: released
}

// Close implements pgx.BatchResults.
func (r *batchResults) Close() error {
	err := r.BatchResults.Close()
	if r.end != nil {
		r.end(err)
		r.end = nil
	}
	return err
}

// noRows is the result of a query that was not sent.
type noRows struct{ err error }

func (noRows) Close()                                       {}
func (r noRows) Err() error                                 { return r.err }
func (noRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (noRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (noRows) Next() bool                                   { return false }
func (r noRows) Scan(...any) error                          { return r.err }
func (r noRows) Values() ([]any, error)                     { return nil, r.err }
func (noRows) RawValues() [][]byte                          { return nil }
func (noRows) Conn() *pgx.Conn                              { return nil }
func (noRows) TypeMap() *pgtype.Map                         { return nil }

// noResults is the result of a batch that was not sent.
type noResults struct{ err error }

func (r noResults) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, r.err }
func (r noResults) Query() (pgx.Rows, error)         { return noRows(r), r.err }
func (r noResults) QueryRow() pgx.Row                { return row{noRows(r)} }
func (r noResults) Close() error                     { return r.err }
func (noResults) Tx() pgx.Tx                         { return nil }
