package dispatch_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/policy"
)

func (h *house) chunks() []int64 {
	h.t.Helper()
	rows, _ := h.pool.Query(h.t.Context(), `SELECT id FROM chunk WHERE opened_at IS NULL ORDER BY id`) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		h.t.Fatal(err)
	}
	return ids
}

func (h *house) number(sql string, args ...any) (n int) {
	h.t.Helper()
	if err := h.pool.QueryRow(h.t.Context(), sql, args...).Scan(&n); err != nil {
		h.t.Fatal(err)
	}
	return n
}

func (h *house) exec(sql string, args ...any) {
	h.t.Helper()
	if _, err := h.pool.Exec(h.t.Context(), sql, args...); err != nil {
		h.t.Fatal(err)
	}
}

// sweptThrice has a schedule of a workflow come due in at least three chunks, which it returns unopened.
func (h *house) sweptThrice(workflow string) (chunks []int64) {
	h.t.Helper()
	p := everySecond()
	p.Policy = &policy.Policy{Overlap: "allow_all"}
	h.put(workflow, "k", p)
	shard := int16(h.number(`SELECT shard FROM cohort`))
	for n := 1; n <= 3; n++ {
		until(h.t, "another chunk is swept", func() bool {
			if _, err := h.dispatch.SweepOnce(h.t.Context(), shard); err != nil {
				h.t.Fatal(err)
			}
			return len(h.chunks()) >= n
		})
	}
	if err := h.dispatch.Register(h.t.Context()); err != nil { // now: nobody beats for it, and who is silent for long opens nothing
		h.t.Fatal(err)
	}
	return h.chunks()
}

func TestEarlierChunkOfAScheduleIsOpenedFirst(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ids := h.sweptThrice("ordered")
	if err := h.dispatch.Open(t.Context(), ids[len(ids)-1]); err != nil {
		t.Fatal(err)
	}
	if left := h.chunks(); len(left) > 0 {
		t.Errorf("chunks %v are unopened", left)
	}
	ticks := h.history("ordered", "k")
	if len(ticks) != len(ids) {
		t.Fatalf("%d ticks of %d chunks", len(ticks), len(ids))
	}
	for i, one := range ticks[1:] {
		if one.LastTimestamp == nil || !one.LastTimestamp.Equal(ticks[i].Timestamp) || *one.Occurrence != int64(i+2) {
			t.Errorf("tick %d: got %+v after %s", i+1, one, ticks[i].Timestamp)
		}
	}
}

// herd adds n schedules to the cohort of one that exists, as Put would.
func (h *house) herd(workflow, like string, n int) {
	h.t.Helper()
	h.exec(`
		WITH model AS (
			SELECT s.*, m.from_at AS joined
			FROM schedule s JOIN member m ON m.schedule_id = s.id
			WHERE s.workflow = $1 AND s.key = $2
		), made AS (
			INSERT INTO schedule (tenant_id, workflow, key, shard, status, spec, anchor_at, cohort_id, tzdata, created_at, updated_at, updated_by)
			SELECT tenant_id, workflow, 'herd ' || i, shard, status, spec, anchor_at, cohort_id, tzdata, created_at, updated_at, updated_by
			FROM model, generate_series(1, $3::int) AS i
			RETURNING tenant_id, id, cohort_id
		), states AS (
			INSERT INTO schedule_state (tenant_id, schedule_id) SELECT tenant_id, id FROM made
		)
		INSERT INTO member (cohort_id, spread, schedule_id, tenant_id, from_at)
		SELECT made.cohort_id, 0, made.id, made.tenant_id, model.joined FROM made, model`, workflow, like, n)
}

func TestHerdIsSweptInPartsAndEachMemberOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const size = 20_000
	spec := calendar.Spec{Cron: calendar.StringList{"* * * * *"}}
	h.put("herd", "first", schedules.Params{Spec: spec})
	h.herd("herd", "first", size-1)
	h.exec(`UPDATE member SET from_at = from_at - interval '1 minute'`)
	h.exec(`UPDATE cohort SET next_at = next_at - interval '1 minute', due_at = due_at - interval '1 minute'`)
	shard := int16(h.number(`SELECT shard FROM cohort`))
	more, err := h.dispatch.SweepOnce(t.Context(), shard)
	if err != nil || !more {
		t.Fatalf("one sweep: %v, %v", more, err)
	}
	swept := h.number(`SELECT sum(ticks) FROM chunk`)
	if swept == 0 || swept >= size {
		t.Fatalf("one sweep took %d of %d", swept, size)
	}
	// In mid-run one that was passed and one that was not change their timing, and one joins.
	passed := "herd 1"
	ahead := "herd 19999"
	weekly := calendar.Spec{Cron: calendar.StringList{"0 0 * * 0"}}
	h.put("herd", passed, schedules.Params{Spec: weekly})
	h.put("herd", ahead, schedules.Params{Spec: weekly})
	h.put("herd", "joined", schedules.Params{Spec: spec})
	h.start(h.dispatch)
	due := h.at(`SELECT min(nominal_at) FROM chunk`)
	until(t, "all of the herd have a tick", func() bool {
		return h.number(`SELECT count(*) FROM tick WHERE nominal_at = $1`, due) >= size
	})
	if n := h.number(`SELECT count(DISTINCT schedule_id) FROM tick WHERE nominal_at = $1`, due); n != size {
		t.Errorf("%d schedules have a tick, want %d", n, size)
	}
	if n := h.number(`SELECT count(*) FROM tick t JOIN schedule s ON s.id = t.schedule_id WHERE s.key = 'joined' AND t.nominal_at <= $1`, due); n != 0 {
		t.Errorf("one that joined in mid-run has %d ticks of that run", n)
	}
	if n := h.number(`SELECT count(*) FROM tick WHERE state = 1 AND nominal_at = $1`, due); n != size {
		t.Errorf("%d ticks were handed out, want %d", n, size)
	}
}

func (h *house) at(sql string) (at time.Time) {
	h.t.Helper()
	if err := h.pool.QueryRow(h.t.Context(), sql).Scan(&at); err != nil {
		h.t.Fatal(err)
	}
	return at
}

func TestJitterSpreadsTicksOverItsTime(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	const size = 60
	at := time.Now().UTC().Add(15 * time.Second).Truncate(time.Second)
	var lines strings.Builder
	for i := range size {
		fmt.Fprintf(&lines, `{"workflow": "spread", "key": "%d", "spec": {"at": [%q], "jitter": "8s"}}`+"\n", i, at.Format("2006-01-02T15:04:05"))
	}
	sum, err := h.inBulk.Upsert(t.Context(), h.tenant, "t", io.NopCloser(strings.NewReader(lines.String())), func([]bulk.Result) error { return nil })
	if err != nil || sum.Inserted != size {
		t.Fatalf("got %+v, %v", sum, err)
	}
	until(t, "all have ticked", func() bool { return h.number(`SELECT count(*) FROM tick`) == size })
	if n := h.number(`SELECT count(DISTINCT schedule_id) FROM tick WHERE nominal_at = $1 AND fired_at >= nominal_at`, at); n != size {
		t.Errorf("%d ticks are right, want %d", n, size)
	}
	// 60 of them, each somewhere in 8 s; a machine that does much else may hand out those of several seconds at once.
	if n := h.number(`SELECT count(DISTINCT floor(extract(epoch FROM fired_at - nominal_at))) FROM tick`); n < 3 {
		t.Errorf("ticks in %d seconds", n)
	}
	if n := h.number(`SELECT count(*) FROM tick WHERE cause <> 0`); n != 0 {
		t.Errorf("%d ticks were called late", n)
	}
}

func TestAHerdThatIsOverIsCompletedAtOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put("herd", "first", rarely("skip"))
	const size = 12_000
	h.herd("herd", "first", size-1)
	h.exec(`UPDATE cohort SET next_at = NULL, due_at = NULL`)
	if err := h.dispatch.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := h.number(`SELECT count(*) FROM schedule WHERE status = 'completed'`); n != size {
		t.Errorf("%d of %d are completed", n, size)
	}
}
