package subjectview

import (
	"context"
	"slices"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/explain"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/subjects"
	"github.com/carillonhq/carillon/tenants"
)

// Views shows subjects. It is safe for concurrent use.
type Views struct {
	Subjects  *subjects.Subjects
	Schedules *schedules.Schedules
	History   *history.Reader
	Explainer *explain.Explainer
}

// Overview is what a subject has, had and will get. TimezoneInForce is nil if no zone is known for the subject. More reports that the
// subject has more schedules than are listed.
type Overview struct {
	Subject         string              `json:"subject"`
	Profile         *subjects.Subject   `json:"profile"`
	TimezoneInForce *string             `json:"timezone_in_force"`
	Schedules       []schedules.Summary `json:"schedules"`
	More            bool                `json:"more"`
	Upcoming        []Tick              `json:"upcoming"`
	Recent          []history.Tick      `json:"recent"`
}

// Tick is a coming tick. LocalTime is in the zone of its schedule.
type Tick struct {
	Timestamp time.Time `json:"timestamp"`
	LocalTime string    `json:"local_time"`
	Workflow  string    `json:"workflow"`
	Key       string    `json:"key"`
}

const (
	mostSchedules = 200
	mostTicks     = 50 // coming ones, and past ones
)

// profile returns the profile of a subject; nil: there is none.
func (v *Views) profile(ctx context.Context, tenant tenants.ID, subject string) (*subjects.Subject, error) {
	if err := policy.CheckSubject("/subject", subject); err != nil {
		return nil, err
	}
	found, err := v.Subjects.Subject(ctx, tenant, subject)
	if fault.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &found, nil
}

// Overview returns what a subject has, had and will get. A subject of which nothing is stored has empty lists.
func (v *Views) Overview(ctx context.Context, tenant tenants.ID, subject string) (o Overview, err error) {
	o = Overview{Subject: subject, Schedules: []schedules.Summary{}, Upcoming: []Tick{}}
	if o.Profile, err = v.profile(ctx, tenant, subject); err != nil {
		return o, err
	}
	if o.Profile != nil {
		o.TimezoneInForce = &o.Profile.Timezone
	}
	live, _, err := v.Subjects.SchedulesOf(ctx, tenant, subject)
	if err != nil {
		return o, err
	}
	if o.More = len(live) > mostSchedules; o.More {
		live = live[:mostSchedules]
	}
	if len(live) > 0 {
		if o.Schedules, _, err = v.Schedules.Summaries(ctx, tenant, live); err != nil {
			return o, err
		}
	}
	for i := range o.Schedules {
		s := &o.Schedules[i]
		if s.Status != policy.Active {
			continue
		}
		zone := calendar.InForce().Location(s.TimezoneInForce)
		for _, at := range s.Upcoming {
			o.Upcoming = append(o.Upcoming, Tick{Timestamp: at, LocalTime: at.In(zone).Format(time.RFC3339), Workflow: s.Workflow, Key: s.Key})
		}
	}
	slices.SortStableFunc(o.Upcoming, func(a, b Tick) int { return a.Timestamp.Compare(b.Timestamp) })
	o.Upcoming = o.Upcoming[:min(mostTicks, len(o.Upcoming))]
	o.Recent, _, err = v.History.Ticks(ctx, tenant, history.Filter{Subject: subject, Span: history.Span{To: time.Now()}}, mostTicks, "")
	return o, err
}
