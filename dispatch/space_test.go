package dispatch_test

import (
	"errors"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/upkeep"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Results of ticks and payloads of single ticks count until their day is dropped, and are refused beyond the quota.
func TestBytesOfTicksAreCountedAndBounded(t *testing.T) {
	t.Parallel()
	h, quota := aging(t)
	stored := forecast.New(forecast.Config{Pool: h.config.API, Quotas: h.config.Quotas})
	h.config.MayStore = stored.MayStore
	h.dispatch = h.process()
	h.start(h.dispatch)
	h.put("overlap", "k", rarely("allow_all"))
	used := func() int {
		t.Helper()
		n, err := stored.StoredBytes(t.Context(), h.tenant)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	trigger := func(payload string) error {
		_, _, err := h.dispatch.Control.Trigger(t.Context(), h.tenant, "overlap", "k", control.TriggerParams{Payload: web.Raw(payload)}, once.Request{})
		return err
	}
	finish := func(one handed, result string) error {
		all, err := h.dispatch.Leases.Finish(t.Context(), h.tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete", Result: web.Raw(result)}})
		if err == nil && all[0] != lease.Done {
			t.Errorf("got %+v", all)
		}
		return err
	}
	exceeds := func(err error) bool {
		f, ok := errors.AsType[*fault.Error](err)
		return ok && f.Code == "quota_exceeded" && f.Status == 403 && f.Extra["quota"] == "stored_bytes"
	}
	none := used()
	if err := trigger(`"0123456789"`); err != nil {
		t.Fatal(err)
	}
	if err := finish(h.lease("overlap", 1)[0], `"abc"`); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"before", "after"} {
		if got := used(); got != none+17 {
			t.Errorf("%d bytes are counted %s they are folded, want %d", got, when, none+17)
		}
		if err := h.dispatch.FoldUse(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	q := tenants.Wide()
	q.StoredBytes = used() + 3
	quota.Store(&q)
	if err := trigger(`"0123456789"`); !exceeds(err) {
		t.Errorf("a payload beyond the quota: %v", err)
	}
	if _, _, err := h.dispatch.Control.Trigger(t.Context(), h.tenant, "overlap", "k", control.TriggerParams{}, once.Request{}); err != nil {
		t.Errorf("a tick without a payload: %v", err)
	}
	one := h.lease("overlap", 1)[0]
	if err := finish(one, `"abc"`); !exceeds(err) {
		t.Errorf("a result beyond the quota: %v", err)
	}
	if err := finish(one, `1`); err != nil {
		t.Errorf("a result that fits: %v", err)
	}
	if err := h.dispatch.FoldUse(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.exec(`UPDATE daily_use SET day = day - 31`)
	if got := used(); got != none {
		t.Errorf("%d bytes are counted once their day is gone, want %d", got, none)
	}
}

// unmended puts off the mending of the count of bytes, so that a test sees what is counted.
func (h *house) unmended() {
	h.t.Helper()
	h.exec(`
		INSERT INTO tally (tenant_id, cohort_id, counted_at) VALUES ($1, -2, now() + interval '1 day')
		ON CONFLICT (tenant_id, cohort_id) DO UPDATE SET counted_at = excluded.counted_at`, h.tenant)
}

// wantBytesCounted compares the count of bytes with the rows.
func (h *house) wantBytesCounted() {
	h.t.Helper()
	all, err := upkeep.Scan(h.t.Context(), h.pool, true)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, b := range all {
		if b.Name == "miscounted_bytes" && b.Rows > 0 {
			h.t.Errorf("%d %s", b.Rows, b.Meaning)
		}
	}
}

// A schedule that keeps its ticks for less time gives their bytes back as they are deleted.
func TestBytesOfTicksAreGivenBack(t *testing.T) {
	t.Parallel()
	h, _ := aging(t)
	h.start(h.dispatch)
	p := rarely("allow_all")
	p.Delivery = &policy.Delivery{Retention: &policy.Retention{Succeeded: "2h"}}
	h.put("overlap", "k", p)
	none, err := h.schedules.Forecasts.StoredBytes(t.Context(), h.tenant)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.dispatch.Control.Trigger(t.Context(), h.tenant, "overlap", "k", control.TriggerParams{Payload: web.Raw(`1234`)}, once.Request{}); err != nil {
		t.Fatal(err)
	}
	one := h.lease("overlap", 1)[0]
	if _, err := h.dispatch.Leases.Finish(t.Context(), h.tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete", Result: web.Raw(`567`)}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		later time.Duration
		want  int
	}{{time.Hour, none + 7}, {3 * time.Hour, none}} {
		h.retain(time.Now().Add(c.later))
		for range 2 { // before they are folded, and after
			if got, err := h.schedules.Forecasts.StoredBytes(t.Context(), h.tenant); err != nil || got != c.want {
				t.Errorf("%v later %d bytes are counted, want %d: %v", c.later, got, c.want, err)
			}
			if err := h.dispatch.FoldUse(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}
