package dispatch_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/riverqueue/river"
)

// A program puts off a cohort that a newer program wrote and that it cannot read. The cohort fires once it can be read.
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
			h := dispatchtest.New(t)
			h.Put("w", "k", dispatchtest.Daily(0))
			h.Backdate(h.Tenant)
			shard := int16(h.Number(`SELECT shard FROM cohort`))
			swept := h.Neighbour(shard)
			h.Exec(sql[0], h.Tenant)
			h.Config.Timings = cohorts.NewTimings()
			h.Dispatch = h.Process()
			h.SweepOnce(shard)
			if n := swept(); n != 1 {
				t.Errorf("%d ticks of the neighbour are swept, want 1", n)
			}
			if n := h.Number(`SELECT count(*) FROM schedule s JOIN member m ON m.schedule_id = s.id JOIN cohort c ON c.id = m.cohort_id
				WHERE s.tenant_id = $1 AND s.status = 'active' AND c.due_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 minute' AND c.next_at < clock_timestamp()`, h.Tenant); n != 1 {
				t.Error("the cohort is not put off as it is")
			}
			cohort := int64(h.Number(`SELECT id FROM cohort WHERE tenant_id = $1`, h.Tenant))
			h.Config.Timings = cohorts.NewTimings() // the neighbour has the same timing, and that can be read
			if newer, err := h.Process().TimedByNewer(t.Context(), h.Tenant, shard, cohort); err != nil || newer == (what == "policy") {
				t.Errorf("ticks that are out are ended or held: got newer %t, %v", newer, err)
			}
			h.Exec(sql[1], h.Tenant)
			h.Exec(`UPDATE cohort SET due_at = next_at WHERE tenant_id = $1`, h.Tenant)
			h.SweepOnce(shard)
			if n := h.Number(`SELECT COALESCE(sum(ticks), 0) FROM chunk WHERE tenant_id = $1`, h.Tenant); n != 1 {
				t.Errorf("%d ticks are swept once it can be read, want 1", n)
			}
		})
	}
}

// leaves checks that the second of three swept chunks is left to a later try after the SQL hinder, and is opened after the SQL mend.
func leaves(h *dispatchtest.Carillon, hinder, mend string) {
	h.T.Helper()
	chunks, owners := h.SweptRun(3)
	h.Exec(hinder, owners[1])
	if err := h.Dispatch.OpenRun(h.T.Context(), chunks[0], chunks[2]); err == nil {
		h.T.Error("the run says that all of it is open")
	}
	if left := h.Chunks(); len(left) != 1 || left[0] != chunks[1] {
		h.T.Errorf("chunks %v are unopened, want %d", left, chunks[1])
	}
	err := h.Dispatch.WorkLate(h.T.Context(), chunks[1])
	if _, snoozed := errors.AsType[*river.JobSnoozeError](err); !snoozed {
		h.T.Errorf("the job ends with %v, want that it is tried later", err)
	}
	h.Exec(`UPDATE chunk SET swept_at = swept_at - interval '1 minute'`)
	h.Exec(`DELETE FROM river_job`)
	for range 2 {
		if err := h.Dispatch.OpenStale(h.T.Context()); err != nil {
			h.T.Errorf("a look for stale chunks fails: %v", err)
		}
	}
	if n := h.Number(`SELECT count(*) FROM tick WHERE tenant_id = $1`, owners[1]); n != 0 {
		h.T.Errorf("%d ticks of the chunk that is left are recorded", n)
	}
	h.Exec(mend, owners[1])
	if err := h.Dispatch.Open(h.T.Context(), chunks[1]); err != nil {
		h.T.Fatal(err)
	}
	if n := h.Number(`SELECT count(*) FROM tick WHERE fired_at >= nominal_at AND state = 1`); n != 3 {
		h.T.Errorf("%d ticks are handed out, want 3", n)
	}
}

func TestAChunkWhoseDefaultsANewerProgramWroteIsLeft(t *testing.T) {
	t.Parallel()
	leaves(dispatchtest.New(t), `UPDATE workflow SET defaults = '{"policy": {"overlap": "newest"}}' WHERE tenant_id = $1`, `UPDATE workflow SET defaults = '{}' WHERE tenant_id = $1`)
}

// The clock of a database goes back between the sweep of a chunk and its opening.
func TestATickIsNotHandedOutBeforeItsTime(t *testing.T) {
	t.Parallel()
	leaves(dispatchtest.New(t), `UPDATE chunk SET nominal_at = nominal_at + interval '10 days' WHERE tenant_id = $1`, `UPDATE chunk SET nominal_at = nominal_at - interval '10 days' WHERE tenant_id = $1`)
}

func newerDefaults(h *dispatchtest.Carillon, workflow string) {
	h.T.Helper()
	h.Exec(`UPDATE workflow SET defaults = '{"policy": {"overlap": "newest"}}' WHERE tenant_id = $1 AND name = $2`, h.Tenant, workflow)
}

// wantNewer checks that a request was refused because a newer program wrote what it needs.
func wantNewer(h *dispatchtest.Carillon, what string, err error) {
	h.T.Helper()
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Status != 503 || f.Code != "newer_version" || f.RetryAfter == 0 {
		h.T.Errorf("%s: got %v, want 503 newer_version", what, err)
	}
}

// putOff checks that an operation waits for a program that can read the defaults, and goes on once it can.
func putOff(h *dispatchtest.Carillon, id string) {
	h.T.Helper()
	dispatchtest.Until(h.T, "the operation is put off", func() bool {
		return h.Number(`SELECT count(*) FROM operation WHERE due_at > clock_timestamp() + interval '20 s' AND failures = 0 AND ended_at IS NULL`) == 1
	})
	h.Exec(`UPDATE workflow SET defaults = '{}'`)
	h.Exec(`UPDATE operation SET due_at = clock_timestamp(), look_at = clock_timestamp()`)
	dispatchtest.Until(h.T, "the operation goes on", func() bool { return h.Operation(id).Done > 0 })
}

// A program that cannot read a workflow's defaults ends no tick, and refuses nothing for good.
func TestDefaultsThatANewerProgramWrote(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]func(h *dispatchtest.Carillon){
		"a failed attempt": func(h *dispatchtest.Carillon) {
			h.Trigger()
			one := h.Lease("overlap", 1)[0]
			newerDefaults(h, "overlap")
			r, err := h.Dispatch.Leases.Finish(h.T.Context(), h.Tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "fail", Error: "no paper"}})
			if err != nil || r[0] != lease.Done {
				h.T.Errorf("got %v, %v", r, err)
			}
			h.WantStates("running")
			if n := h.Number(`SELECT count(*) FROM delayed WHERE why = 'retry' AND due_at > clock_timestamp() + interval '20 s'`); n != 1 {
				h.T.Error("the next attempt is not put off")
			}
		},
		"an attempt that failed for good": func(h *dispatchtest.Carillon) {
			h.Trigger()
			one := h.Lease("overlap", 1)[0]
			newerDefaults(h, "overlap")
			h.Fail(one)
			h.WantStates("failed")
		},
		"the end of a tick that another waits for": func(h *dispatchtest.Carillon) {
			h.Trigger()
			h.Trigger()
			one := h.Lease("overlap", 1)[0]
			newerDefaults(h, "overlap")
			h.Finish(one)
			h.WantStates("succeeded", "running")
			h.Exec(`UPDATE workflow SET defaults = '{}'`)
			h.Exec(`UPDATE chunk SET swept_at = swept_at - interval '1 minute' WHERE opened_at IS NULL`)
			dispatchtest.Until(h.T, "the other is leased", func() bool { return len(h.Lease("overlap", 1)) == 1 })
		},
		"a lease": func(h *dispatchtest.Carillon) {
			h.Put("readable", "k", dispatchtest.Rarely("allow_all"))
			h.Trigger()
			if _, _, err := h.Dispatch.Control.Trigger(h.T.Context(), h.Tenant, "readable", "k", control.TriggerParams{}, once.Request{}); err != nil {
				h.T.Fatal(err)
			}
			dispatchtest.Until(h.T, "both ticks are ready", func() bool { return h.Number(`SELECT COALESCE(sum(ticks), 0) FROM ready`) == 2 })
			newerDefaults(h, "overlap")
			body, err := h.Dispatch.Leases.Lease(h.T.Context(), h.Tenant, lease.LeaseParams{Workflows: []string{"overlap", "readable"}, Max: new(10)}, nil)
			if err != nil || strings.Count(string(body), `"readable"`) != 1 || strings.Contains(string(body), `"overlap"`) {
				h.T.Errorf("got %s, %v", body, err)
			}
			_, err = h.Dispatch.Leases.Lease(h.T.Context(), h.Tenant, lease.LeaseParams{Workflows: []string{"overlap"}}, nil)
			wantNewer(h, "a lease of that workflow", err)
			if n := h.Number(`SELECT COALESCE(sum(ticks), 0) FROM ready`); n != 1 {
				h.T.Errorf("%d ticks are ready, want 1", n)
			}
		},
		"requests": func(h *dispatchtest.Carillon) {
			h.Trigger()
			one := h.Lease("overlap", 1)[0]
			h.Fail(one)
			newerDefaults(h, "overlap")
			c := h.Open(h.Dispatch).Operator()
			c.Refused(503, "newer_version", "", "POST", strings.Replace(dispatchtest.Trigger, "/w/", "/overlap/", 1), "")
			c.Refused(503, "newer_version", "", "POST", "/v1/ticks/"+one.TickID+"/replay", "")
			_, err := h.Schedules.Get(h.T.Context(), h.Tenant, "overlap", "k")
			wantNewer(h, "a schedule", err)
			_, _, err = h.Schedules.Put(h.T.Context(), policy.Name{Tenant: h.Tenant, Workflow: "overlap", Key: "other"}, dispatchtest.Rarely("skip"), "tester", version.Precondition{})
			wantNewer(h, "a put", err)
			h.WantStates("failed")
		},
		"a cancellation": func(h *dispatchtest.Carillon) {
			h.Trigger()
			dispatchtest.Until(h.T, "the tick is ready", func() bool { return h.Number(`SELECT COALESCE(sum(ticks), 0) FROM ready`) == 1 })
			newerDefaults(h, "overlap")
			if _, err := h.Dispatch.Control.Cancel(h.T.Context(), h.Tenant, h.History("overlap", "k")[0].TickID); err != nil {
				h.T.Error(err)
			}
			h.WantStates("running requested")
		},
		"retention": func(h *dispatchtest.Carillon) {
			h.EndTwo()
			h.Exec(`UPDATE workflow SET defaults = '{"delivery": {"retention": {"succeeded": "2h", "failed": "2h", "newest": "2h"}}, "policy": {"overlap": "newest"}}'`)
			h.Exec(`UPDATE tick SET nominal_at = nominal_at - interval '150 minutes', ended_at = ended_at - interval '150 minutes'`)
			h.Retain(time.Now())
			h.WantStates("failed", "succeeded")
			h.Exec(`UPDATE workflow SET defaults = '{"delivery": {"retention": {"succeeded": "2h", "failed": "2h"}}}'`)
			h.Retain(time.Now())
			if n := h.Number(`SELECT count(*) FROM tick`); n != 0 {
				h.T.Errorf("%d ticks are left", n)
			}
		},
		"a backfill": func(h *dispatchtest.Carillon) {
			h.Put("w", "k", dispatchtest.Hourly("skip"))
			newerDefaults(h, "w")
			from, to := dispatchtest.Hours(3)
			putOff(h, h.Backfill(from, to, "buffer_all").ID)
		},
		"a replay of all dead letters": func(h *dispatchtest.Carillon) {
			h.Trigger()
			h.Fail(h.Lease("overlap", 1)[0])
			newerDefaults(h, "overlap")
			op, _, err := h.Dispatch.Replays.ReplayDead(h.T.Context(), h.Tenant, control.DeadReplayParams{}, "ann", once.Request{})
			if err != nil {
				h.T.Fatal(err)
			}
			putOff(h, op.ID)
			h.WantStates("running")
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			test(dispatchtest.Overlapping(t, "buffer_all"))
		})
	}
}
