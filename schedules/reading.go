package schedules

import (
	"context"
	"strings"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// Reading checks many definitions of a tenant before they are stored. A spec that many share is compiled once.
type Reading struct {
	s         *Schedules
	tenant    tenants.ID
	memo      *memo
	anchor    time.Time
	calendars map[string]*cohorts.CalendarSet // by the names in a spec
}

// NewReading returns a reading that begins now.
func (s *Schedules) NewReading(tenant tenants.ID) *Reading {
	return &Reading{s: s, tenant: tenant, memo: newMemo(), anchor: wholeSecond(time.Now()), calendars: map[string]*cohorts.CalendarSet{}}
}

// Refresh forgets the calendars, which may be others by now.
func (r *Reading) Refresh() { clear(r.calendars) }

// Define puts a checked definition into an item that says whose it is. spec is the text of p.Spec as it is stored.
func (r *Reading) Define(ctx context.Context, it *Item, p Params, spec string, q tenants.Quotas) error {
	d, err := p.readAs(spec, q)
	if names := cohorts.CalendarsOf(d.spec); len(names) > 0 {
		all := strings.Join(names, " ")
		if _, known := r.calendars[all]; !known {
			a, err := r.s.Timings.CalendarsNow(ctx, r.s.Pool, r.tenant, names)
			if err != nil {
				return err
			}
			r.calendars[all] = a
		}
		d.almanac = r.calendars[all]
	}
	it.definition = d
	if cohorts.FollowsKey(d.spec) { // what it means is known once the profiles of the batch are
		return err
	}
	_, specErr := r.memo.compile(d, r.anchor, cohorts.Identity(r.tenant, it.Workflow, it.Key), func(*calendar.Timing) error { return nil })
	return fault.Join(err, specErr)
}
