package schedulestest

import (
	"github.com/carillonhq/carillon/tenants"
)

// SweepDelays takes the next ticks of a workflow's schedules with fixed_delay, as the sweep does. The ticks do not end.
func (h *Fixture) SweepDelays(tenant tenants.ID, w string) {
	h.T.Helper()
	h.Exec(`
		UPDATE schedule_state st
		SET delay_at = c.next_at, delay_left = st.delay_left - 1
		FROM schedule s, cohort c, member m
		WHERE s.tenant_id = $1 AND s.workflow = $2 AND c.shard = s.shard AND c.id = s.cohort_id AND c.delay AND c.next_at IS NOT NULL
			AND m.cohort_id = c.id AND m.schedule_id = s.id
			AND st.tenant_id = s.tenant_id AND st.schedule_id = s.id AND COALESCE(st.delay_left, 1) > 0`, tenant, w)
	h.Exec(`UPDATE cohort SET next_at = NULL, due_at = NULL WHERE tenant_id = $1 AND workflow = $2 AND delay`, tenant, w)
}
