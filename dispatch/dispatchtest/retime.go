package dispatchtest

import (
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/calendars"
)

// PutCalendar stores the calendar "off", and tells when it was written.
func (h *Carillon) PutCalendar(days ...string) time.Time {
	h.T.Helper()
	c, _, err := h.Calendars.Put(h.T.Context(), h.Tenant, "off", calendars.Params{Dates: days}, "tester")
	if err != nil {
		h.T.Fatal(err)
	}
	return c.UpdatedAt
}

func OffSpec(cron string) calendar.Spec {
	return calendar.Spec{Cron: calendar.StringList{cron}, Exclude: &calendar.Exclude{Named: []string{"off"}}}
}
