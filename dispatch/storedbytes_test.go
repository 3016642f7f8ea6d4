package dispatch_test

import (
	"errors"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/lease"
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
	h, quota := dispatchtest.Aging(t)
	stored := forecast.New(forecast.Config{Pool: h.Config.API, Quotas: h.Config.Quotas})
	h.Config.MayStore = stored.MayStore
	h.Dispatch = h.Process()
	h.Start(h.Dispatch)
	h.Put("overlap", "k", dispatchtest.Rarely("allow_all"))
	used := func() int {
		t.Helper()
		n, err := stored.StoredBytes(t.Context(), h.Tenant)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	trigger := func(payload string) error {
		_, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "overlap", "k", control.TriggerParams{Payload: web.Raw(payload)}, once.Request{})
		return err
	}
	finish := func(one dispatchtest.Handed, result string) error {
		all, err := h.Dispatch.Leases.Finish(t.Context(), h.Tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete", Result: web.Raw(result)}})
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
	if err := finish(h.Lease("overlap", 1)[0], `"abc"`); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"before", "after"} {
		if got := used(); got != none+17 {
			t.Errorf("%d bytes are counted %s they are folded, want %d", got, when, none+17)
		}
		if err := h.Dispatch.FoldUse(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	q := tenants.Wide()
	q.StoredBytes = used() + 3
	quota.Store(&q)
	if err := trigger(`"0123456789"`); !exceeds(err) {
		t.Errorf("a payload beyond the quota: %v", err)
	}
	if _, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "overlap", "k", control.TriggerParams{}, once.Request{}); err != nil {
		t.Errorf("a tick without a payload: %v", err)
	}
	one := h.Lease("overlap", 1)[0]
	if err := finish(one, `"abc"`); !exceeds(err) {
		t.Errorf("a result beyond the quota: %v", err)
	}
	if err := finish(one, `1`); err != nil {
		t.Errorf("a result that fits: %v", err)
	}
	if err := h.Dispatch.FoldUse(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Exec(`UPDATE daily_use SET day = day - 31`)
	if got := used(); got != none {
		t.Errorf("%d bytes are counted once their day is gone, want %d", got, none)
	}
}

// A schedule that keeps its ticks for less time gives their bytes back as they are deleted.
func TestBytesOfTicksAreGivenBack(t *testing.T) {
	t.Parallel()
	h, _ := dispatchtest.Aging(t)
	h.Start(h.Dispatch)
	p := dispatchtest.Rarely("allow_all")
	p.Delivery = &policy.Delivery{Retention: &policy.Retention{Succeeded: "2h"}}
	h.Put("overlap", "k", p)
	none, err := h.Schedules.Forecasts.StoredBytes(t.Context(), h.Tenant)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "overlap", "k", control.TriggerParams{Payload: web.Raw(`1234`)}, once.Request{}); err != nil {
		t.Fatal(err)
	}
	one := h.Lease("overlap", 1)[0]
	if _, err := h.Dispatch.Leases.Finish(t.Context(), h.Tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete", Result: web.Raw(`567`)}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		later time.Duration
		want  int
	}{{time.Hour, none + 7}, {3 * time.Hour, none}} {
		h.Retain(time.Now().Add(c.later))
		for range 2 { // before they are folded, and after
			if got, err := h.Schedules.Forecasts.StoredBytes(t.Context(), h.Tenant); err != nil || got != c.want {
				t.Errorf("%v later %d bytes are counted, want %d: %v", c.later, got, c.want, err)
			}
			if err := h.Dispatch.FoldUse(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}
