package finish

import (
	"context"
	"fmt"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// markFailing queues the schedules whose terms pause them after so many failures in a row. pauseFailing pauses them in a transaction of
// their own, which takes the locks that a pause needs. If this process ends before that, the next failure queues them again.
func (f *Finisher) markFailing(ctx context.Context, tx pgx.Tx, tenant tenants.ID, failing []int64) error {
	if len(failing) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, `
		SELECT s.id, s.pause_after_failures, w.defaults, st.failures
		FROM schedule s
		JOIN schedule_state st ON st.tenant_id = s.tenant_id AND st.schedule_id = s.id
		LEFT JOIN workflow w ON w.tenant_id = s.tenant_id AND w.name = s.workflow
		WHERE s.tenant_id = $1 AND s.id = ANY($2) AND (s.status = 'active' OR s.paused_until <= `+postgres.Now+`)`, tenant, failing)
	if err != nil {
		return fmt.Errorf("look for failing schedules: %w", err)
	}
	var id int64
	var own *int32
	var defaults []byte
	var failures int32
	_, err = pgx.ForEachRow(rows, []any{&id, &own, &defaults, &failures}, func() error {
		terms, err := policy.Resolve(policy.Stored{PauseAfterFailures: own}, defaults)
		if err != nil {
			return nil // a process of the newer program pauses it after the next failure
		}
		if most := terms.PauseAfterFailures; most > 0 && failures >= most {
			select {
			case f.failing <- failingSchedule{tenant, id, failures}:
			default: // too many at once: the next failure queues it again
			}
		}
		return nil
	})
	return err
}

// failingSchedule is a schedule to pause.
type failingSchedule struct {
	tenant   tenants.ID
	id       int64
	failures int32
}

// pauseFailing pauses the queued schedules, until ctx ends.
func (f *Finisher) pauseFailing(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case one := <-f.failing:
			f.pauseOne(ctx, one)
		}
	}
}

// PauseQueued pauses the schedules that are queued now. A test that moves the clock calls it in place of Run.
func (f *Finisher) PauseQueued(ctx context.Context) {
	for {
		select {
		case one := <-f.failing:
			f.pauseOne(ctx, one)
		default:
			return
		}
	}
}

func (f *Finisher) pauseOne(ctx context.Context, one failingSchedule) {
	if err := f.pause(ctx, one.tenant, one.id, fmt.Sprintf("paused after %d failed ticks in a row", one.failures)); err != nil && ctx.Err() == nil {
		f.log.Error("cannot pause a failing schedule", "tenant", one.tenant, "error", err)
	}
}
