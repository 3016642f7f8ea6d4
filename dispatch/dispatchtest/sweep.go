package dispatchtest

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/schedules/policy"
)

func (h *Carillon) Chunks() []int64 {
	h.T.Helper()
	rows, _ := h.Pool.Query(h.T.Context(), `SELECT id FROM chunk WHERE opened_at IS NULL ORDER BY id`) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		h.T.Fatal(err)
	}
	return ids
}

func (h *Carillon) Number(sql string, args ...any) (n int) {
	h.T.Helper()
	if err := h.Pool.QueryRow(h.T.Context(), sql, args...).Scan(&n); err != nil {
		h.T.Fatal(err)
	}
	return n
}

func (h *Carillon) Exec(sql string, args ...any) {
	h.T.Helper()
	if _, err := h.Pool.Exec(h.T.Context(), sql, args...); err != nil {
		h.T.Fatal(err)
	}
}

// SweptThrice sweeps a schedule of a workflow until there are at least three unopened chunks, and returns them.
func (h *Carillon) SweptThrice(workflow string) (chunks []int64) {
	h.T.Helper()
	p := EverySecond()
	p.Policy = &policy.Policy{Overlap: "allow_all"}
	h.Put(workflow, "k", p)
	shard := int16(h.Number(`SELECT shard FROM cohort`))
	for n := 1; n <= 3; n++ {
		Until(h.T, "another chunk is swept", func() bool {
			if _, err := h.Dispatch.SweepOnce(h.T.Context(), shard); err != nil {
				h.T.Fatal(err)
			}
			return len(h.Chunks()) >= n
		})
	}
	if err := h.Dispatch.Register(h.T.Context()); err != nil { // now: it sends no heartbeats, and a silent process opens nothing
		h.T.Fatal(err)
	}
	return h.Chunks()
}

// Herd adds n schedules to the cohort of one that exists, as Put would.
func (h *Carillon) Herd(workflow, like string, n int) {
	h.T.Helper()
	h.Exec(`
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
		INSERT INTO member (cohort_id, phase, schedule_id, tenant_id, from_at)
		SELECT made.cohort_id, 0, made.id, made.tenant_id, model.joined FROM made, model`, workflow, like, n)
}

func (h *Carillon) At(sql string) (at time.Time) {
	h.T.Helper()
	if err := h.Pool.QueryRow(h.T.Context(), sql).Scan(&at); err != nil {
		h.T.Fatal(err)
	}
	return at
}

// reporter is a test, or one check of a property.
type reporter interface {
	Context() context.Context
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// OpenChunks opens the chunks that were swept or handed out.
func (h *Carillon) OpenChunks(t reporter) {
	if err := h.Dispatch.Register(t.Context()); err != nil { // the process sends no heartbeats, and a silent process opens nothing
		t.Fatal(err)
	}
	for _, id := range h.Chunks() {
		if err := h.Dispatch.Open(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
}

// DueShards returns the shards that have due work.
func (h *Carillon) DueShards(t reporter) []int16 {
	rows, _ := h.Pool.Query(t.Context(), `
		SELECT shard FROM cohort WHERE due_at <= clock_timestamp()
		UNION SELECT shard FROM delayed WHERE due_at <= clock_timestamp()
		UNION SELECT shard FROM fair_turn WHERE due_at <= clock_timestamp()`) // CollectRows reports the error
	shards, err := pgx.CollectRows(rows, pgx.RowTo[int16])
	if err != nil {
		t.Fatal(err)
	}
	return shards
}

// SweepAll sweeps until nothing is due, and opens all chunks.
func (h *Carillon) SweepAll(t reporter) {
	for shards := h.DueShards(t); len(shards) > 0; shards = h.DueShards(t) {
		for _, shard := range shards {
			if _, err := h.Dispatch.SweepOnce(t.Context(), shard); err != nil {
				t.Fatal(err)
			}
		}
		h.OpenChunks(t)
	}
	if n := h.Number(`SELECT count(*) FROM cohort WHERE throttled_at IS NOT NULL`); n > 0 {
		t.Fatalf("%d cohorts wait for a turn", n)
	}
	if err := h.Dispatch.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
}
