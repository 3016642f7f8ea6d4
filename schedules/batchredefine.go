package schedules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
)

// renewal is a timing by the present calendars and the tz database in force.
type renewal struct {
	timing   *calendar.Timing
	revision int64
}

// rewrite is a row that is to be written for an item.
type rewrite struct {
	*row
	ord     int // of the item
	newborn bool
	joins   bool // it is a member from now on, of the cohort that is found for it
	quiet   bool // it is timed anew, which makes no version
	timing  *cohortNeed
	next    time.Time
	before  *time.Time // its next tick before this version, and by it
	after   *time.Time
	moves   *string // those of the row, as they are stored
	was     *audited
}

// redefineStored decides what the lines make of rows that are stored.
func (l *load) redefineStored(ctx context.Context) error {
	if len(l.stored) == 0 {
		return nil
	}
	ords := make(map[int64]int, len(l.stored))
	ids := make([]int64, len(l.stored))
	for i, ord := range l.stored {
		ids[i] = l.items[ord].id
		ords[ids[i]] = ord
	}
	rows, err := l.lockRows(ctx, ids)
	if err != nil {
		return err
	}
	if len(rows) < len(ids) { // deleted since we looked
		return errRaced
	}
	for _, r := range rows {
		if err := l.redefineRow(ctx, r, ords[r.ID]); err != nil {
			return err
		}
	}
	return nil
}

// lockRows locks and reads schedules whose shards are locked, with their timings, and then the clock. Those that are gone
// are left out.
func (l *load) lockRows(ctx context.Context, ids []int64) ([]*row, error) {
	slices.Sort(ids)
	var b pgx.Batch
	b.Queue(`SELECT id FROM schedule WHERE tenant_id = $1 AND id = ANY($2) ORDER BY id FOR UPDATE`, l.tenant, ids)
	b.Queue(`SELECT `+rowColumns+` FROM `+rowTables+` WHERE s.tenant_id = $1 AND s.id = ANY($2)`, l.tenant, ids)
	b.Queue(`SELECT ` + postgres.Now)
	results := l.tx.SendBatch(ctx, &b)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return nil, fmt.Errorf("lock schedules: %w", err)
	}
	found, _ := results.Query() // CollectRows reports the error
	rows, err := pgx.CollectRows(found, scanRow)
	if err != nil {
		return nil, fmt.Errorf("read schedules: %w", err)
	}
	if err := results.QueryRow().Scan(&l.now); err != nil {
		return nil, fmt.Errorf("read clock: %w", err)
	}
	l.now = l.now.UTC()
	if err := results.Close(); err != nil {
		return nil, err
	}
	if err := l.lockDelays(ctx, rows); err != nil {
		return nil, err
	}
	return rows, fetchTimings(ctx, l.tx, l.Timings, l.tenant, rows)
}

// redefineRow is what replace is for one schedule, with its writes put off.
func (l *load) redefineRow(ctx context.Context, r *row, ord int) error {
	it := l.items[ord]
	if r.Shard != l.shards[ord] {
		return errRaced
	}
	r.wake(l.now)
	it.row = r
	if err := it.pre.Check(true, int64(r.Version)); err != nil {
		return it.refuse(err)
	}
	before, err := r.timing(ctx, l.tx, l.Timings, l.tenant)
	if err != nil && !errors.Is(err, cohorts.ErrUncomputable) {
		return err
	}
	next := r.coming(before, l.now)
	var was *audited
	if it.whole {
		was = r.audited()
	}
	c, err := l.redefine(r, it.definition, before, l.change(), l.memo)
	if err != nil {
		return it.refuse(err)
	}
	if !c.differs {
		return nil
	}
	if err := l.takeSpace(ctx, r.held()); err != nil {
		return it.refuse(err)
	}
	w := &rewrite{row: r, ord: ord, was: was}
	if c.moves {
		if err := l.afford(l.tenant, r, c, before, l.quotas, l.now); err != nil {
			return it.refuse(err)
		}
		ends, due := len(l.ends), len(l.due)
		l.leaveLater(r, before)
		c.recount(r, it.definition)
		if err := l.rearmLater(ctx, w, c); err != nil {
			l.ends, l.due = l.ends[:ends], l.due[:due]
			return it.refuse(err)
		}
	}
	w.before, w.after = next, r.coming(c.timing, l.now)
	if w.moves, err = r.movesText(); err != nil {
		return err
	}
	l.rows = append(l.rows, w)
	it.result = Updated
	return nil
}

// leaveLater is leave, with its writes put off.
func (l *load) leaveLater(r *row, t *calendar.Timing) {
	if r.CohortID == nil {
		return
	}
	left := membership{cohort: *r.CohortID, spread: r.Spread, schedule: r.ID}
	if r.delayed() {
		left.alone = r
	}
	l.ends = append(l.ends, left)
	l.due = append(l.due, r.withdraw(l.tenant, t, l.now)...)
}

// rearmLater is rearm, with the cohort to be found for all rows at once.
func (l *load) rearmLater(ctx context.Context, w *rewrite, c effect) error {
	after := l.now
	if w.Status != Active {
		if w.PausedUntil == nil {
			return nil
		}
		after = w.PausedUntil.Add(-time.Second)
	}
	if err := l.enterLater(ctx, w, c.timing, after); err != nil {
		return err
	}
	if !w.joins && w.Status == Active {
		return neverFires()
	}
	return nil
}
