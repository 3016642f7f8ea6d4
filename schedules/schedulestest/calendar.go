package schedulestest

import (
	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/calendars"
)

// PutCalendar stores a named calendar of acme.
func (h *Fixture) PutCalendar(name string, dates ...string) calendars.Calendar {
	h.T.Helper()
	c, _, err := h.Calendars.Put(h.T.Context(), h.Acme, name, calendars.Params{Dates: dates}, "ann")
	if err != nil {
		h.T.Fatal(err)
	}
	return c
}

// DailyExcept returns the parameters of a schedule that fires at noon, except on the days of named calendars.
func DailyExcept(names ...string) schedules.Params {
	return Spec(calendar.Spec{Cron: calendar.StringList{"0 12 * * *"}, Exclude: &calendar.Exclude{Named: names}})
}
