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

// Outcome records whether calls may have changed the database. See Watch. It is safe for concurrent use.
type Outcome struct{ changed atomic.Bool }

// MayHaveChanged reports whether a call has committed a change, or has lost its connection during the commit.
func (o *Outcome) MayHaveChanged() bool { return o != nil && o.changed.Load() }

type outcomeKey struct{}

// Watch returns a context and the Outcome of all database calls with that context.
func Watch(ctx context.Context) (context.Context, *Outcome) {
	o := &Outcome{}
	return context.WithValue(ctx, outcomeKey{}, o), o
}

// Unwatched returns a context whose calls no Outcome records. It is for accounting, such as rate limits, which is not an effect of
// the request.
func Unwatched(ctx context.Context) context.Context {
	return context.WithValue(ctx, outcomeKey{}, (*Outcome)(nil))
}

// OutcomeOf returns the Outcome of a context, or nil.
func OutcomeOf(ctx context.Context) *Outcome {
	o, _ := ctx.Value(outcomeKey{}).(*Outcome)
	return o
}

// NoteChange records in the context's Outcome, if any, that another goroutine or process may have committed a change for it.
func NoteChange(ctx context.Context) {
	if o := OutcomeOf(ctx); o != nil {
		o.changed.Store(true)
	}
}

// outcomes is a tracer that records changes, because every call of pgx passes its tracers. A change happens when a transaction
// commits, or when a writing statement ends outside a transaction.
type outcomes struct{}

// writingKey marks the context of a call that may commit a change.
type writingKey struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (outcomes) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !sends(ctx, conn) {
		return ctx
	}
	if strings.EqualFold(data.SQL, "commit") || idle(conn) && writes.MatchString(data.SQL) {
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
	if !sends(ctx, conn) || !idle(conn) {
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

// sends reports whether a watched call reaches the server.
func sends(ctx context.Context, conn *pgx.Conn) bool {
	return OutcomeOf(ctx) != nil && ctx.Err() == nil && !conn.IsClosed()
}

// idle reports whether the session is outside a transaction.
func idle(conn *pgx.Conn) bool { return conn.PgConn().TxStatus() == 'I' }

// writes matches statements that may write. A false match only makes a known outcome unknown.
var writes = regexp.MustCompile(`(?i)\b(insert\s+into|update|delete\s+from|merge\s+into|copy)\b`)

// note records the end of a call that may have committed a change.
func note(ctx context.Context, tag pgconn.CommandTag, err error) {
	if ctx.Value(writingKey{}) == nil || tag.String() == "ROLLBACK" || refused(err) {
		return
	}
	NoteChange(ctx)
}

// refused reports whether an error proves that nothing was committed: the server returned it. A server in shutdown is no proof, because
// it may end a session after it has committed. pgconn.SafeToRetry is no proof either: if the connection breaks before the answer to a
// COMMIT, pgx 5.12 reports that the connection was already closed.
func refused(err error) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && !strings.HasPrefix(answer.Code, "57P") && !strings.HasPrefix(answer.Code, "08")
}
