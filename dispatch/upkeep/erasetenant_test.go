package upkeep_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/upkeep"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Erasing a tenant without cohorts reads no cohort of another tenant.
func TestErasingATenantReadsItsOwnCohortsOnly(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	other, err := tenants.Ensure(t.Context(), h.Pool, "other", tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	ctx := postgres.ForTenant(t.Context(), int32(other.ID))
	if _, _, err := h.Schedules.Put(ctx, policy.Name{Tenant: other.ID, Workflow: "w", Key: "k"}, schedules.Params{Spec: dispatchtest.At(3600)}, "ann", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	h.Exec(`
		INSERT INTO cohort
		SELECT (jsonb_populate_record(c, jsonb_build_object('id', 1000000 + n, 'shard', n % 64))).*
		FROM cohort c
		CROSS JOIN generate_series(1, 20000) AS g (n)
		WHERE tenant_id = $1`, other.ID)
	h.Exec(`ANALYZE cohort`)
	if _, _, err := tenants.Erase(t.Context(), h.Pool, "acme"); err != nil {
		t.Fatal(err)
	}
	h.Exec(`UPDATE tenant SET erasing_at = now() - interval '1 minute' WHERE id = $1`, h.Tenant)
	r := &dispatchtest.Recorder{Ran: map[string][]any{}}
	h.Traced(r)
	if done, err := h.Process().Keeper.EraseTenant(t.Context(), h.Tenant); err != nil || !done {
		t.Fatalf("erased: %t, %v", done, err)
	}
	read := regexp.MustCompile(`shared (?:hit=(\d+))? ?(?:read=(\d+))?`)
	asked := 0
	for sql, args := range maps.Clone(r.Ran) { // it also keeps the statements below
		if !strings.Contains(sql, "cohort") {
			continue
		}
		asked++
		tx, err := h.Config.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rows, _ := tx.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) "+sql, args...) // CollectRows reports the error
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		_ = tx.Rollback(t.Context())
		if err != nil {
			t.Fatalf("%v:\n%s", err, sql)
		}
		for _, line := range plan {
			if m := read.FindStringSubmatch(line); m != nil {
				hit, _ := strconv.Atoi(m[1])
				disk, _ := strconv.Atoi(m[2])
				if hit+disk > 300 {
					t.Errorf("%d blocks are read:\n%s\n%s", hit+disk, sql, strings.Join(plan, "\n"))
				}
				break
			}
		}
	}
	if asked == 0 {
		t.Error("no statement was looked at")
	}
}

func TestErasedTenantLeavesNoRowInAnyTable(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	other, err := tenants.Ensure(t.Context(), h.Pool, "other", tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	every := schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"* * * * * *"}}}
	for _, tenant := range []tenants.ID{h.Tenant, other.ID} {
		for n := range 3 {
			p := every
			p.Labels = map[string]string{"plan": "pro"}
			if n > 0 {
				p.Spec = calendar.Spec{Cron: calendar.StringList{fmt.Sprintf("%d 8 1 1 *", n)}}
			}
			if _, _, err := h.Schedules.Put(postgres.ForTenant(t.Context(), int32(tenant)), policy.Name{Tenant: tenant, Workflow: "w", Key: fmt.Sprint("k", n)}, p, "ann", version.Precondition{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	h.Reserve(upkeep.ClearProcesses) // it would delete the invented rows of a process that does not exist
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "a tick of each is ready", func() bool { return h.Holds(h.Tenant)["ready"] > 0 && h.Holds(other.ID)["ready"] > 0 })
	if _, err := h.Pool.Exec(t.Context(), `UPDATE tenant SET halted_at = now() WHERE id = $1`, other.ID); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []tenants.ID{h.Tenant, other.ID} {
		for table, n := range h.Holds(tenant) {
			if n == 0 {
				h.Invent(table, tenant)
			}
		}
	}
	before := h.Holds(other.ID)
	if _, _, err := tenants.Erase(t.Context(), h.Pool, "acme"); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "the tenant is erased", func() bool {
		done, err := h.Dispatch.Keeper.EraseTenant(t.Context(), h.Tenant)
		if err != nil {
			t.Fatal(err)
		}
		return done
	})
	for table, n := range h.Holds(h.Tenant) {
		if n > 0 {
			t.Errorf("%s has %d rows of the tenant still", table, n)
		}
	}
	if _, err := tenants.Get(t.Context(), h.Pool, "acme"); err == nil {
		t.Error("the tenant is there still")
	}
	after := h.Holds(other.ID)
	for _, moving := range []string{"tick", "tick_time", "ready", "chunk", "tally_delta", "tally", "daily_use_delta", "daily_use", "use_series", "workflow_poll", "unmet_expectation", "fair_turn", "rate_turn", "slot", "queued", "buffered", "delayed", "wake", "lease", "sync", "sync_line"} {
		delete(before, moving) // of work that goes on, and that others clear away
		delete(after, moving)
	}
	for _, told := range []string{"notice_delta", "notice", "event", "inactive_delta", "inactive"} { // so are these
		delete(before, told)
		delete(after, told)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("another tenant's rows were touched: %s", diff)
	}
	if slices.Sorted(maps.Keys(after)) == nil {
		t.Error("no tables were looked at")
	}
}

func TestTenantThatIsErasedCannotBeChanged(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	if _, _, err := tenants.Erase(t.Context(), h.Pool, "acme"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tenants.Put(t.Context(), h.Pool, "acme", tenants.Params{Status: tenants.Active}); err == nil || !strings.Contains(err.Error(), "is being erased") {
		t.Errorf("got %v", err)
	}
	if _, err := h.Pool.Exec(t.Context(), `UPDATE tenant SET erasing_at = now() - interval '1 minute' WHERE id = $1`, h.Tenant); err != nil {
		t.Fatal(err)
	}
	if err := h.Dispatch.Keeper.FinishTenants(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tenants.Get(t.Context(), h.Pool, "acme"); err == nil {
		t.Error("nobody went on with the erasure")
	}
}
