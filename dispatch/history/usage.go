package history

import (
	"context"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// Use is what a tenant used on one day of UTC: how many ticks were recorded on it, and how ticks ended on it, whenever they were
// recorded. Missed counts the missed nominal times that ticks stand for. A tick that is delivered again counts again when it ends.
type Use struct {
	Day       string `json:"day"`
	Workflow  string `json:"workflow,omitempty"` // empty: all together
	Ticks     int64  `json:"ticks"`
	Succeeded int64  `json:"succeeded"`
	Failed    int64  `json:"failed"`
	Cancelled int64  `json:"cancelled"`
	Skipped   int64  `json:"skipped"`
	Missed    int64  `json:"missed"`
}

// UseFilter picks days from From to To, both included, if they are not zero. It picks one workflow if Workflow is not empty, or the
// sums of all workflows if Total is true.
type UseFilter struct {
	From, To time.Time
	Workflow string
	Total    bool
}

// usePlace is where a page of use begins.
type usePlace struct {
	Day      time.Time `json:"d"`
	Workflow string    `json:"w"`
}

var (
	firstDay = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	lastDay  = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
)

// UseCounts are the columns that count ticks, and UseSums their sums, in SQL.
const (
	UseCounts = `ticks, succeeded, failed, cancelled, skipped, missed`
	UseSums   = `sum(ticks)::bigint AS ticks, sum(succeeded)::bigint AS succeeded, sum(failed)::bigint AS failed,
			sum(cancelled)::bigint AS cancelled, sum(skipped)::bigint AS skipped, sum(missed)::bigint AS missed`
)

// Usage returns a page of a tenant's use, the newest day first and within it by workflow, and the cursor of the next page. The page
// includes what has been committed. It reads only the rows of the page, and the rows that are not folded yet.
func (r *Reader) Usage(ctx context.Context, tenant tenants.ID, f UseFilter, limit int, cursor string) (page []Use, next *string, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	from, at := firstDay, usePlace{Day: lastDay}
	if !f.From.IsZero() {
		from = f.From
	}
	if !f.To.IsZero() {
		at.Day = f.To
	}
	name := fmt.Sprintf("usage %d %d %q %t", f.From.Unix(), f.To.Unix(), f.Workflow, f.Total)
	paging, err := r.cursors.Page(int32(tenant), name, limit, cursor, &at)
	if err != nil {
		return nil, nil, err
	}
	args := []any{tenant, from, at.Day, paging.Rows()}
	kept, fresh, named := "", "", `workflow`
	switch { // of one workflow, or of all together, there is a row a day
	case f.Total:
		kept, fresh, named = `workflow = ''`, `true`, `''`
	case f.Workflow != "":
		kept, fresh = `workflow = $5`, `workflow = $5`
		args = append(args, f.Workflow)
	default:
		kept, fresh = `(day < $3 OR workflow > $5) AND workflow <> ''`, `(day < $3 OR workflow > $5)`
		args = append(args, at.Workflow)
	}
	rows, _ := r.api.Query(ctx, `
		SELECT day::text, workflow, `+UseSums+`
		FROM (
			(SELECT day, workflow, `+UseCounts+`
			FROM daily_use
			WHERE tenant_id = $1 AND day BETWEEN $2 AND $3 AND `+kept+`
			ORDER BY day DESC, workflow
			LIMIT $4)
			UNION ALL
			SELECT day, `+named+`, `+UseCounts+`
			FROM daily_use_delta
			WHERE tenant_id = $1 AND day BETWEEN $2 AND $3 AND `+fresh+` AND `+postgres.Unfolded("daily_use_delta")+`
		) u
		GROUP BY u.day, u.workflow
		ORDER BY u.day DESC, u.workflow
		LIMIT $4`, args...) // CollectRows reports the error
	page, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Use])
	if err != nil {
		return nil, nil, fmt.Errorf("read use: %w", err)
	}
	page, more := web.Trim(page, limit, false)
	if !more {
		return page, nil, nil
	}
	if at, err = f.after(page[limit-1]); err != nil {
		return nil, nil, err
	}
	next, err = paging.Next(at)
	return page, next, err
}

// after returns the position after the last row of a page.
func (f UseFilter) after(last Use) (at usePlace, err error) {
	day, err := time.Parse(time.DateOnly, last.Day)
	if err != nil {
		return at, fmt.Errorf("read use: %w", err)
	}
	if f.Total || f.Workflow != "" {
		return usePlace{Day: day.AddDate(0, 0, -1)}, nil
	}
	return usePlace{day, last.Workflow}, nil
}

// Upkeep folds the rows that add to the use of a day.
const (
	FoldUseEvery = 5 * time.Second // between two runs
	MostUse      = 50_000          // rows in a batch
)
