package servertest

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/carillonhq/carillon/api/apitest"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

func TestTheSDKManagesTenants(t *testing.T) {
	t.Parallel()
	base := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(base.CloseIdleConnections)
	c, err := carillon.New(carillon.Config{URL: server.URL, Token: server.Platform, HTTPClient: &http.Client{Transport: apitest.Transport(t, base)}, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, p := t.Context(), c.Platform
	made := must[carillon.Tenant](t)(p.PutTenant(ctx, "sdk-made", carillon.TenantParams{Quotas: map[string]int64{"schedules": 7}}))
	if made.Status != "active" || made.Quotas.Schedules != 7 || made.Quotas.RequestsPerSecond == 0 {
		t.Errorf("got %+v", made)
	}
	patched := must[carillon.Tenant](t)(p.PatchTenant(ctx, "sdk-made", carillon.MergePatch{Merge: map[string]any{"status": "suspended"}, IfMatch: made.UpdatedAt}))
	if patched.Status != "suspended" || patched.Quotas.Schedules != 7 {
		t.Errorf("got %+v", patched)
	}
	if got := must[carillon.Tenant](t)(p.Tenant(ctx, "sdk-made")); got.Status != "suspended" {
		t.Errorf("got %+v", got)
	}
	seen := false
	for tenant, err := range p.Tenants(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		seen = seen || tenant.Name == "sdk-made"
	}
	if !seen {
		t.Error("the tenant is not listed")
	}
	if got := must[carillon.PlatformOverview](t)(p.Overview(ctx)); len(got.Processes) == 0 || got.Tenants.Active == 0 {
		t.Errorf("got %+v", got)
	}
	used := false
	for use, err := range p.Usage(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		used = used || use.Tenant == "sdk-made" && use.Ticks == 0
	}
	if !used {
		t.Error("the use of the tenant is not listed")
	}
	if got := gather(t, p.Audit(ctx, carillon.AuditFilter{Target: "platform/tenants/sdk-made"})); len(got) != 2 {
		t.Errorf("got %+v", got)
	}
	if _, err := p.EraseTenant(ctx, "sdk-made", carillon.RemoveParams{IfMatch: made.UpdatedAt}); !errors.Is(err, carillon.CodeVersionMismatch) {
		t.Errorf("another version: got %v", err)
	}
	for deadline := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		erasing, err := p.EraseTenant(ctx, "sdk-made")
		if err == nil && erasing == nil || errors.Is(err, carillon.ErrNotFound) {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("got %+v, %v", erasing, err)
		}
	}
	if _, err := p.Tenant(ctx, "sdk-made"); !errors.Is(err, carillon.ErrNotFound) {
		t.Errorf("an erased tenant: got %v", err)
	}
}
