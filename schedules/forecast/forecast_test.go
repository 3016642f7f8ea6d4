package forecast_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

func TestTheForecastFollowsTheCohorts(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Quotas.TicksPerSecond = 1
	now := time.Now().UTC()
	minute := now.Add(2 * time.Hour).Truncate(time.Minute)
	var body bytes.Buffer
	body.WriteString(lines("e", 100, fmt.Sprintf(`{"at": ["%s"]}`, minute.Format("2006-01-02T15:04:05"))))
	body.WriteString(lines("f", 40, fmt.Sprintf(`{"at": ["%s"], "jitter": "2m"}`, minute.Add(10*time.Minute).Format("2006-01-02T15:04:05"))))
	e.Want(200, "", "POST", "/v1/schedules/bulk?results=errors", body.String(), "Content-Type", "application/x-ndjson")
	e.Pause("e0", schedules.PauseParams{})
	var f forecast.Forecast
	if err := json.Unmarshal([]byte(e.Want(200, "", "GET", "/v1/admin/forecast?hours=3", "").Body), &f); err != nil {
		t.Fatal(err)
	}
	want := []forecast.ForecastMinute{
		{At: minute, Ticks: 99, Backlog: 39},
		{At: minute.Add(10 * time.Minute), Ticks: 20}, {At: minute.Add(11 * time.Minute), Ticks: 20},
	}
	if f.Ticks != 139 || f.Truncated || len(f.Minutes) != 3 || f.Peak == nil || *f.Peak != want[0] || len(f.Warnings) != 1 {
		t.Fatalf("got %+v", f)
	}
	for i := range want {
		if f.Minutes[i] != want[i] {
			t.Errorf("minute %d: got %+v, want %+v", i, f.Minutes[i], want[i])
		}
	}
	e.Want(200, "", "GET", "/v1/admin/forecast", "")
	e.Want(422, "invalid", "GET", "/v1/admin/forecast?hours=0", "")
	e.Want(422, "invalid", "GET", "/v1/admin/forecast?hours=169", "")
	e.Want(400, "unknown_parameter", "GET", "/v1/admin/forecast?days=1", "")
}

func TestTheForecastOfManyOddTimingsIsASample(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Put("model", schedulestest.ByCron(schedulestest.EachDay("UTC")))
	// 4,500 more cohorts of one timing each: only the hash tells them apart.
	h.Exec(`
		WITH names AS (
			INSERT INTO cohort_timing (shard, tenant_id, workflow, hash, timing, missed)
			SELECT shard, tenant_id, workflow, decode(lpad(to_hex(i), 32, '0'), 'hex'), timing, missed
			FROM cohort_timing, generate_series(1, 4500) AS i
			RETURNING *
		)
		INSERT INTO cohort (id, shard, tenant_id, workflow, hash, missed, next_at, due_at)
		SELECT n.id, n.shard, n.tenant_id, n.workflow, n.hash, n.missed, c.next_at, c.due_at
		FROM names n, cohort c`)
	h.Exec(`INSERT INTO tally_delta (tenant_id, cohort_id, n) SELECT tenant_id, id, CASE WHEN id % 100 = 7 THEN 50 ELSE 1 END FROM cohort WHERE hash <> (SELECT hash FROM cohort ORDER BY id LIMIT 1)`)
	want := schedulestest.One[int](h, `SELECT sum(n) FROM tally_delta WHERE cohort_id > 0`)
	f, err := h.Schedules.Forecasts.Forecast(t.Context(), h.Acme, "", 48)
	if err != nil {
		t.Fatal(err)
	}
	if !f.Truncated || f.Ticks != int64(2*want) || f.ProjectedTicksPerDay != int64(want) {
		t.Errorf("got %d ticks, %d a day, truncated %v; want %d", f.Ticks, f.ProjectedTicksPerDay, f.Truncated, want)
	}
}
