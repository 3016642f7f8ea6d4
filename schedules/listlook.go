package schedules

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// mostListed bounds the schedules that one page looks at where an index leads it past those of another status. A page that finds
// few of them is short, and its cursor leads on from the last one that it looked at.
const mostListed = 5_000

// passesMany reports whether a list walks an index that does not tell the status which the filter asks for.
func (f Filter) passesMany() bool {
	return f.Status != "" && f.DueBefore.IsZero() && (f.Label != "" || f.KeyPrefix != "" || f.Status == policy.Active)
}

// everyWorkflow reports whether a list walks a prefix of keys in each workflow.
func (f Filter) everyWorkflow() bool { return f.KeyPrefix != "" && f.Workflow == "" }

// looked is what was found of a list from a position on.
type looked struct {
	rows []*row
	end  *Position // where it stopped before it found as much as was asked for, if not at the end of the list
	at   time.Time // the clock
}

// look reads up to n rows of a list from a position on.
func (s *Schedules) look(ctx context.Context, tenant tenants.ID, f Filter, after Position, n, most int) (l looked, err error) {
	read := func(through *Position) error {
		sql, args := f.query(tenant, after, through, n)
		var full bool
		l.rows, full, l.at, err = readRows(ctx, s.Pool, most, sql, args...)
		if err == nil && full {
			l.end = new(f.position(l.rows[len(l.rows)-1]))
		}
		return err
	}
	if !f.everyWorkflow() || !f.passesMany() {
		if err := read(nil); err != nil || l.end != nil || len(l.rows) == n || !f.passesMany() {
			return l, err
		}
		web.Done(ctx, l.rows, (*row).held)
	}
	// Few are found. They are read again up to a place that is known, as the first statement does not tell where it stopped.
	through, err := s.lastLooked(ctx, tenant, f, after)
	if err != nil {
		return l, err
	}
	if err := read(through); err == nil && l.end == nil && len(l.rows) < n {
		l.end = through
	}
	return l, err
}

// lastLooked returns the place of the last row that a page from a position on may look at; nil: there are fewer.
func (s *Schedules) lastLooked(ctx context.Context, tenant tenants.ID, f Filter, after Position) (*Position, error) {
	sql, args := f.lastQuery(tenant, after)
	var last Position
	err := s.Pool.QueryRow(ctx, sql, args...).Scan(&last.Workflow, &last.Key)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look how far a page goes: %w", err)
	}
	return &last, nil
}

// lastQuery finds the place of the row number mostListed, whatever its status.
func (f Filter) lastQuery(tenant tenants.ID, after Position) (sql string, args []any) {
	if f.everyWorkflow() {
		past, args := f.prefixArgs(tenant, after, mostListed)
		return inPrefix + `
			SELECT x.workflow, x.key
			FROM workflows n
			CROSS JOIN LATERAL (SELECT s.workflow, s.key FROM schedule s WHERE ` + ofWorkflow + past + ` ORDER BY s.key LIMIT $5) x
			OFFSET $5 - 1
			LIMIT 1`, args // any row would do: in this order they need no sort, which would read all first
	}
	by, tables := "s", "schedule s"
	if f.Label != "" {
		by, tables = "l", "label l"
	}
	where, args := f.where(by, tenant, after, nil)
	return `
		SELECT ` + by + `.workflow, ` + by + `.key
		FROM ` + tables + `
		WHERE ` + where + `
		ORDER BY ` + by + `.workflow, ` + by + `.key
		OFFSET ` + strconv.Itoa(mostListed-1) + `
		LIMIT 1`, args
}
