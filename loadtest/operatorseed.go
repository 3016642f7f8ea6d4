package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/record"
	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/tenants"
)

const (
	seedMinutes = 22 * 60 // over which the ticks of a day are spread
	seedIndexed = 1_000   // ticks in one row of the index by time
	seedFailed  = 200     // one tick of so many failed
)

// seed stores schedules through the API and by copies, and ticks of the last days with their index, dead letters and series.
func (op *operated) seed(ctx context.Context) error {
	if err := fill(ctx, op.announcement, op.stored, operatorWorkflow, op.p); err != nil {
		return err
	}
	op.p.say("%d schedules stored", op.stored)
	if _, err := op.sdk.Endpoints.Put(ctx, "hooks", carillon.EndpointParams{URL: "http://127.0.0.1:1/"}); err != nil {
		return err
	}
	if _, err := op.call(ctx, http.MethodPut, "/v1/platform/tenants/globex", op.PlatformToken, `{"name": "globex"}`); err != nil { // for the audit
		return err
	}
	var tenant tenants.ID
	var base time.Time
	if err := op.db.QueryRow(ctx, `SELECT min(id), date_trunc('minute', now() - interval '1 hour') FROM tenant`).Scan(&tenant, &base); err != nil {
		return err
	}
	for day := range 6 {
		at := base.UTC().Truncate(24*time.Hour).AddDate(0, 0, -day)
		for _, table := range []string{"tick", "attempt", "tick_time"} {
			if _, err := op.db.Exec(ctx, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s_%s PARTITION OF %s FOR VALUES FROM ('%s') TO ('%s')`,
				table, at.Format("20060102"), table, at.Format(time.RFC3339), at.AddDate(0, 0, 1).Format(time.RFC3339))); err != nil {
				return err
			}
		}
	}
	if err := op.seedTicks(ctx, tenant, base); err != nil {
		return err
	}
	for _, step := range seedSteps {
		if _, err := op.db.Exec(ctx, step.sql, tenant, base); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		op.p.say("%s", step.what)
	}
	for _, table := range []string{"tick", "tick_time", "dead_letter", "use_series", "schedule", "schedule_state"} {
		if _, err := op.db.Exec(ctx, `VACUUM (ANALYZE) `+table); err != nil {
			return err
		}
	}
	if _, err := op.db.Exec(ctx, `CHECKPOINT`); err != nil {
		return err
	}
	if err := op.ids(ctx, "/v1/schedules?limit=1000&fields=summary", "id", &op.things); err != nil {
		return err
	}
	return op.ids(ctx, "/v1/ticks?limit=1000", "tick_id", &op.ticks)
}

// seedTicks stores ticks of each schedule, one a day, and their index by time.
func (op *operated) seedTicks(ctx context.Context, tenant tenants.ID, base time.Time) error {
	step := op.p.steps(operatorTicks, "days of ticks")
	for day := range operatorTicks {
		from := base.AddDate(0, 0, -day)
		if _, err := op.db.Exec(ctx, `
			INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, occurrence, cohort_id, last_at, fired_at, ended_at, shard, attempt, state, reason, cause, dst, started_at, error)
			SELECT s.tenant_id, s.id, at, 0, s.version, 0, $3::int - $4::int, s.cohort_id, at - interval '1 day', at + interval '30 milliseconds', at + interval '150 milliseconds', s.shard, 1,
				CASE WHEN n % $6 = 0 THEN 3 ELSE 2 END, 0, 0, 0, at + interval '40 milliseconds', CASE WHEN n % $6 = 0 THEN (500 + n / $6 % 4) || ' Service Unavailable' END
			FROM (SELECT *, substr(key, 6)::int AS n FROM schedule WHERE tenant_id = $1 AND workflow LIKE 'digest-%') s
			CROSS JOIN LATERAL (SELECT $2::timestamptz - (n % $5) * interval '1 minute' AS at) t
			ORDER BY s.id`, tenant, from, operatorTicks, day, seedMinutes, seedFailed); err != nil {
			return fmt.Errorf("ticks: %w", err)
		}
		if err := op.seedIndex(ctx, tenant, from); err != nil {
			return err
		}
		step()
	}
	return nil
}

// seedIndex stores the index by time of the ticks of a day.
func (op *operated) seedIndex(ctx context.Context, tenant tenants.ID, from time.Time) error {
	rows, _ := op.db.Query(ctx, `
		SELECT id, workflow, substr(key, 6)::int % $2
		FROM schedule
		WHERE tenant_id = $1 AND workflow LIKE 'digest-%'
		ORDER BY 3, 2, 1`, tenant, seedMinutes) // ForEachRow reports the error
	var b pgx.Batch
	var together []record.Tick
	flush := func() {
		if len(together) > 0 {
			record.QueueIndex(&b, tenant, together)
		}
		together = nil
	}
	var one record.Tick
	var minute int
	_, err := pgx.ForEachRow(rows, []any{&one.ScheduleID, &one.Workflow, &minute}, func() error {
		one.NominalAt = from.Add(-time.Duration(minute) * time.Minute)
		if n := len(together); n == seedIndexed || n > 0 && (together[n-1].Workflow != one.Workflow || !together[n-1].NominalAt.Equal(one.NominalAt)) {
			flush()
		}
		together = append(together, one)
		return nil
	})
	if err != nil {
		return err
	}
	flush()
	return op.db.SendBatch(ctx, &b).Close()
}

var seedSteps = []struct{ what, sql string }{
	{"dead letters stored", `
		INSERT INTO dead_letter (tenant_id, schedule_id, nominal_at, seq, workflow, key, failed_at, fired_at, last_at, cohort_id, version, missed_count, shard, attempt, cause, dst, error)
		SELECT t.tenant_id, t.schedule_id, t.nominal_at, 0, s.workflow, s.key, t.ended_at, t.fired_at, t.last_at, t.cohort_id, t.version, 0, t.shard, 1, 0, 0, t.error
		FROM tick t
		JOIN schedule s ON s.tenant_id = t.tenant_id AND s.id = t.schedule_id
		WHERE t.tenant_id = $1 AND t.state = 3 AND t.nominal_at <= $2`},
	{"schedules failing", `
		UPDATE schedule_state st
		SET failures = 1, failed = 3
		FROM dead_letter d
		WHERE d.tenant_id = $1 AND d.nominal_at <= $2 AND st.tenant_id = $1 AND st.schedule_id = d.schedule_id`},
	{"failing schedules listed", `
		INSERT INTO failing (tenant_id, schedule_id, workflow, key)
		SELECT DISTINCT tenant_id, schedule_id, workflow, key
		FROM dead_letter
		WHERE tenant_id = $1 AND nominal_at <= $2
		ON CONFLICT DO NOTHING`},
	{"90 days of use", `
		INSERT INTO daily_use (tenant_id, workflow, day, ticks, succeeded)
		SELECT $1, workflow, ($2::timestamptz AT TIME ZONE 'UTC')::date - n, 1000000, 1000000
		FROM generate_series(1, 90) n
		CROSS JOIN (SELECT '' UNION ALL SELECT 'digest-' || n FROM generate_series(0, 9) n) w (workflow)
		ON CONFLICT DO NOTHING`},
	{"a week of minutes and 90 days of hours in the series", `
		INSERT INTO use_series (tenant_id, step, workflow, endpoint, at, bucket, reason, due, fired, succeeded, failed, cancelled, skipped, retried, missed, first_due)
		SELECT $1, step, workflow, '', date_bin(step * interval '1 minute', $2, '2000-01-01Z') - n * step * interval '1 minute', bucket, 0, 300, 300, 298, 2, 0, 0, 0, 0, 0
		FROM (VALUES (1::smallint, 7 * 24 * 60), (60::smallint, 90 * 24)) s (step, steps)
		CROSS JOIN LATERAL generate_series(1, steps) n
		CROSS JOIN (VALUES (''), ('digest-0'), ('digest-1')) w (workflow)
		CROSS JOIN generate_series(0, 5) bucket
		ON CONFLICT DO NOTHING`},
}

// ids reads the ids of a list's items.
func (op *operated) ids(ctx context.Context, path, member string, into *[]string) error {
	text, err := op.call(ctx, http.MethodGet, path, op.Token, "")
	if err != nil {
		return err
	}
	var page struct{ Items []map[string]any }
	if err := json.Unmarshal(text, &page); err != nil {
		return err
	}
	for _, item := range page.Items {
		*into = append(*into, fmt.Sprint(item[member]))
	}
	if len(*into) == 0 {
		return fmt.Errorf("%s answers nothing", path)
	}
	return nil
}

// call sends a request and returns the body of its answer.
func (op *operated) call(ctx context.Context, method, path, token, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, op.URL+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := op.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return text, err
}
