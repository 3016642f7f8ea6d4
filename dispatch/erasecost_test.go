package dispatch_test

import (
	"maps"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Erasing a tenant without cohorts reads no cohort of another tenant.
func TestErasingATenantReadsItsOwnCohortsOnly(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	other, err := tenants.Ensure(t.Context(), h.pool, "other", tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	ctx := postgres.ForTenant(t.Context(), int32(other.ID))
	if _, _, err := h.schedules.Put(ctx, policy.Name{Tenant: other.ID, Workflow: "w", Key: "k"}, schedules.Params{Spec: at(3600)}, "ann", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	h.exec(`
		INSERT INTO cohort
		SELECT (jsonb_populate_record(c, jsonb_build_object('id', 1000000 + n, 'shard', n % 64))).*
		FROM cohort c
		CROSS JOIN generate_series(1, 20000) AS g (n)
		WHERE tenant_id = $1`, other.ID)
	h.exec(`ANALYZE cohort`)
	if _, _, err := tenants.Erase(t.Context(), h.pool, "acme"); err != nil {
		t.Fatal(err)
	}
	h.exec(`UPDATE tenant SET erasing_at = now() - interval '1 minute' WHERE id = $1`, h.tenant)
	r := &recorder{ran: map[string][]any{}}
	h.traced(r)
	if done, err := h.process().Keeper.EraseTenant(t.Context(), h.tenant); err != nil || !done {
		t.Fatalf("erased: %t, %v", done, err)
	}
	read := regexp.MustCompile(`shared (?:hit=(\d+))? ?(?:read=(\d+))?`)
	asked := 0
	for sql, args := range maps.Clone(r.ran) { // it also keeps the statements below
		if !strings.Contains(sql, "cohort") {
			continue
		}
		asked++
		tx, err := h.config.Pool.Begin(t.Context())
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
