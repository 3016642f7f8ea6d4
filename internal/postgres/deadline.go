package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// QueryTimeout bounds the queries of one request.
const QueryTimeout = 8 * time.Second

// deadlines is a tracer that adds a deadline to each call without one: acquiring a connection, each statement, batch and COPY. It is a
// tracer because every call of pgx passes its tracers. It does not bound a wait for notifications.
type deadlines struct{ limit time.Duration }

// bounded is a context whose deadline was added by the tracer deadlines.
type bounded struct {
	context.Context
	cancel context.CancelFunc
}

func (d deadlines) begin(ctx context.Context) context.Context {
	if _, has := ctx.Deadline(); has {
		return ctx
	}
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	return bounded{ctx, cancel}
}

func end(ctx context.Context) {
	if b, ok := ctx.(bounded); ok {
		b.cancel()
	}
}

// TraceAcquireStart implements pgxpool.AcquireTracer.
func (d deadlines) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return d.begin(ctx)
}

// TraceAcquireEnd implements pgxpool.AcquireTracer.
func (deadlines) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	end(ctx)
}

// TraceQueryStart implements pgx.QueryTracer.
func (d deadlines) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return d.begin(ctx)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (deadlines) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) { end(ctx) }

// TraceBatchStart implements pgx.BatchTracer.
func (d deadlines) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return d.begin(ctx)
}

// TraceBatchQuery implements pgx.BatchTracer.
func (deadlines) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (deadlines) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) { end(ctx) }

// TraceCopyFromStart implements pgx.CopyFromTracer.
func (d deadlines) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return d.begin(ctx)
}

// TraceCopyFromEnd implements pgx.CopyFromTracer.
func (deadlines) TraceCopyFromEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromEndData) {
	end(ctx)
}
