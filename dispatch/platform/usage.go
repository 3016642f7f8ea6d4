package platform

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/forecast"
)

// TenantUse is what a tenant used on one day of UTC, and what it stores now.
type TenantUse struct {
	Tenant      string `json:"tenant"`
	Day         string `json:"day"`
	Ticks       int64  `json:"ticks"`
	Succeeded   int64  `json:"succeeded"`
	Failed      int64  `json:"failed"`
	Cancelled   int64  `json:"cancelled"`
	Skipped     int64  `json:"skipped"`
	Missed      int64  `json:"missed"`
	Schedules   int64  `json:"schedules"`    // stored, as of some seconds ago
	Subjects    int64  `json:"subjects"`     // profiles, likewise
	StoredBytes int64  `json:"stored_bytes"` // likewise
}

// Usage returns a page of the use of all tenants on a day, by name, and the cursor of the next page. A tenant that used nothing has
// zeros; one that was erased is not listed.
func (e *Engine) Usage(ctx context.Context, day time.Time, limit int, cursor string) (page []TenantUse, next *string, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	after := ""
	date := day.Format(time.DateOnly)
	paging, err := e.Cursors.Page(0, "platform/usage "+date, limit, cursor, &after)
	if err != nil {
		return nil, nil, err
	}
	rows, _ := e.DB.Query(ctx, `
		WITH page AS MATERIALIZED (SELECT id, name FROM tenant WHERE name > $1 ORDER BY name LIMIT $2)
		SELECT p.name, $3::date::text, u.*,
			COALESCE((SELECT n FROM tally WHERE tenant_id = p.id AND cohort_id = `+fmt.Sprint(forecast.AllSchedules)+`), 0),
			COALESCE((SELECT n FROM tally WHERE tenant_id = p.id AND cohort_id = `+fmt.Sprint(forecast.AllSubjects)+`), 0),
			COALESCE((SELECT n FROM tally WHERE tenant_id = p.id AND cohort_id = `+fmt.Sprint(forecast.AllBytes)+`), 0)
		FROM page p
		LEFT JOIN (
			SELECT tenant_id, `+history.UseSums+`
			FROM (
				SELECT d.tenant_id, `+history.UseCounts+`
				FROM daily_use d
				WHERE d.tenant_id = ANY (ARRAY (SELECT id FROM page)) AND d.workflow = '' AND d.day = $3
				UNION ALL
				SELECT d.tenant_id, `+history.UseCounts+`
				FROM daily_use_delta d
				WHERE d.tenant_id = ANY (ARRAY (SELECT id FROM page)) AND d.day = $3 AND `+postgres.Unfolded("daily_use_delta")+`
			) d
			GROUP BY tenant_id
		) s ON s.tenant_id = p.id
		CROSS JOIN LATERAL (SELECT COALESCE(s.ticks, 0), COALESCE(s.succeeded, 0), COALESCE(s.failed, 0), COALESCE(s.cancelled, 0), COALESCE(s.skipped, 0), COALESCE(s.missed, 0)) u
		ORDER BY p.name`, after, paging.Rows(), day) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[TenantUse])
	if err != nil {
		return nil, nil, fmt.Errorf("read the use of all tenants: %w", err)
	}
	return web.Cut(paging, found, false, func(u TenantUse) string { return u.Tenant })
}
