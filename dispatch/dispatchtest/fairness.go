package dispatchtest

import (
	"fmt"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Quota sets a tenant's ticks a second.
func (h *Carillon) Quota(name string, perSecond int) tenants.ID {
	h.T.Helper()
	q := tenants.Wide()
	q.TicksPerSecond = perSecond
	tenant, err := tenants.Ensure(h.T.Context(), h.Pool, name, q)
	if err != nil {
		h.T.Fatal(err)
	}
	h.Exec(`UPDATE tenant SET quotas = jsonb_set(quotas, '{ticks_per_second}', to_jsonb($2::int)) WHERE id = $1`, tenant.ID, perSecond)
	return tenant.ID
}

// Backdate moves the times of every cohort of a tenant one day back, as if no sweep had run since.
func (h *Carillon) Backdate(tenant tenants.ID) {
	h.T.Helper()
	h.Exec(`UPDATE member SET from_at = from_at - interval '1 day' WHERE tenant_id = $1`, tenant)
	h.Exec(`UPDATE cohort SET next_at = next_at - interval '1 day', due_at = due_at - interval '1 day' WHERE tenant_id = $1`, tenant)
}

// Daily fires once a day, at a moment that is not near.
func Daily(n int) schedules.Params {
	at := time.Now().UTC().Add(6*time.Hour + time.Duration(n)*time.Second)
	return schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{fmt.Sprintf("%d %d %d * * *", at.Second(), at.Minute(), at.Hour())}}, Policy: &policy.Policy{MaxLateness: "1w"}}
}
