package schedules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/jackc/pgx/v5"
)

// fields are where the columns of rowColumns go, in their order. To find them by their names takes longer for a page of
// rows than to read it.
func (r *row) fields() []any {
	f := append(make([]any, 0, 65),
		&r.ID, &r.Workflow, &r.Key, &r.Subject, &r.Version, &r.Shard, &r.Status, &r.Spec, &r.Payload, &r.Labels, &r.Note, &r.StatusNote,
		&r.PausedAt, &r.PausedUntil, &r.PausedBy,
		&r.AnchorAt, &r.TicksLeft, &r.CohortID, &r.Phase, &r.TZData, &r.Moves, &r.MovedUntil, &r.CreatedAt, &r.UpdatedAt, &r.UpdatedBy,
	)
	f = append(f, r.Stored.Fields()...)
	return append(f,
		&r.Fired, &r.Succeeded, &r.Failed, &r.Skipped, &r.MissedTimes, &r.FailuresInARow, &r.LastAt, &r.LastTickAt, &r.LastSeq, &r.SeenAt, &r.Skips, &r.DelayAt, &r.DelayLeft,
		&r.Hash, &r.CohortMissed, &r.Revision, &r.Timed, &r.RetimeAt, &r.NextAt, &r.RunAt, &r.RunFrom, &r.RunMissed, &r.RunDrop, &r.AtPhase, &r.AtID,
		&r.FromAt, &r.UntilAt,
		&r.Defaults, &r.SubjectZone, &r.QuietHours,
	)
}

// scanRow reads one row of a query for rowColumns, as pgx.RowToFunc.
func scanRow(rows pgx.CollectableRow) (*row, error) {
	var r row
	return &r, rows.Scan(r.fields()...)
}

func collectRow(rows pgx.Rows) (*row, error) {
	r, err := pgx.CollectExactlyOneRow(rows, scanRow)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return r, err
}

// held is how many bytes the long texts of a row have.
func (r *row) held() int {
	n := len(r.Spec)
	if r.Payload != nil {
		n += len(*r.Payload)
	}
	return n
}

// readRows reads up to n rows of a query for rowColumns, and then the clock. Full says that it stopped before the last row,
// because more than most bytes may not be held.
func readRows(ctx context.Context, db postgres.DB, n, most int, sql string, args ...any) (found []*row, full bool, now time.Time, err error) {
	var b pgx.Batch
	b.Queue(sql, args...)
	b.Queue(`SELECT ` + postgres.Now)
	var results pgx.BatchResults
	defer func() {
		if results != nil {
			_ = results.Close() // after an error, which is returned
		}
	}()
	found, full, err = web.Collect(ctx, n, most, func() (pgx.Rows, error) {
		results = db.SendBatch(ctx, &b)
		return results.Query()
	}, scanRow, (*row).held)
	if err != nil {
		return nil, false, now, fmt.Errorf("read schedules: %w", err)
	}
	if err := results.QueryRow().Scan(&now); err != nil {
		return nil, false, now, fmt.Errorf("read clock: %w", err)
	}
	return found, full, now.UTC(), results.Close()
}
