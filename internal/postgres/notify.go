package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// notification waits for the COMMIT of its transaction.
type notification struct{ channel, payload string }

const (
	pendingKey    = "carillon.pending" // in a connection's custom data, during a transaction
	notifyTimeout = time.Second
)

// pending is what waits for the COMMIT of a transaction.
type pending struct {
	notifications []notification
	calls         []func()
}

// AfterCommit calls a function after the COMMIT of tx. It does not call it if the transaction does not commit, if the answer to the
// COMMIT is lost, or if a savepoint of the transaction is rolled back: it is for what a process may forget.
func AfterCommit(tx pgx.Tx, call func()) {
	if p, ok := tx.Conn().PgConn().CustomData()[pendingKey].(*pending); ok {
		p.calls = append(p.calls, call)
	}
}

// Notify sends a notification in a separate statement after the COMMIT of tx. A NOTIFY inside the transaction would hold a global lock
// until the COMMIT is flushed and replicated, so that such transactions commit one after another. The separate statement changes no
// row and waits for no flush.
//
// A crash between the two loses the notification, so listeners also poll. The current schema's name is added before a channel that
// begins with a dot.
func Notify(ctx context.Context, tx pgx.Tx, channel, payload string) error {
	one := notification{channel, payload}
	p, ok := tx.Conn().PgConn().CustomData()[pendingKey].(*pending)
	if !ok { // the pool is not from Open
		return notify(ctx, tx.Conn(), []notification{one})
	}
	if n := len(p.notifications); n == 0 || p.notifications[n-1] != one { // PostgreSQL removes other duplicates
		p.notifications = append(p.notifications, one)
	}
	return nil
}

// NotifyAll is a statement that sends notifications: $1 are the channels, $2 the payloads.
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

// notifier is a tracer that does what waits for the COMMIT of a transaction.
type notifier struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (notifier) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	custom := conn.PgConn().CustomData()
	switch {
	case begins(data.SQL, "begin"):
		custom[pendingKey] = &pending{}
	case begins(data.SQL, "rollback to"):
		if p, ok := custom[pendingKey].(*pending); ok {
			p.calls = nil
		}
	}
	return ctx
}

func begins(sql, word string) bool {
	return len(sql) >= len(word) && strings.EqualFold(sql[:len(word)], word)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (notifier) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	p, ok := conn.PgConn().CustomData()[pendingKey].(*pending)
	if !ok || !idle(conn) { // the transaction is still open
		return
	}
	delete(conn.PgConn().CustomData(), pendingKey)
	if data.Err != nil || data.CommandTag.String() != "COMMIT" {
		return
	}
	for _, call := range p.calls {
		call()
	}
	if len(p.notifications) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(Unwatched(context.WithoutCancel(ctx)), notifyTimeout)
	defer cancel()
	_ = notify(ctx, conn, p.notifications) // on an error the listeners poll
}

// A server that sends no notification for quietFor is pinged, and must answer within answerWithin.
const (
	quietFor     = 3 * time.Second
	answerWithin = 2 * time.Second
)

// Receive waits for a notification on a connection that listens. It returns nil if the server sent none for a while, and answers a ping.
func Receive(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	wait, cancel := context.WithTimeout(ctx, quietFor)
	defer cancel()
	n, err := conn.WaitForNotification(wait)
	if err == nil || ctx.Err() != nil || conn.IsClosed() || !errors.Is(err, context.DeadlineExceeded) {
		return n, err
	}
	asked, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return nil, conn.Ping(asked)
}
