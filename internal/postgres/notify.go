package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// notification is sent once its transaction is committed.
type notification struct{ channel, payload string }

const (
	pendingKey = "carillon.notifications" // of a connection's custom data, while it is in a transaction
	notifyTime = time.Second
)

// Notify sends a notification after the COMMIT of tx, in a statement of its own. A transaction that notifies by itself holds a lock of
// the whole cluster until its COMMIT is flushed and replicated, so that no two of them commit at a time. The statement of its own
// changes nothing, and waits for no flush. The notification is lost if the process ends in between, so listeners poll too. A channel
// that begins with a dot is one of the current schema.
func Notify(ctx context.Context, tx pgx.Tx, channel, payload string) error {
	data := tx.Conn().PgConn().CustomData()
	pending, ok := data[pendingKey].([]notification)
	one := notification{channel, payload}
	if !ok { // no pool of Open
		return notify(ctx, tx.Conn(), []notification{one})
	}
	if n := len(pending); n == 0 || pending[n-1] != one { // PostgreSQL drops the other duplicates
		data[pendingKey] = append(pending, one)
	}
	return nil
}

// NotifyAll sends notifications, whose channels are $1 and payloads $2.
const NotifyAll = `
	SELECT pg_notify(CASE WHEN starts_with(channel, '.') THEN current_schema() || channel ELSE channel END, payload)
	FROM unnest($1::text[], $2::text[]) AS n (channel, payload)`

func notify(ctx context.Context, conn *pgx.Conn, all []notification) error {
	channels, payloads := make([]string, len(all)), make([]string, len(all))
	for i, one := range all {
		channels[i], payloads[i] = one.channel, one.payload
	}
	if _, err := conn.Exec(ctx, NotifyAll, channels, payloads); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	return nil
}

// notifier is the tracer that sees transactions begin and end, and sends their notifications.
type notifier struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (notifier) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if len(data.SQL) >= len("begin") && strings.EqualFold(data.SQL[:len("begin")], "begin") {
		conn.PgConn().CustomData()[pendingKey] = []notification(nil)
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (notifier) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	pending, ok := conn.PgConn().CustomData()[pendingKey].([]notification)
	if !ok || !alone(conn) { // in a transaction still
		return
	}
	delete(conn.PgConn().CustomData(), pendingKey)
	if len(pending) == 0 || data.Err != nil || data.CommandTag.String() != "COMMIT" {
		return
	}
	ctx, cancel := context.WithTimeout(Unwatched(context.WithoutCancel(ctx)), notifyTime)
	defer cancel()
	_ = notify(ctx, conn, pending) // listeners poll too
}
