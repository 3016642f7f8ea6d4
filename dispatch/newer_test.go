package dispatch_test

import (
	"errors"
	"testing"

	"github.com/riverqueue/river"

	"github.com/carillonhq/carillon/schedules"
)

// What a newer program wrote is put off by a program that cannot read it, and fires once it can be read.
func TestACohortThatANewerProgramWroteIsPutOff(t *testing.T) {
	t.Parallel()
	for what, sql := range map[string][2]string{
		"version": {`UPDATE cohort_timing SET timing = replace(timing, '"v":1', '"v":2') WHERE tenant_id = $1`, `UPDATE cohort_timing SET timing = replace(timing, '"v":2', '"v":1') WHERE tenant_id = $1`},
		"member":  {`UPDATE cohort_timing SET timing = replace(timing, '"v":1', '"v":1,"new":[1]') WHERE tenant_id = $1`, `UPDATE cohort_timing SET timing = replace(timing, '"v":1,"new":[1]', '"v":1') WHERE tenant_id = $1`},
		"policy": {
			`WITH n AS (UPDATE cohort_timing SET missed = 'newest' WHERE tenant_id = $1) UPDATE cohort SET missed = 'newest' WHERE tenant_id = $1`,
			`WITH n AS (UPDATE cohort_timing SET missed = 'last' WHERE tenant_id = $1) UPDATE cohort SET missed = 'last' WHERE tenant_id = $1`,
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.put("w", "k", daily(0))
			h.backdate(h.tenant)
			shard := int16(h.number(`SELECT shard FROM cohort`))
			swept := h.neighbour(shard)
			h.exec(sql[0], h.tenant)
			h.config.Timings = schedules.NewTimings()
			h.dispatch = h.process()
			h.sweepOnce(shard)
			if n := swept(); n != 1 {
				t.Errorf("%d ticks of the neighbour are swept, want 1", n)
			}
			if n := h.number(`SELECT count(*) FROM schedule s JOIN member m ON m.schedule_id = s.id JOIN cohort c ON c.id = m.cohort_id
				WHERE s.tenant_id = $1 AND s.status = 'active' AND c.due_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 minute' AND c.next_at < clock_timestamp()`, h.tenant); n != 1 {
				t.Error("the cohort is not put off as it is")
			}
			cohort := int64(h.number(`SELECT id FROM cohort WHERE tenant_id = $1`, h.tenant))
			h.config.Timings = schedules.NewTimings() // the neighbour has the same timing, and that can be read
			if newer, err := h.process().TimedByNewer(t.Context(), h.tenant, shard, cohort); err != nil || newer == (what == "policy") {
				t.Errorf("ticks that are out are ended or held: got newer %t, %v", newer, err)
			}
			h.exec(sql[1], h.tenant)
			h.exec(`UPDATE cohort SET due_at = next_at WHERE tenant_id = $1`, h.tenant)
			h.sweepOnce(shard)
			if n := h.number(`SELECT COALESCE(sum(ticks), 0) FROM chunk WHERE tenant_id = $1`, h.tenant); n != 1 {
				t.Errorf("%d ticks are swept once it can be read, want 1", n)
			}
		})
	}
}

// leaves opens the chunks of a sweep of three tenants. The second tenant's chunk is left to a later try, until it can be opened.
func (h *house) leaves(hinder, mend string) {
	h.t.Helper()
	chunks, owners := h.sweptRun(3)
	h.exec(hinder, owners[1])
	if err := h.dispatch.OpenRun(h.t.Context(), chunks[0], chunks[2]); err == nil {
		h.t.Error("the run says that all of it is open")
	}
	if left := h.chunks(); len(left) != 1 || left[0] != chunks[1] {
		h.t.Errorf("chunks %v are unopened, want %d", left, chunks[1])
	}
	err := h.dispatch.WorkLate(h.t.Context(), chunks[1])
	if _, snoozed := errors.AsType[*river.JobSnoozeError](err); !snoozed {
		h.t.Errorf("the job ends with %v, want that it is tried later", err)
	}
	h.exec(`UPDATE chunk SET swept_at = swept_at - interval '1 minute'`)
	h.exec(`DELETE FROM river_job`)
	for range 2 {
		if err := h.dispatch.OpenStale(h.t.Context()); err != nil {
			h.t.Errorf("a look for stale chunks fails: %v", err)
		}
	}
	if n := h.number(`SELECT count(*) FROM tick WHERE tenant_id = $1`, owners[1]); n != 0 {
		h.t.Errorf("%d ticks of the chunk that is left are recorded", n)
	}
	h.exec(mend, owners[1])
	if err := h.dispatch.Open(h.t.Context(), chunks[1]); err != nil {
		h.t.Fatal(err)
	}
	if n := h.number(`SELECT count(*) FROM tick WHERE fired_at >= nominal_at AND state = 1`); n != 3 {
		h.t.Errorf("%d ticks are handed out, want 3", n)
	}
}

func TestAChunkWhoseDefaultsANewerProgramWroteIsLeft(t *testing.T) {
	t.Parallel()
	newHouse(t).leaves(`UPDATE workflow SET defaults = '{"policy": {"overlap": "newest"}}' WHERE tenant_id = $1`, `UPDATE workflow SET defaults = '{}' WHERE tenant_id = $1`)
}

// The clock of a database goes back between the sweep of a chunk and its opening.
func TestATickIsNotHandedOutBeforeItsTime(t *testing.T) {
	t.Parallel()
	newHouse(t).leaves(`UPDATE chunk SET nominal_at = nominal_at + interval '10 days' WHERE tenant_id = $1`, `UPDATE chunk SET nominal_at = nominal_at - interval '10 days' WHERE tenant_id = $1`)
}
