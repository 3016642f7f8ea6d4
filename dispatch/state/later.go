package state

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

// NumberLater gives a number to a manual tick that fires later. Until it fires, the tick counts for nothing else.
func NumberLater(ctx context.Context, tx pgx.Tx, s Schedule) (seq int32, lastAt *time.Time, err error) {
	err = tx.QueryRow(ctx, `
		UPDATE schedule_state st
		SET manual = st.manual + 1
		WHERE st.tenant_id = $1 AND st.schedule_id = $2
		RETURNING st.manual, st.last_at`, s.Tenant, s.ID).Scan(&seq, &lastAt)
	if err != nil {
		return 0, nil, fmt.Errorf("number the manual tick: %w", err)
	}
	return seq, lastAt, nil
}

var fireLater = `
		UPDATE schedule_state st
		SET last_tick_at = $5, last_seq = $6,
			live_at = CASE WHEN ` + manual.handOut + ` THEN $5 ELSE st.live_at END,
			live_seq = CASE WHEN ` + manual.handOut + ` THEN $6 ELSE st.live_seq END,
			` + manual.count() + `
		FROM (SELECT $3::smallint AS reason, $4::text AS overlap) n
		WHERE st.tenant_id = $1 AND st.schedule_id = $2
		RETURNING st.decision, st.last_at`

// Later is a manual tick whose time has come: its nominal time and number, why it is skipped whatever the state (0: it is not), and the
// overlap policy. FireLater sets the other fields. Gone reports that the schedule is deleted.
type Later struct {
	Schedule int64
	At       time.Time
	Seq      int32
	Reason   int16
	Overlap  string

	Decision Decision
	LastAt   *time.Time
	Gone     bool
}

// FireLater decides manual ticks of a tenant whose times have come, in the order of ticks.
func FireLater(ctx context.Context, tx pgx.Tx, tenant tenants.ID, ticks []*Later) error {
	var b pgx.Batch
	for _, t := range ticks {
		b.Queue(fireLater, tenant, t.Schedule, t.Reason, t.Overlap, t.At, t.Seq).Query(func(rows pgx.Rows) error {
			t.Gone = true
			_, err := pgx.ForEachRow(rows, []any{&t.Decision, &t.LastAt}, func() error {
				t.Gone = false
				return nil
			})
			return err
		})
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("decide manual ticks whose times have come: %w", err)
	}
	return nil
}
