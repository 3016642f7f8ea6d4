package state

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Counters are the numbers of a schedule's ticks that have not ended.
type Counters struct {
	Live, Buffered       int        // own ticks that run, and own ticks that are buffered
	Aside, AsideBuffered int        // the same for ticks aside
	SeenAt               *time.Time // nominal time of the last timed tick that was recorded
}

// Lock locks the state of a schedule until tx ends, and reads its counters.
func Lock(ctx context.Context, tx pgx.Tx, s Schedule) (c Counters, err error) {
	err = tx.QueryRow(ctx, `
		SELECT live, buffered, aside, aside_buffered, `+SeenAt+`
		FROM schedule_state st
		WHERE tenant_id = $1 AND schedule_id = $2
		FOR UPDATE`, s.Tenant, s.ID).Scan(&c.Live, &c.Buffered, &c.Aside, &c.AsideBuffered, &c.SeenAt)
	if err != nil {
		return c, fmt.Errorf("lock the state of a schedule: %w", err)
	}
	return c, nil
}

// DecideAside locks the state of a schedule until tx ends, and returns what a new tick aside becomes: handed out if no tick of the
// schedule runs or is buffered, or if the overlap policy allows all; else buffered.
func DecideAside(ctx context.Context, tx pgx.Tx, s Schedule, overlap string) (Decision, error) {
	c, err := Lock(ctx, tx, s)
	if err != nil {
		return 0, err
	}
	if overlap != "allow_all" && c.Live+c.Buffered+c.Aside+c.AsideBuffered > 0 {
		return Buffered, nil
	}
	return handedOut, nil
}

// Backfill counts new ticks aside: how many of them are handed out, and how many are buffered.
func Backfill(b *pgx.Batch, s Schedule, handedOut, buffered int) {
	b.Queue(`
		UPDATE schedule_state
		SET aside = aside + $3, fired = fired + $3, aside_buffered = aside_buffered + $4
		WHERE tenant_id = $1 AND schedule_id = $2`, s.Tenant, s.ID, handedOut, buffered)
}

// Revive counts a failed tick that is delivered again, as a tick aside: handed out, or buffered.
func Revive(b *pgx.Batch, s Schedule, f Decision) {
	handedOut, buffered := 1, 0
	if f == Buffered {
		handedOut, buffered = 0, 1
	}
	b.Queue(`
		UPDATE schedule_state
		SET failed = GREATEST(0, failed - 1), aside = aside + $3, aside_buffered = aside_buffered + $4
		WHERE tenant_id = $1 AND schedule_id = $2`, s.Tenant, s.ID, handedOut, buffered)
}
