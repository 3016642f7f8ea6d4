package dispatchtest

import (
	"fmt"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

func (h *Carillon) Limit(workflow string, endpoint *string, most *int32) {
	h.T.Helper()
	if _, _, err := h.Schedules.PutWorkflow(h.T.Context(), h.Tenant, workflow, schedules.WorkflowParams{Endpoint: endpoint, MaxRunning: most}); err != nil {
		h.T.Fatal(err)
	}
}

// Fire makes n manual ticks of a workflow, one of each of n keys.
func (h *Carillon) Fire(workflow string, n int, priority int) {
	h.T.Helper()
	for i := range n {
		key := fmt.Sprintf("p%d-%03d", priority, i)
		h.Put(workflow, key, schedules.Params{Spec: Rarely("skip").Spec, Delivery: &policy.Delivery{Priority: &priority}})
		if _, _, err := h.Dispatch.Control.Trigger(h.T.Context(), h.Tenant, workflow, key, control.TriggerParams{}, once.Request{}); err != nil {
			h.T.Fatal(err)
		}
	}
}
