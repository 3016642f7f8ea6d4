package forecast

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// ClockReport holds the coming changes of the clock in the zones that a tenant's schedules use, and what they do to the schedules.
type ClockReport struct {
	Changes   []ClockChange `json:"changes"`
	Truncated bool          `json:"truncated"` // the counts are estimated from a part of the timings
}

// ClockChange is a moment at which the clock of some zones is set forward (a gap of wall times) or back (an overlap).
type ClockChange struct {
	At        time.Time     `json:"at"`
	Timezones []string      `json:"timezones"`
	Kind      string        `json:"kind"`       // gap or overlap
	FromLocal string        `json:"from_local"` // what the clock shows at the change
	ToLocal   string        `json:"to_local"`   // and what it is set to
	Schedules int64         `json:"schedules"`  // those with a wall time that the change skips or repeats
	Effects   []ClockEffect `json:"effects"`
}

// ClockEffect is what a change does to some schedules, by their policy.
type ClockEffect struct {
	Effect calendar.ClockEffect `json:"effect"`
	Count  int64                `json:"count"` // schedules
	Sample []ClockSample        `json:"sample"`
}

// ClockSample is a schedule with such an effect, and its first wall time that the change skips or repeats.
type ClockSample struct {
	Workflow  string `json:"workflow"`
	Key       string `json:"key"`
	LocalTime string `json:"local_time"`
}

const (
	mostClockSamples = 3 // of an effect
	localForm        = "2006-01-02T15:04:05"
)

// changeKey says which changes of zones are shown as one.
type changeKey struct{ at, before, after int64 }

// clockCount is one effect of one change while it is counted.
type clockCount struct {
	n      float64
	sample []clockMember
}

// clockMember is a cohort from which a sample is taken.
type clockMember struct {
	cohorts.CohortTiming
	wall time.Time
}

// clockTally is one change while its schedules are counted.
type clockTally struct {
	calendar.ClockChange
	zones    map[string]bool
	affected float64
	effects  map[calendar.ClockEffect]*clockCount
}

// Clocks returns the changes of the clock from one moment on and before another, with what they do to the active schedules of a tenant, of
// one workflow or of all.
func (f *Forecasts) Clocks(ctx context.Context, tenant tenants.ID, workflow string, from, to time.Time) (out ClockReport, err error) {
	ctx, cancel := context.WithTimeout(ctx, computeTimeout)
	defer cancel()
	groups, timings, sampled, err := f.timed(ctx, tenant, workflow)
	if err != nil {
		return out, err
	}
	out.Truncated, out.Changes = sampled, []ClockChange{}
	tallies, changes := map[changeKey]*clockTally{}, map[string][]calendar.ClockChange{}
	for i, t := range timings {
		if t == nil || t.Zone() == "" {
			continue
		}
		if err := ctx.Err(); err != nil {
			return out, err
		}
		of, known := changes[t.Zone()]
		if !known {
			of = t.Zones().ClockChanges(t.Zone(), from, to)
			changes[t.Zone()] = of
		}
		if len(of) > 0 {
			countClocks(tallies, t, groups[i], of)
		}
	}
	ordered := slices.SortedFunc(maps.Values(tallies), func(a, b *clockTally) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Before, b.Before), cmp.Compare(a.After, b.After))
	})
	samples, err := f.clockSamples(ctx, tenant, ordered)
	if err != nil {
		return out, err
	}
	for _, t := range ordered {
		out.Changes = append(out.Changes, t.shown(samples))
	}
	return out, nil
}

// countClocks adds what changes of the clock do to the schedules of one timing.
func countClocks(tallies map[changeKey]*clockTally, t *calendar.Timing, g group, changes []calendar.ClockChange) {
	effects := t.ClockEffects()
	for _, c := range changes {
		key := changeKey{c.At.Unix(), int64(c.Before), int64(c.After)}
		tally := tallies[key]
		if tally == nil {
			tally = &clockTally{ClockChange: c, zones: map[string]bool{}, effects: map[calendar.ClockEffect]*clockCount{}}
			tallies[key] = tally
		}
		tally.zones[t.Zone()] = true
		found := effects.Of(c)
		if len(found) > 0 {
			tally.affected += g.n
		}
		for _, e := range found {
			count := tally.effects[e.Effect]
			if count == nil {
				count = &clockCount{}
				tally.effects[e.Effect] = count
			}
			count.n += g.n
			if len(count.sample) < mostClockSamples {
				count.sample = append(count.sample, clockMember{g.CohortTiming, e.Wall})
			}
		}
	}
}

// memberName names a schedule of a cohort.
type memberName struct{ Workflow, Key string }

// clockSamples reads one schedule of each cohort from which a sample is taken.
func (f *Forecasts) clockSamples(ctx context.Context, tenant tenants.ID, tallies []*clockTally) (map[int64]memberName, error) {
	wanted := map[int64]bool{}
	for _, t := range tallies {
		for _, count := range t.effects {
			for _, m := range count.sample {
				wanted[m.ID] = true
			}
		}
	}
	return f.members(ctx, tenant, slices.Sorted(maps.Keys(wanted)))
}

// members returns one schedule of each of some cohorts, if there is one.
func (f *Forecasts) members(ctx context.Context, tenant tenants.ID, ids []int64) (map[int64]memberName, error) {
	rows, _ := f.pool.Query(ctx, `
		SELECT c.id, s.workflow, s.key
		FROM unnest($2::bigint[]) AS c (id)
		CROSS JOIN LATERAL (SELECT schedule_id FROM member WHERE cohort_id = c.id AND tenant_id = $1 ORDER BY phase, schedule_id LIMIT 1) m
		CROSS JOIN LATERAL (SELECT workflow, key FROM schedule WHERE tenant_id = $1 AND id = m.schedule_id OFFSET 0) s`, tenant, ids) // ForEachRow reports the error
	found := make(map[int64]memberName, len(ids))
	var id int64
	var name memberName
	if _, err := pgx.ForEachRow(rows, []any{&id, &name.Workflow, &name.Key}, func() error { found[id] = name; return nil }); err != nil {
		return nil, fmt.Errorf("read schedules of timings: %w", err)
	}
	return found, nil
}

// shown returns the change as clients see it.
func (t *clockTally) shown(samples map[int64]memberName) ClockChange {
	c := ClockChange{
		At: t.At, Timezones: slices.Sorted(maps.Keys(t.zones)), Kind: "overlap", Schedules: int64(math.Round(t.affected)), Effects: []ClockEffect{},
		FromLocal: t.At.Add(time.Duration(t.Before) * time.Second).Format(localForm), ToLocal: t.At.Add(time.Duration(t.After) * time.Second).Format(localForm),
	}
	if t.Gap() {
		c.Kind = "gap"
	}
	for _, effect := range slices.Sorted(maps.Keys(t.effects)) {
		count := t.effects[effect]
		e := ClockEffect{Effect: effect, Count: int64(math.Round(count.n)), Sample: []ClockSample{}}
		for _, m := range count.sample {
			if name, found := samples[m.ID]; found {
				e.Sample = append(e.Sample, ClockSample{name.Workflow, name.Key, m.wall.Format(localForm)})
			}
		}
		c.Effects = append(c.Effects, e)
	}
	return c
}
