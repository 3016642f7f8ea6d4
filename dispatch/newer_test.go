package dispatch_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
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
			h.config.Timings = cohorts.NewTimings()
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
			h.config.Timings = cohorts.NewTimings() // the neighbour has the same timing, and that can be read
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

func (h *house) newerDefaults(workflow string) {
	h.t.Helper()
	h.exec(`UPDATE workflow SET defaults = '{"policy": {"overlap": "newest"}}' WHERE tenant_id = $1 AND name = $2`, h.tenant, workflow)
}

// wantNewer checks that a request was refused because a newer program wrote what it needs.
func (h *house) wantNewer(what string, err error) {
	h.t.Helper()
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Status != 503 || f.Code != "newer_version" || f.RetryAfter == 0 {
		h.t.Errorf("%s: got %v, want 503 newer_version", what, err)
	}
}

// putOff checks that an operation waits for a program that can read the defaults, and goes on once it can.
func (h *house) putOff(id string) {
	h.t.Helper()
	until(h.t, "the operation is put off", func() bool {
		return h.number(`SELECT count(*) FROM operation WHERE due_at > clock_timestamp() + interval '20 s' AND failures = 0 AND ended_at IS NULL`) == 1
	})
	h.exec(`UPDATE workflow SET defaults = '{}'`)
	h.exec(`UPDATE operation SET due_at = clock_timestamp(), look_at = clock_timestamp()`)
	until(h.t, "the operation goes on", func() bool { return h.operation(id).Done > 0 })
}

// A program that cannot read a workflow's defaults ends no tick, and refuses nothing for good.
func TestDefaultsThatANewerProgramWrote(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]func(h *house){
		"a failed attempt": func(h *house) {
			h.trigger()
			one := h.lease("overlap", 1)[0]
			h.newerDefaults("overlap")
			r, err := h.dispatch.Leases.Finish(h.t.Context(), h.tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "fail", Error: "no paper"}})
			if err != nil || r[0] != lease.Done {
				h.t.Errorf("got %v, %v", r, err)
			}
			h.wantStates("running")
			if n := h.number(`SELECT count(*) FROM held WHERE why = 'retry' AND due_at > clock_timestamp() + interval '20 s'`); n != 1 {
				h.t.Error("the next attempt is not put off")
			}
		},
		"an attempt that failed for good": func(h *house) {
			h.trigger()
			one := h.lease("overlap", 1)[0]
			h.newerDefaults("overlap")
			h.fail(one)
			h.wantStates("failed")
		},
		"the end of a tick that another waits for": func(h *house) {
			h.trigger()
			h.trigger()
			one := h.lease("overlap", 1)[0]
			h.newerDefaults("overlap")
			h.finish(one)
			h.wantStates("succeeded", "running")
			h.exec(`UPDATE workflow SET defaults = '{}'`)
			h.exec(`UPDATE chunk SET swept_at = swept_at - interval '1 minute' WHERE opened_at IS NULL`)
			if again := h.lease("overlap", 1); len(again) != 1 {
				h.t.Errorf("got %v", again)
			}
		},
		"a lease": func(h *house) {
			h.put("readable", "k", rarely("allow_all"))
			h.trigger()
			if _, _, err := h.dispatch.Control.Trigger(h.t.Context(), h.tenant, "readable", "k", control.TriggerParams{}, once.Request{}); err != nil {
				h.t.Fatal(err)
			}
			until(h.t, "both ticks are ready", func() bool { return h.number(`SELECT COALESCE(sum(ticks), 0) FROM ready`) == 2 })
			h.newerDefaults("overlap")
			body, err := h.dispatch.Leases.Lease(h.t.Context(), h.tenant, lease.LeaseParams{Workflows: []string{"overlap", "readable"}, Max: new(10)}, nil)
			if err != nil || strings.Count(string(body), `"readable"`) != 1 || strings.Contains(string(body), `"overlap"`) {
				h.t.Errorf("got %s, %v", body, err)
			}
			_, err = h.dispatch.Leases.Lease(h.t.Context(), h.tenant, lease.LeaseParams{Workflows: []string{"overlap"}}, nil)
			h.wantNewer("a lease of that workflow", err)
			if n := h.number(`SELECT COALESCE(sum(ticks), 0) FROM ready`); n != 1 {
				h.t.Errorf("%d ticks are ready, want 1", n)
			}
		},
		"requests": func(h *house) {
			h.trigger()
			one := h.lease("overlap", 1)[0]
			h.fail(one)
			h.newerDefaults("overlap")
			c := h.open(h.dispatch).operator()
			c.refused(503, "newer_version", "", "POST", strings.Replace(trigger, "/w/", "/overlap/", 1), "")
			c.refused(503, "newer_version", "", "POST", "/v1/ticks/"+one.TickID+"/replay", "")
			_, err := h.schedules.Get(h.t.Context(), h.tenant, "overlap", "k")
			h.wantNewer("a schedule", err)
			_, _, err = h.schedules.Put(h.t.Context(), policy.Name{Tenant: h.tenant, Workflow: "overlap", Key: "other"}, rarely("skip"), "tester", version.Precondition{})
			h.wantNewer("a put", err)
			h.wantStates("failed")
		},
		"a cancellation": func(h *house) {
			h.trigger()
			until(h.t, "the tick is ready", func() bool { return h.number(`SELECT COALESCE(sum(ticks), 0) FROM ready`) == 1 })
			h.newerDefaults("overlap")
			if _, err := h.dispatch.Control.Cancel(h.t.Context(), h.tenant, h.history("overlap", "k")[0].TickID); err != nil {
				h.t.Error(err)
			}
			h.wantStates("running requested")
		},
		"retention": func(h *house) {
			h.endTwo()
			h.exec(`UPDATE workflow SET defaults = '{"delivery": {"retention": {"succeeded": "2h", "failed": "2h", "newest": "2h"}}, "policy": {"overlap": "newest"}}'`)
			h.exec(`UPDATE tick SET ended_at = ended_at - interval '3 hours'`)
			h.retain(time.Now())
			h.wantStates("failed", "succeeded")
			h.exec(`UPDATE workflow SET defaults = '{"delivery": {"retention": {"succeeded": "2h", "failed": "2h"}}}'`)
			h.retain(time.Now())
			if n := h.number(`SELECT count(*) FROM tick`); n != 0 {
				h.t.Errorf("%d ticks are left", n)
			}
		},
		"a backfill": func(h *house) {
			h.put("w", "k", hourly("skip"))
			h.newerDefaults("w")
			from, to := hours(3)
			h.putOff(h.backfill(from, to, "buffer_all").ID)
		},
		"a replay of all dead letters": func(h *house) {
			h.trigger()
			h.fail(h.lease("overlap", 1)[0])
			h.newerDefaults("overlap")
			op, _, err := h.dispatch.Control.ReplayDead(h.t.Context(), h.tenant, control.DeadReplayParams{}, "ann", once.Request{})
			if err != nil {
				h.t.Fatal(err)
			}
			h.putOff(op.ID)
			h.wantStates("running")
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			test(overlapping(t, "buffer_all"))
		})
	}
}
