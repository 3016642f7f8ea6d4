package upkeep_test

import (
	"fmt"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

func TestAKeyIsErasedWhileItsTicksRun(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	p := dispatchtest.EverySecond()
	p.Policy = &policy.Policy{Overlap: "buffer_all"}
	h.Put("w", "k", p)
	h.Put("w", "bystander", p)
	dispatchtest.Until(t, "ticks run and wait", func() bool { return len(h.History("w", "k")) > 2 })
	worker := h.Open(h.Dispatch).Operator()
	leased := worker.LeaseAll(2)
	receipt, err := h.Subjects.Erase(t.Context(), h.Tenant, "k", "ann", version.Precondition{})
	if err != nil {
		t.Fatal(err)
	}
	if receipt.Counts.Schedules != 1 || receipt.Counts.Ticks < 3 || receipt.ErasedBy != "ann" || len(receipt.SubjectHash) != 64 {
		t.Errorf("got %+v", receipt)
	}
	for _, tick := range leased {
		path, token := "/v1/ticks/"+tick.TickID, fmt.Sprintf(`"lease_token": %q`, tick.LeaseToken)
		if tick.Key == "bystander" {
			if got := worker.Do("POST", path+"/complete", "{"+token+"}"); got.Status != 204 {
				t.Errorf("another's tick: got %d %s", got.Status, got.Body)
			}
			continue
		}
		for _, got := range []dispatchtest.Answer{
			worker.Do("POST", path+"/complete", "{"+token+`, "result": {"mail": "ann@example.com"}}`),
			worker.Do("POST", path+"/fail", "{"+token+`, "error": "no"}`),
			worker.Do("POST", path+"/heartbeat", "{"+token+"}"),
			worker.Do("GET", path, ""),
		} {
			if got.Status != 404 && got.Status != 409 {
				t.Errorf("got %d %s", got.Status, got.Body)
			}
		}
	}
	dispatchtest.Until(t, "the other goes on", func() bool { return h.Number(`SELECT occurrence::int FROM schedule_state`) > 1 })
	other := h.Number(`SELECT id::int FROM schedule`)
	for _, table := range []string{"tick", "attempt", "delayed", "buffered", "dead_letter", "schedule_state", "member", "revision"} {
		if n := h.Number(`SELECT count(*)::int FROM `+table+` WHERE schedule_id <> $1`, other); n != 0 {
			t.Errorf("%s has %d rows of the erased", table, n)
		}
	}
}

func TestAnErasureThatWasCutIsFinished(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("w", "k", dispatchtest.EverySecond())
	dispatchtest.Until(t, "a tick runs", func() bool { return len(h.History("w", "k")) > 0 })
	h.Exec(`
		INSERT INTO erasure (tenant_id, subject_hash, subject, erased_by, began_at, schedule_ids)
		SELECT tenant_id, '\x00', 'k', 'ann', now() - interval '1 hour', ARRAY[id] FROM schedule`)
	h.Exec(`DELETE FROM member`)
	h.Exec(`DELETE FROM schedule_state`)
	h.Exec(`DELETE FROM schedule`)
	if err := h.Subjects.FinishErasures(t.Context(), h.Pool); err != nil {
		t.Fatal(err)
	}
	if n := h.Number(`SELECT count(*)::int FROM erasure WHERE erased_at IS NOT NULL AND subject IS NULL AND ticks > 0`); n != 1 {
		t.Error("it is not finished")
	}
	if n := h.Number(`SELECT count(*)::int FROM tick`); n != 0 {
		t.Errorf("%d ticks are left", n)
	}
}

// An erasure that cannot be read does not stop that of the next tenant.
func TestAnErasureThatFailsStopsNoOther(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	other, err := tenants.Ensure(t.Context(), h.Pool, "other", tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	h.Exec(`
		INSERT INTO erasure (tenant_id, subject_hash, subject, erased_by, began_at, schedule_ids)
		VALUES ($1, '\x00', NULL, 'ann', now() - interval '2 hours', '{}'), ($2, '\x00', 'k', 'ann', now() - interval '1 hour', '{}')`, h.Tenant, other.ID)
	if err := h.Subjects.FinishErasures(t.Context(), h.Pool); err == nil {
		t.Error("nothing is said of the one that fails")
	}
	if n := h.Number(`SELECT count(*)::int FROM erasure WHERE tenant_id = $1 AND erased_at IS NOT NULL`, other.ID); n != 1 {
		t.Error("the other tenant's is not finished")
	}
}

// An erasure searches stored answers in parts. An erasure that was interrupted continues after the last part.
func TestKeptAnswersAreSearchedInParts(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Exec(`
		INSERT INTO idempotency (tenant_id, route, key, body_hash, status, answer)
		SELECT $1, 'POST /v1/workflows/w/schedules/' || CASE WHEN n % 600 = 0 THEN 'k' ELSE 'bystander' END || '/trigger',
			to_char(n, '0000'), '', 200, CASE WHEN n = 1 THEN '{"id":1,"key":"k"}' ELSE '{"key":"bystander"}' END::bytea
		FROM generate_series(0, 1300) AS g (n)`, h.Tenant)
	receipt, err := h.Subjects.Erase(t.Context(), h.Tenant, "k", "ann", version.Precondition{})
	if err != nil {
		t.Fatal(err)
	}
	if left := h.Number(`SELECT count(*)::int FROM idempotency`); receipt.Counts.Answers != 4 || left != 1297 {
		t.Errorf("%d are erased, %d are left", receipt.Counts.Answers, left)
	}
	if n := h.Number(`SELECT count(*)::int FROM erasure WHERE subject IS NULL AND answer_route IS NULL AND answer_key IS NULL`); n != 1 {
		t.Error("the erasure keeps where it searched")
	}
	h.Exec(`
		INSERT INTO erasure (tenant_id, subject_hash, subject, erased_by, began_at, schedule_ids, answer_route, answer_key)
		SELECT tenant_id, '\x00', 'bystander', 'ann', now() - interval '1 hour', '{}', route, key
		FROM idempotency
		ORDER BY route, key
		OFFSET 699
		LIMIT 1`)
	if err := h.Subjects.FinishErasures(t.Context(), h.Pool); err != nil {
		t.Fatal(err)
	}
	if left := h.Number(`SELECT count(*)::int FROM idempotency`); left != 700 {
		t.Errorf("%d are left, 700 were searched before", left)
	}
}
