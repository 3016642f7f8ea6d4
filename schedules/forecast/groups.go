package forecast

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/tenants"
)

// Grouping says by what the ticks of a forecast are grouped.
type Grouping struct {
	Workflow, Timezone, Timing bool
}

// ReadGrouping reads a list such as workflow,timezone.
func ReadGrouping(text string) (g Grouping, err error) {
	for part := range strings.SplitSeq(text, ",") {
		switch part {
		case "workflow":
			g.Workflow = true
		case "timezone":
			g.Timezone = true
		case "timing":
			g.Timing = true
		default:
			return g, fault.Invalid("/group", "%q is not one of workflow, timezone, timing", part)
		}
	}
	return g, nil
}

// Group is a part of a tenant's active schedules. Workflow, Timezone and Reading are nil unless the forecast is grouped by them. Count is
// how many ticks of the group are due in the minute that was asked for, or how many schedules the group has.
type Group struct {
	Workflow *string    `json:"workflow"`
	Timezone *string    `json:"timezone"`
	Reading  *string    `json:"reading"`
	Count    int64      `json:"count"`
	NextAt   *time.Time `json:"next_at"`
}

const mostShownGroups = 200

// Groups returns the largest groups of a tenant's active schedules, of one workflow or of all. With a minute, it counts the nominal times
// in that minute; groups without any are left out. truncated reports that the counts are estimated, or that small groups are left out.
func (f *Forecasts) Groups(ctx context.Context, tenant tenants.ID, workflow string, by Grouping, minute time.Time) (shown []Group, truncated bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, computeTimeout)
	defer cancel()
	groups, timings, truncated, err := f.timed(ctx, tenant, workflow)
	if err != nil {
		return nil, false, err
	}
	now := time.Now().UTC()
	after := now
	if !minute.IsZero() {
		after = minute.Add(-time.Second)
	}
	type key struct{ workflow, zone, timing string }
	all := map[key]*Group{}
	counts := map[*Group]float64{}
	for i, t := range timings {
		if t == nil {
			continue
		}
		n := groups[i].n
		if !minute.IsZero() {
			if n *= float64(t.Count(minute, minute.Add(time.Minute))); n == 0 {
				continue
			}
		}
		var k key
		var made Group
		if by.Workflow {
			k.workflow, made.Workflow = groups[i].workflow, &groups[i].workflow
		}
		if by.Timezone {
			k.zone = t.Zone()
			made.Timezone = &k.zone
		}
		if by.Timing {
			hash := t.Hash()
			k.timing = string(hash[:])
			made.Reading = new(t.Reading())
		}
		g := all[k]
		if g == nil {
			g = &made
			all[k] = g
		}
		counts[g] += n
		if next, ok := nextOf(t, after); ok && (g.NextAt == nil || next.Before(*g.NextAt)) {
			g.NextAt = &next
		}
	}
	shown = make([]Group, 0, len(all))
	for _, g := range all {
		g.Count = int64(math.Round(counts[g]))
		shown = append(shown, *g)
	}
	slices.SortFunc(shown, compareGroups)
	if len(shown) > mostShownGroups {
		shown, truncated = shown[:mostShownGroups], true
	}
	return shown, truncated, nil
}

func nextOf(t *calendar.Timing, after time.Time) (time.Time, bool) {
	tick, ok := t.Next(after)
	return tick.At, ok
}

// compareGroups puts large groups first.
func compareGroups(a, b Group) int {
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(text(a.Workflow), text(b.Workflow)), cmp.Compare(text(a.Timezone), text(b.Timezone)), cmp.Compare(text(a.Reading), text(b.Reading)))
}
