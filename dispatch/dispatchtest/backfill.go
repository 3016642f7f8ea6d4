package dispatchtest

import (
	"fmt"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

// Hourly is a schedule that fires once an hour, next in half an hour. No tick of its own comes while a test runs.
func Hourly(overlap string) schedules.Params {
	cron := fmt.Sprintf("%d * * * *", time.Now().UTC().Add(30*time.Minute).Minute())
	return schedules.Params{
		Spec: calendar.Spec{Cron: []string{cron}}, Policy: &policy.Policy{Overlap: overlap}, Payload: web.Raw(`{"of": "schedule"}`),
	}
}

// Hours is a span of n whole hours, the last of which ended some hours ago.
func Hours(n int) (from, to time.Time) {
	to = time.Now().UTC().Truncate(time.Hour).Add(-2 * time.Hour)
	return to.Add(-time.Duration(n) * time.Hour), to
}

func (h *Carillon) Backfill(from, to time.Time, overlap string) operations.Answer {
	h.T.Helper()
	b, _, err := h.Dispatch.Backfills.Backfill(h.T.Context(), policy.Name{Tenant: h.Tenant, Workflow: "w", Key: "k"}, control.BackfillParams{From: from, To: to, Overlap: overlap}, "ann", once.Request{})
	if err != nil {
		h.T.Fatal(err)
	}
	return *b.Operation
}

func (h *Carillon) Ended(id string) operations.Answer {
	h.T.Helper()
	Until(h.T, "the operation has ended", func() bool { return h.Operation(id).EndedAt != nil })
	return h.Operation(id)
}
