package forecast

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

const secondsPerMinute = 60

// peakSteps is how many coming ticks of a timing Peak looks at to find a crowded minute.
const peakSteps = 300

// Peak warns of the most crowded minute in which a timing has a tick, if more
// ticks are due in that minute than ticks_per_second or a rate lets through.
func (w *Cached) Peak(t *calendar.Timing, workflow string, q tenants.Quotas, now time.Time) []calendar.Warning {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.latest
	if o == nil {
		return nil
	}
	worst, most := 0, 0.0
	at := now
	for range peakSteps {
		tick, ok := t.Next(at)
		if !ok {
			break
		}
		i, ok := o.minute(tick.At)
		if !ok {
			break
		}
		if o.minutes[i] > most {
			worst, most = i, o.minutes[i]
		}
		at = tick.At
	}
	return o.warn(worst, workflow, q)
}

// peakOfAll warns of the most crowded minute of all.
func (w *Cached) peakOfAll(q tenants.Quotas) []calendar.Warning {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.latest == nil {
		return nil
	}
	return w.latest.warn(w.latest.worst(), "", q)
}

func (o *estimate) worst() (at int) {
	for i, n := range o.minutes {
		if n > o.minutes[at] {
			at = i
		}
	}
	return at
}

// warn returns a warning if more ticks are due in a minute than ticks_per_second, or the rate of a workflow or an endpoint, lets through.
// It ignores rates that do not concern the workflow, if one is given. The warning names the rate that takes longest.
func (o *estimate) warn(minute int, workflow string, q tenants.Quotas) []calendar.Warning {
	ticks, perSecond, by := math.Round(o.minutes[minute]), float64(q.TicksPerSecond), "ticks_per_second"
	for _, l := range o.lanes {
		if n := math.Round(l.minutes[minute]); (workflow == "" || l.workflows[workflow]) && drainTime(n, l.perSecond) > drainTime(ticks, perSecond) {
			ticks, perSecond, by = n, l.perSecond, l.name
		}
	}
	if ticks <= perSecond*secondsPerMinute {
		return nil
	}
	drain := drainTime(ticks, perSecond)
	return []calendar.Warning{{
		Code: "peak_minute",
		Detail: fmt.Sprintf("in the minute of %s %.0f ticks are due, and %s allows %.0f a second: the last of them waits %s; a jitter of %s spreads them so that none waits",
			o.from.Add(time.Duration(minute)*time.Minute).Format(time.RFC3339), ticks, by, perSecond, policy.FormatDuration(drain), policy.FormatDuration(wholeMinutes(drain))),
	}}
}

// drainTime returns how long so many ticks take at a rate.
func drainTime(ticks, perSecond float64) time.Duration {
	return time.Duration(math.Ceil(ticks/perSecond)) * time.Second
}

// Fits returns a fault if t, which replaces another timing (nil: none), would give the stored schedules more ticks a day than the quota
// allows, on the average of a week. Otherwise Fits adds the difference to the forecast.
func (w *Cached) Fits(ts *cohorts.Timings, t, instead *calendar.Timing, q tenants.Quotas, now time.Time) error {
	more := float64(ts.Weekly(t, now))
	if instead != nil {
		more -= float64(ts.Weekly(instead, now))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.latest
	if o == nil { // there is no forecast yet; the first one will count what is stored already
		o = &estimate{}
	}
	if more > 0 && o.weekly+more > 7*float64(q.ProjectedTicksPerDay)+0.5 {
		return tenants.Exceeded("projected_ticks_per_day", q.ProjectedTicksPerDay, perDay(o.weekly))
	}
	o.weekly += more
	o.add(t, 1, addedSteps)
	if instead != nil {
		o.add(instead, -1, addedSteps)
	}
	return nil
}

// addedSteps is how many ticks of a schedule that was just stored are added to the minutes one by one.
const addedSteps = 50

// perDay is the daily part of a week's ticks, rounded up.
func perDay(weekly float64) int { return int(math.Ceil(weekly/7 - 1e-6)) }

// Warnings warns of the most crowded minute of a tenant, and of quotas that are nearly used.
func (f *Forecasts) Warnings(ctx context.Context, tenant tenants.ID) ([]calendar.Warning, error) {
	q, err := f.quotas(ctx, tenant)
	if err != nil {
		return nil, err
	}
	w := f.Of(ctx, tenant)
	return append(append([]calendar.Warning{}, w.peakOfAll(q)...), f.Soft(tenant, w, q)...), nil
}

// Projected is how many ticks a day the stored schedules of a tenant have, on the average of a week; 0 while that is not
// known.
func (f *Forecasts) Projected(ctx context.Context, tenant tenants.ID) (int, error) {
	return f.Of(ctx, tenant).projected(), nil
}

func (w *Cached) projected() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.latest == nil {
		return 0
	}
	return max(0, perDay(w.latest.weekly))
}

// Forecast compares the coming ticks of a tenant's stored schedules with what its quota lets through.
type Forecast struct {
	From                 time.Time          `json:"from"`
	To                   time.Time          `json:"to"`
	TicksPerSecond       int                `json:"ticks_per_second"`
	ProjectedTicksPerDay int64              `json:"projected_ticks_per_day"`
	Ticks                int64              `json:"ticks"`
	Peak                 *ForecastMinute    `json:"peak"`
	Peaks                []ForecastPeak     `json:"peaks"`
	Minutes              []ForecastMinute   `json:"minutes"`
	Warnings             []calendar.Warning `json:"warnings"`
	Truncated            bool               `json:"truncated"`
	Groups               []Group            `json:"groups,omitempty"` // only if the request asks for groups
}

// ForecastPeak is a minute in which more ticks are due than the quota lets through. DrainedAt is
// when the last tick that waits because of it is handed out, nil if that is after the forecast.
// With the jitter in each schedule that is due in the minute, none of its ticks waits.
type ForecastPeak struct {
	At        time.Time  `json:"at"`
	Ticks     int64      `json:"ticks"`
	DrainedAt *time.Time `json:"drained_at"`
	Jitter    string     `json:"jitter"`
}

// forecast returns the ticks of the hours ahead, of one workflow or of all, from the cache or, if that costs little, computed again.
func (f *Forecasts) forecast(ctx context.Context, tenant tenants.ID, workflow string, hours int) (*estimate, error) {
	w := f.Of(ctx, tenant)
	if (hours != defaultHours || workflow != "") && !w.slow() {
		return f.computeNow(ctx, tenant, workflow, time.Now(), hours)
	}
	name := cacheKey{tenant, defaultHours, workflow}
	if hours > defaultHours {
		name.hours = mostForecastHours
	}
	if hours > defaultHours || workflow != "" {
		w = f.cachedFor(ctx, name)
	}
	if o := w.first(hours); o != nil {
		return o, nil
	}
	if err := f.compute(ctx, name, w); err != nil {
		return nil, err
	}
	return w.first(hours), nil
}

// slow reports whether the forecast takes too long for a request to wait for it.
func (w *Cached) slow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heavy
}

// first returns a copy of the forecast's first hours; nil if none was computed yet.
func (w *Cached) first(hours int) *estimate {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.latest == nil {
		return nil
	}
	o := new(*w.latest)
	o.minutes = slices.Clone(o.minutes[:hours*60])
	o.lanes = slices.Clone(o.lanes)
	for i, l := range o.lanes {
		o.lanes[i] = new(*l)
		o.lanes[i].minutes = l.minutes[:hours*60]
	}
	return o
}

// ForecastMinute is one minute of a forecast: the ticks that are due in it, and those that wait for their turn at its end.
type ForecastMinute struct {
	At      time.Time `json:"at"`
	Ticks   int64     `json:"ticks"`
	Backlog int64     `json:"backlog"`
}

// Forecast returns the ticks that are due in each minute of the hours ahead, of one workflow or of all. Minutes without any, and without a
// backlog, are left out.
func (f *Forecasts) Forecast(ctx context.Context, tenant tenants.ID, workflow string, hours int) (out Forecast, err error) {
	q, err := f.quotas(ctx, tenant)
	if err != nil {
		return out, err
	}
	o, err := f.forecast(ctx, tenant, workflow, hours)
	if err != nil {
		return out, err
	}
	out = Forecast{
		From: o.from, To: o.from.Add(time.Duration(hours) * time.Hour), TicksPerSecond: q.TicksPerSecond,
		ProjectedTicksPerDay: int64(perDay(o.weekly)), Peaks: o.peaks(q),
		Minutes: []ForecastMinute{}, Warnings: append([]calendar.Warning{}, o.warn(o.worst(), workflow, q)...), Truncated: o.truncated,
	}
	queues := o.queues(q)
	for i, n := range o.minutes {
		m := ForecastMinute{o.at(i), max(0, int64(math.Round(n))), int64(math.Round(queues[i].backlog))}
		out.Ticks += m.Ticks
		if m.Ticks == 0 && m.Backlog == 0 {
			continue
		}
		out.Minutes = append(out.Minutes, m)
		if out.Peak == nil || m.Ticks > out.Peak.Ticks {
			out.Peak = &out.Minutes[len(out.Minutes)-1]
		}
	}
	if out.Peak != nil {
		out.Peak = new(*out.Peak)
	}
	return out, nil
}

// at returns when a minute begins.
func (o *estimate) at(minute int) time.Time { return o.from.Add(time.Duration(minute) * time.Minute) }

// peaks returns one minute for each backlog: of the minutes in which the backlog grows, the one with the most due ticks.
func (o *estimate) peaks(q tenants.Quotas) []ForecastPeak {
	peaks := []ForecastPeak{}
	before := 0.0
	most, worst := 0.0, -1 // of the current backlog
	for i, w := range o.queues(q) {
		if n := o.minutes[i]; w.backlog > before+leastBacklog && n > most {
			most, worst = n, i
		}
		if before = w.backlog; w.backlog <= leastBacklog && worst >= 0 {
			peaks = append(peaks, o.peak(worst, new(o.at(i).Add(time.Duration(w.share*float64(time.Minute))).Truncate(time.Second)), q))
			most, worst = 0, -1
		}
	}
	if worst >= 0 {
		peaks = append(peaks, o.peak(worst, nil, q))
	}
	return peaks
}

// leastBacklog is the smallest backlog that counts. A smaller one is a rounding error.
const leastBacklog = 1e-6

func (o *estimate) peak(minute int, drained *time.Time, q tenants.Quotas) ForecastPeak {
	return ForecastPeak{
		At: o.at(minute), Ticks: int64(math.Round(o.minutes[minute])), DrainedAt: drained,
		Jitter: policy.FormatDuration(wholeMinutes(o.longestDrain(minute, q))),
	}
}

// wholeMinutes rounds a time up.
func wholeMinutes(d time.Duration) time.Duration { return (d + time.Minute - 1).Truncate(time.Minute) }
