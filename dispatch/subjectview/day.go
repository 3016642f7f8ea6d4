package subjectview

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/explain"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/tenants"
)

// Day is what a subject got, or will get, on a day of Timezone. More reports that the subject has more schedules or ticks than the
// verdicts cover.
type Day struct {
	Subject   string    `json:"subject"`
	On        string    `json:"on"`
	Timezone  string    `json:"timezone"`
	Workflows []Verdict `json:"workflows"`
	More      bool      `json:"more"`
}

// Verdict is what became of the ticks of one workflow on a day. Detail is a sentence or a few, for a person.
type Verdict struct {
	Workflow string    `json:"workflow"`
	Verdict  string    `json:"verdict"`
	Detail   string    `json:"detail"`
	Planned  []Planned `json:"planned"`
}

// Planned is a tick of a day, and what became or will become of it. LocalTime is in the zone of its schedule.
type Planned struct {
	Timestamp time.Time `json:"timestamp"`
	LocalTime string    `json:"local_time"`
	Outcome   string    `json:"outcome"`
	TickID    string    `json:"tick_id,omitempty"`
}

const (
	mostExplained = 100 // schedules
	late          = time.Minute
)

// Explain returns what a subject got, or will get, on a day such as 2026-11-21, by workflow.
func (v *Views) Explain(ctx context.Context, tenant tenants.ID, subject, on string) (d Day, err error) {
	day, err := time.Parse(time.DateOnly, on)
	if err != nil || day.Year() < 1970 || day.Year() > 2100 {
		return d, fault.Invalid("/on", "%q is not a day of 1970 to 2100 such as 2026-11-21", on)
	}
	profile, err := v.profile(ctx, tenant, subject)
	if err != nil {
		return d, err
	}
	d = Day{Subject: subject, On: on, Timezone: "UTC", Workflows: []Verdict{}}
	if profile != nil {
		d.Timezone = profile.Timezone
	}
	zone := calendar.InForce().Location(d.Timezone)
	if zone == nil { // the tz database in force no longer has it
		d.Timezone, zone = "UTC", time.UTC
	}
	from, to := dayOf(day, zone)
	live, deleted, err := v.Subjects.SchedulesOf(ctx, tenant, subject)
	if err != nil {
		return d, err
	}
	byWorkflow, err := v.explained(ctx, tenant, live, deleted, span{zone, from, to})
	if err != nil {
		return d, err
	}
	now := time.Now()
	for _, workflow := range slices.Sorted(maps.Keys(byWorkflow)) {
		all := byWorkflow[workflow]
		d.Workflows, d.More = append(d.Workflows, judge(workflow, all, now)), d.More || all.More
	}
	d.More = d.More || len(live)+len(deleted) > mostExplained
	return d, nil
}

// span is a day of a zone.
type span struct {
	zone     *time.Location
	from, to time.Time
}

// explained explains the ticks of a day, by workflow: of the first schedules of a subject, which are live or deleted.
func (v *Views) explained(ctx context.Context, tenant tenants.ID, live, deleted []int64, day span) (map[string]explain.Day, error) {
	all := append(slices.Clone(live), deleted...)
	names, err := v.History.Names(ctx, tenant, all)
	if err != nil {
		return nil, err
	}
	byWorkflow := map[string]explain.Day{}
	for i, id := range all[:min(len(all), mostExplained)] {
		name, known := names[id]
		if !known {
			continue
		}
		var one explain.Day
		if i < len(live) {
			one, err = v.Explainer.Day(ctx, name, day.from, day.to)
		} else {
			one, err = v.Explainer.RecordedOn(ctx, tenant, id, day.zone, day.from, day.to)
		}
		if fault.IsNotFound(err) { // deleted meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		sum := byWorkflow[name.Workflow]
		sum.Planned, sum.Existed, sum.More = append(sum.Planned, one.Planned...), sum.Existed || one.Existed, sum.More || one.More
		byWorkflow[name.Workflow] = sum
	}
	return byWorkflow, nil
}

// troubles are the verdicts about ticks that a subject did not get in time, the gravest first, each with the outcomes of such ticks.
var troubles = []struct {
	verdict  string
	outcomes []string
}{
	{"failed", []string{"failed"}},
	{"missed", []string{"missed"}},
	{"skipped", []string{"skipped", "cancelled", "excluded", "dst_gap"}},
	{"paused", []string{"paused"}},
	{"held", []string{"held"}},
	{"late", nil},
	{"unknown", []string{"unknown"}},
}

// judge returns the verdict about the ticks of a workflow.
func judge(workflow string, of explain.Day, now time.Time) Verdict {
	v := Verdict{Workflow: workflow, Planned: []Planned{}}
	slices.SortStableFunc(of.Planned, func(a, b explain.Planned) int { return a.Timestamp.Compare(b.Timestamp) })
	var due []explain.Planned
	for _, one := range of.Planned {
		shown := Planned{Timestamp: one.Timestamp, LocalTime: one.LocalTime, Outcome: one.Outcome}
		if one.Tick != nil {
			shown.TickID = one.Tick.TickID
		}
		v.Planned = append(v.Planned, shown)
		if !one.Timestamp.After(now) {
			due = append(due, one)
		}
	}
	switch {
	case !of.Existed:
		v.Verdict, v.Detail = "no_schedule", "The subject had no schedule in this workflow that day."
		return v
	case len(of.Planned) == 0:
		v.Verdict, v.Detail = "nothing_due", "Nothing was planned for that day."
		return v
	case len(due) == 0:
		v.Verdict, v.Detail = "nothing_due", "Nothing is due yet. "+of.Planned[0].Detail
		return v
	}
	v.Verdict, v.Detail = "sent", due[len(due)-1].Detail
	for _, trouble := range troubles {
		i := slices.IndexFunc(due, func(one explain.Planned) bool {
			if trouble.outcomes == nil {
				return isLate(one)
			}
			return slices.Contains(trouble.outcomes, one.Outcome)
		})
		if i >= 0 {
			v.Verdict, v.Detail = trouble.verdict, due[i].Detail
			break
		}
	}
	if len(due) > 1 {
		sent := 0
		for _, one := range due {
			if one.Outcome == "fired" || one.Outcome == "running" {
				sent++
			}
		}
		v.Detail = fmt.Sprintf("%d of %d due ticks were handed out. %s", sent, len(due), v.Detail)
	}
	return v
}

// isLate reports whether a tick was handed out late, or is about to be.
func isLate(one explain.Planned) bool {
	switch one.Outcome {
	case "fired", "running":
		return one.Tick != nil && one.Tick.Late() > late
	}
	return one.Outcome == "will_fire" && time.Since(one.Timestamp) > late
}

// dayOf returns the first moments of a day in a zone and of the day after it.
func dayOf(day time.Time, zone *time.Location) (from, to time.Time) {
	return firstOf(day, zone), firstOf(day.AddDate(0, 0, 1), zone)
}

// firstOf returns the first instant of a day: where a clock change skips midnight, the end of the gap. A day that a zone skips as a whole
// begins and ends with the next day.
func firstOf(day time.Time, zone *time.Location) time.Time {
	wanted := day.Format(time.DateOnly)
	before, after := day.Add(-36*time.Hour), day.Add(36*time.Hour)
	for after.Sub(before) > time.Second {
		middle := before.Add(after.Sub(before) / 2).Truncate(time.Second)
		if middle.In(zone).Format(time.DateOnly) < wanted {
			before = middle
		} else {
			after = middle
		}
	}
	return after
}
