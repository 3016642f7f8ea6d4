package forecast_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/schedules/subjects"
	"github.com/carillonhq/carillon/tenants"
)

// storedBytes returns the bytes that a tenant's rows store.
func storedBytes(h *schedulestest.Fixture, tenant tenants.ID) int {
	h.T.Helper()
	return schedulestest.One[int](h, `
		SELECT COALESCE(sum(octet_length(spec) + COALESCE(octet_length(payload), 0)), 0)::bigint
		FROM (SELECT tenant_id, spec, payload FROM schedule UNION ALL SELECT tenant_id, spec, payload FROM revision) stored
		WHERE tenant_id = $1`, tenant)
}

// wantCounted compares the count of bytes with the rows of both tenants.
func wantCounted(h *schedulestest.Fixture, t interface{ Errorf(string, ...any) }, after string) {
	h.T.Helper()
	for _, tenant := range []tenants.ID{h.Acme, h.Other} {
		got, err := h.Schedules.Forecasts.StoredBytes(h.As(tenant), tenant)
		if want := storedBytes(h, tenant); err != nil || got != want {
			t.Errorf("after %s: tenant %d has %d bytes, and %d are counted: %v", after, tenant, want, got, err)
		}
	}
}

// exceeds reports whether a call failed because of the quota of bytes.
func exceeds(err error) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return ok && f.Code == "quota_exceeded" && f.Status == 403 && f.Extra["quota"] == "stored_bytes" && f.Extra["limit"] != nil && f.Extra["used"] != nil
}

// large returns a schedule with a payload of n bytes between quotes.
func large(n int) schedules.Params {
	p := schedulestest.ByCron("0 12 * * *")
	p.Payload = web.Raw(`"` + strings.Repeat("x", n) + `"`)
	return p
}

// After each change the count of bytes is the sum over the rows.
func TestCountedBytesAreThoseOfTheRows(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	by := schedules.Changer{By: "ann"}
	rapid.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(1, 6).Draw(rt, "rounds") {
			key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key")
			size := rapid.SampledFrom([]int{0, 1, 300, 5000}).Draw(rt, "size")
			what := rapid.SampledFrom([]string{"put", "put", "bulk", "patch", "pause", "resume", "delete", "act", "sync", "erase", "rename", "fold"}).Draw(rt, "what")
			switch what { // what is not there or cannot be changes nothing
			case "put":
				_, _, _ = h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: key}, large(size), "ann", version.Precondition{})
			case "bulk":
				line := func(key string) bulk.Line {
					return bulk.Line{Workflow: "w", Key: &key, Params: large(size)}
				}
				h.UpsertBulk(schedulestest.NDJSON(t, line(key), line(key+"2"), line("d")))
			case "patch":
				_, _ = h.Schedules.Patch(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: key}, schedules.Patch(fmt.Sprintf(`{"payload": %q}`, strings.Repeat("y", size+1))), "ann", version.Precondition{})
			case "pause":
				_, _, _ = h.Schedules.Pause(t.Context(), h.Acme, "w", key, schedules.PauseParams{Until: new(time.Now().Add(time.Hour))}, by)
			case "resume":
				_, _, _ = h.Schedules.Resume(t.Context(), h.Acme, "w", key, schedules.ResumeParams{}, by)
			case "delete":
				_ = h.Schedules.Delete(t.Context(), h.Acme, "w", key, by)
			case "act":
				h.Act(rapid.SampledFrom([]string{"pause", "resume", "delete"}).Draw(rt, "action"), schedules.ActionFilter{All: true})
			case "sync":
				p := bulk.SyncParams{Workflow: "w", Unlisted: rapid.SampledFrom([]string{"delete", "pause"}).Draw(rt, "unlisted")}
				_, _, _ = h.SyncBulk(p, io.NopCloser(strings.NewReader(schedulestest.NDJSON(t, bulk.Line{Workflow: "w", Key: &key, Params: large(size)}))))
			case "erase":
				_, _ = h.Subjects.Erase(t.Context(), h.Acme, key, "ann", version.Precondition{})
			case "rename":
				_, _, _ = h.Subjects.Rename(t.Context(), h.Acme, key, subjects.RenameParams{To: key + "3"}, once.Request{})
			case "fold":
				if err := forecast.FoldTallies(t.Context(), h.Pool); err != nil {
					rt.Fatal(err)
				}
			}
			wantCounted(h, rt, what)
		}
	})
	if storedBytes(h, h.Acme) < 1000 {
		t.Error("hardly anything was stored")
	}
}

// A change that exceeds the quota of bytes fails, and stored schedules stay. A client can always pause and delete a schedule.
func TestStoredBytesAreBounded(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	put := func(key string, n int) error {
		_, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: key}, large(n), "ann", version.Precondition{})
		return err
	}
	bulk := func(n int) (refused int) {
		t.Helper()
		var lines []bulk.Line
		for i := range n {
			lines = append(lines, bulk.Line{Workflow: "w", Key: new(fmt.Sprint("bulk", i)), Params: large(1000)})
		}
		all, _ := h.UpsertBulk(schedulestest.NDJSON(t, lines...))
		for _, r := range all {
			if r.Error != nil && r.Error.Code == "quota_exceeded" && r.Error.Status == 403 {
				refused++
			}
		}
		return refused
	}
	h.Put("a", large(1000))
	if refused := bulk(5); refused > 0 {
		t.Errorf("%d lines were refused", refused)
	}
	h.Quotas.StoredBytes = storedBytes(h, h.Acme) + 3600
	if err := put("a", 2000); err != nil {
		t.Errorf("a version that fits: %v", err)
	}
	if err := put("b", 2000); !exceeds(err) {
		t.Errorf("a schedule that does not fit: %v", err)
	}
	if err := put("a", 3000); !exceeds(err) {
		t.Errorf("a version that does not fit: %v", err)
	}
	if refused := bulk(5); refused != 0 {
		t.Errorf("%d lines that change nothing were refused", refused)
	}
	h.Delete("bulk0")
	if refused := bulk(7); refused != 2 {
		t.Errorf("%d of three new lines were refused, of which one fits", refused)
	}
	h.Pause("a", schedules.PauseParams{})
	by := schedules.Changer{By: "ann"}
	if _, _, err := h.Schedules.Pause(t.Context(), h.Acme, "w", "a", schedules.PauseParams{Note: new("again")}, by); !exceeds(err) {
		t.Errorf("another version of what is paused: %v", err)
	}
	if _, _, err := h.Schedules.Resume(t.Context(), h.Acme, "w", "a", schedules.ResumeParams{}, by); !exceeds(err) {
		t.Errorf("a version beyond the quota: %v", err)
	}
	h.Act("pause", schedules.ActionFilter{All: true})
	if op := h.RunAction("resume", schedules.ActionFilter{All: true}); op.State != operations.Failed || op.Error == nil || !strings.Contains(*op.Error, "stored_bytes allows") {
		t.Errorf("resuming all beyond the quota: %+v", op)
	}
	h.Act("delete", schedules.ActionFilter{All: true})
	wantCounted(h, t, "all of this")
}

// Once a day the count of bytes is made again from the rows, and first when the tenant is a day old.
func TestCountOfBytesIsMended(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Put("a", large(1000))
	h.Put("a", large(2000))
	recount := func() {
		t.Helper()
		if err := forecast.RecountBytes(t.Context(), h.Pool, h.Acme); err != nil {
			t.Fatal(err)
		}
	}
	h.Exec(`UPDATE tally_delta SET n = n - 700 WHERE cohort_id = -2`)
	count := func() int {
		t.Helper()
		n, err := h.Schedules.Forecasts.StoredBytes(t.Context(), h.Acme)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	recount()
	if got := count(); got != before {
		t.Errorf("counted again for a new tenant: %d, then %d", before, got)
	}
	h.Exec(`UPDATE tenant SET created_at = created_at - interval '25 hours'`)
	recount()
	wantCounted(h, t, "the first count")
	if err := forecast.FoldTallies(t.Context(), h.Pool); err != nil {
		t.Fatal(err)
	}
	h.Exec(`UPDATE tally SET n = n + 50 WHERE cohort_id = -2`)
	before = count()
	recount()
	if got := count(); got != before {
		t.Errorf("counted again within a day: %d, then %d", before, got)
	}
	h.Exec(`UPDATE tally SET counted_at = counted_at - interval '25 hours' WHERE cohort_id = -2`)
	recount()
	wantCounted(h, t, "the count of the next day")
}
