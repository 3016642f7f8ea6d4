package postgres

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Outcome says whether calls have changed the database. See Watch. It is safe for concurrent use.
type Outcome struct{ changed atomic.Bool }

// MayHaveChanged reports whether a call has committed a change, or has lost its connection while it did so that nobody
// here knows.
func (o *Outcome) MayHaveChanged() bool { return o != nil && o.changed.Load() }

type outcomeKey struct{}

// Watch returns a context whose calls of pools and transactions tell the Outcome what they changed.
func Watch(ctx context.Context) (context.Context, *Outcome) {
	o := &Outcome{}
	return context.WithValue(ctx, outcomeKey{}, o), o
}

// Unwatched returns a context whose calls tell nothing: they keep accounts, such as rates, and are no effect of a request.
func Unwatched(ctx context.Context) context.Context {
	return context.WithValue(ctx, outcomeKey{}, (*Outcome)(nil))
}

// OutcomeOf returns the Outcome of a context; nil where nobody watches.
func OutcomeOf(ctx context.Context) *Outcome {
	o, _ := ctx.Value(outcomeKey{}).(*Outcome)
	return o
}

// NoteChange tells the Outcome of a context, if there is one, that a change may have been committed for it elsewhere.
func NoteChange(ctx context.Context) {
	if o := OutcomeOf(ctx); o != nil {
		o.changed.Store(true)
	}
}

// outcomes is the tracer that notes changes: all calls of pgx pass a tracer. A change becomes one where a transaction is
// committed, or where a statement that writes ends outside of a transaction.
type outcomes struct{}

// writingKey marks the context of a call that may commit a change.
type writingKey struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (outcomes) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !sends(ctx, conn) {
		return ctx
	}
	if strings.EqualFold(data.SQL, "commit") || alone(conn) && writes.MatchString(data.SQL) {
		return context.WithValue(ctx, writingKey{}, true)
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (outcomes) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	note(ctx, data.CommandTag, data.Err)
}

// TraceBatchStart implements pgx.BatchTracer.
func (outcomes) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	if !sends(ctx, conn) || !alone(conn) {
		return ctx
	}
	for _, q := range data.Batch.QueuedQueries {
		if writes.MatchString(q.SQL) {
			return context.WithValue(ctx, writingKey{}, true)
		}
	}
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (outcomes) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (outcomes) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	note(ctx, pgconn.CommandTag{}, data.Err)
}

// sends reports whether a call that is watched comes to the server at all.
func sends(ctx context.Context, conn *pgx.Conn) bool {
	return OutcomeOf(ctx) != nil && ctx.Err() == nil && !conn.IsClosed()
}

// alone reports whether the next statement of a session is a transaction of its own.
func alone(conn *pgx.Conn) bool { return conn.PgConn().TxStatus() == 'I' }

// writes matches statements that may write. One that does not but matches makes an outcome unknown that was known.
var writes = regexp.MustCompile(`(?i)\b(insert\s+into|update|delete\s+from|merge\s+into|copy)\b`)

// note notes how a call ended that may have committed a change.
func note(ctx context.Context, tag pgconn.CommandTag, err error) {
	if ctx.Value(writingKey{}) == nil || tag.String() == "ROLLBACK" || refused(err) {
		return
	}
	NoteChange(ctx)
}

// refused reports whether an error proves that nothing was committed: the server says so. A server that is being shut down
// may end the session of a transaction that it has committed. pgconn.SafeToRetry is no proof: where the connection breaks
// before the answer to a COMMIT, pgx 5.12 returns that the connection was closed all along.
func refused(err error) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && !strings.HasPrefix(answer.Code, "57P") && !strings.HasPrefix(answer.Code, "08")
}
