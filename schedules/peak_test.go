package schedules_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
)

// lines are bulk lines of n schedules of a spec.
func lines(prefix string, n int, spec string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"workflow": "w", "key": "%s%d", "spec": %s}`+"\n", prefix, i, spec)
	}
	return b.String()
}

func (h *home) bulkAll(body string) (bulk.Summary, []bulk.Result) {
	h.t.Helper()
	var all []bulk.Result
	sum, err := h.inBulk.Upsert(h.t.Context(), h.acme, "ann", io.NopCloser(strings.NewReader(body)), func(r []bulk.Result) error {
		all = append(all, r...)
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return sum, all
}

func hourly(minute int) string { return fmt.Sprintf(`{"cron": "%d * * * *"}`, minute) }

func TestSchedulesAreCountedWhateverChangesThem(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	stored := func() int {
		t.Helper()
		n, err := h.schedules.Forecasts.Stored(t.Context(), h.acme)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	check := func(all, members int) {
		t.Helper()
		if n := stored(); n != all {
			t.Errorf("%d schedules are counted, want %d", n, all)
		}
		if err := forecast.FoldTallies(t.Context(), h.pool); err != nil {
			t.Fatal(err)
		}
		if n := stored(); n != all {
			t.Errorf("%d schedules are counted once folded, want %d", n, all)
		}
		if n := one[int](h, `SELECT count(*) FROM tally_delta`); n != 0 {
			t.Errorf("%d deltas are left", n)
		}
		if n := one[int](h, `SELECT sum(n) FROM tally WHERE cohort_id > 0`); n != members {
			t.Errorf("%d members are counted, want %d", n, members)
		}
		if n := one[int](h, `SELECT count(*) FROM tally t JOIN cohort c ON c.shard = t.shard AND c.id = t.cohort_id
			WHERE t.n <> (SELECT count(*) FROM member m WHERE m.cohort_id = c.id)`); n != 0 {
			t.Errorf("%d cohorts are counted wrongly", n)
		}
	}
	h.bulkAll(lines("a", 30, hourly(1)))
	h.put("single", spec(cron("0 8 * * *")))
	check(31, 31)
	h.bulkAll(lines("a", 10, hourly(2)))
	h.pause("a20", schedules.PauseParams{})
	h.pause("a21", schedules.PauseParams{Until: new(time.Now().Add(time.Hour).Truncate(time.Second))})
	check(31, 30)
	h.delete("a0")
	h.delete("a20")
	h.resume("a21", schedules.ResumeParams{})
	check(29, 29)
}

func TestTheQuotaOfSchedulesIsExactAmongManyAtOnce(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.quotas.Schedules = 20
	var writers sync.WaitGroup
	var mu sync.Mutex
	made, refused := 0, 0
	for i := range 4 {
		writers.Go(func() {
			sum, results := h.bulkAll(lines(fmt.Sprint("b", i, "-"), 8, hourly(3)))
			mu.Lock()
			defer mu.Unlock()
			made += sum.Inserted
			for _, r := range results {
				if r.Error != nil && r.Error.Status == 403 && r.Error.Code == "quota_exceeded" {
					refused++
				}
			}
		})
	}
	writers.Wait()
	if made != 20 || refused != 12 {
		t.Errorf("%d were made and %d refused, want 20 and 12", made, refused)
	}
	h.quotas.Schedules = 21
	h.put("last", spec(cron("0 8 * * *")))
	h.put("last", spec(cron("0 9 * * *"))) // a change makes none
	stored := one[string](h, `SELECT left(key, -1) FROM schedule WHERE key LIKE 'b%-0'`)
	if sum, _ := h.bulkAll(lines(stored, 1, hourly(4))); sum.Updated != 1 {
		t.Errorf("a change was refused: %+v", sum)
	}
}

func TestProjectedTicksAreHeldToTheirQuota(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.quotas.ProjectedTicksPerDay = 5 * 24
	sum, results := h.bulkAll(lines("c", 7, hourly(5)))
	if sum.Inserted != 5 || sum.Errors != 2 || results[6].Error.Code != "quota_exceeded" {
		t.Errorf("got %+v, %+v", sum, results[6].Error)
	}
	_, _, err := h.schedules.Put(t.Context(), policy.Name{Tenant: h.acme, Workflow: "w", Key: "c0"}, spec(cron("*/30 * * * *")), "ann", version.Precondition{})
	f := faulty(t, err, 403, "quota_exceeded")
	if f.Extra["quota"] != "projected_ticks_per_day" || f.Extra["limit"] != 120 || f.Extra["used"] != 120 {
		t.Errorf("got %v", f.Extra)
	}
	h.put("c0", spec(cron("0 8 * * *"))) // fires less than before
}

func TestCrowdedMinutesAreWarnedOf(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.quotas.TicksPerSecond = 2
	at := time.Now().UTC().Add(3 * time.Hour)
	crowded := fmt.Sprintf(`{"cron": "%d %d * * *"}`, at.Minute(), at.Hour())
	a := e.want(200, "", "POST", "/v1/schedules/bulk?results=errors", lines("d", 200, crowded), "Content-Type", "application/x-ndjson")
	var end bulk.End
	if err := json.Unmarshal([]byte(a.body), &end); err != nil {
		t.Fatal(err)
	}
	if len(end.Warnings) != 1 || end.Warnings[0].Code != "peak_minute" || !strings.Contains(end.Warnings[0].Detail, "200 ticks") ||
		!strings.Contains(end.Warnings[0].Detail, "1m40s") || !strings.Contains(end.Warnings[0].Detail, "jitter of 2m") {
		t.Errorf("got %+v", end.Warnings)
	}
	body := fmt.Sprintf(`{"spec": %s}`, crowded)
	for _, one := range []answer{
		e.want(200, "", "PUT", "/v1/workflows/w/schedules/d1", body),
		e.want(201, "", "PUT", "/v1/workflows/w/schedules/another", body),
		e.want(200, "", "PATCH", "/v1/workflows/w/schedules/d1", `{"note": "x"}`),
		e.want(200, "", "POST", "/v1/schedules/preview", body),
	} {
		if !strings.Contains(one.body, `"peak_minute"`) {
			t.Errorf("no warning in %s", one.body)
		}
	}
	if other := e.want(201, "", "PUT", "/v1/workflows/w/schedules/alone", fmt.Sprintf(`{"spec": {"cron": "%d %d * * *"}}`, at.Minute(), (at.Hour()+1)%24)); strings.Contains(other.body, `"peak_minute"`) {
		t.Errorf("a warning in %s", other.body)
	}
}

func TestTheForecastFollowsTheCohorts(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.quotas.TicksPerSecond = 1
	now := time.Now().UTC()
	minute := now.Add(2 * time.Hour).Truncate(time.Minute)
	var body bytes.Buffer
	body.WriteString(lines("e", 100, fmt.Sprintf(`{"at": ["%s"]}`, minute.Format("2006-01-02T15:04:05"))))
	body.WriteString(lines("f", 40, fmt.Sprintf(`{"at": ["%s"], "jitter": "2m"}`, minute.Add(10*time.Minute).Format("2006-01-02T15:04:05"))))
	e.want(200, "", "POST", "/v1/schedules/bulk?results=errors", body.String(), "Content-Type", "application/x-ndjson")
	e.pause("e0", schedules.PauseParams{})
	var f forecast.Forecast
	if err := json.Unmarshal([]byte(e.want(200, "", "GET", "/v1/admin/forecast?hours=3", "").body), &f); err != nil {
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
	e.want(200, "", "GET", "/v1/admin/forecast", "")
	e.want(422, "invalid", "GET", "/v1/admin/forecast?hours=0", "")
	e.want(422, "invalid", "GET", "/v1/admin/forecast?hours=169", "")
	e.want(400, "unknown_parameter", "GET", "/v1/admin/forecast?days=1", "")
}

func TestTheForecastOfManyOddTimingsIsASample(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("model", spec(calendar.Spec{Cron: calendar.StringList{"0 8 * * *"}}))
	// 4,500 more cohorts of one timing each: only the hash tells them apart.
	h.exec(`
		WITH names AS (
			INSERT INTO cohort_timing (shard, tenant_id, workflow, hash, timing, missed)
			SELECT shard, tenant_id, workflow, decode(lpad(to_hex(i), 32, '0'), 'hex'), timing, missed
			FROM cohort_timing, generate_series(1, 4500) AS i
			RETURNING *
		)
		INSERT INTO cohort (id, shard, tenant_id, workflow, hash, missed, next_at, due_at)
		SELECT n.id, n.shard, n.tenant_id, n.workflow, n.hash, n.missed, c.next_at, c.due_at
		FROM names n, cohort c`)
	h.exec(`INSERT INTO tally_delta (tenant_id, cohort_id, n) SELECT tenant_id, id, CASE WHEN id % 100 = 7 THEN 50 ELSE 1 END FROM cohort WHERE hash <> (SELECT hash FROM cohort ORDER BY id LIMIT 1)`)
	want := one[int](h, `SELECT sum(n) FROM tally_delta WHERE cohort_id > 0`)
	f, err := h.schedules.Forecasts.Forecast(t.Context(), h.acme, 48)
	if err != nil {
		t.Fatal(err)
	}
	if !f.Truncated || f.Ticks != int64(2*want) || f.ProjectedTicksPerDay != int64(want) {
		t.Errorf("got %d ticks, %d a day, truncated %v; want %d", f.Ticks, f.ProjectedTicksPerDay, f.Truncated, want)
	}
}
