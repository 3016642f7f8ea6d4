package schedules

import (
	"context"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

func TestAChangeThatIsAlwaysRacedIsBusy(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	tenant, err := tenants.Ensure(t.Context(), pool, "acme", tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	err = New(Config{Pool: pool, Forecasts: forecast.New(forecast.Config{Pool: pool})}).changeOne(t.Context(), policy.Name{Tenant: tenant.ID, Workflow: "w", Key: "a"}, "ann", nil, func(context.Context, *batch, *row) error {
		tried++
		return errRaced
	})
	f, ok := err.(*fault.Error)
	if !ok || f.Status != 503 || f.Code != "busy" || f.RetryAfter < time.Second || tried != mostRaces {
		t.Errorf("got %v after %d tries", err, tried)
	}
}
