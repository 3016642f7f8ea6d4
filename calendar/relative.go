package calendar

import (
	"fmt"
	"strings"
	"time"
)

// The limits of a relative time, in both directions.
const (
	maxRelativeDays = 3660
	maxRelative     = maxRelativeDays * 24 * time.Hour
)

// relativePlan is a time that is computed from a moment: To plus Offset seconds or, if Civil, the wall time At on the day that is Days
// after the date which the zone's clock shows at the moment. To is a wall time if Wall, otherwise an instant.
type relativePlan struct {
	policies
	To     int64 `json:"to"`
	Wall   bool  `json:"wall,omitempty"`
	Offset int64 `json:"offset,omitempty"` // seconds
	Civil  bool  `json:"civil,omitempty"`
	Days   int   `json:"days,omitempty"`
	At     int   `json:"at,omitempty"` // seconds of the day
}

// moment returns the instant from which the time is computed. A wall time in a gap moves forward; in an overlap it is the first one.
func (r relativePlan) moment(z *zone) int64 {
	if r.Wall {
		return z.instant(r.To)
	}
	return r.To
}

// day returns the day of a civil time.
func (r relativePlan) day(z *zone) int {
	day, _ := splitWall(z.wall(r.moment(z)))
	return day + r.Days
}

// wall returns the wall time of a civil time.
func (r relativePlan) wall(z *zone) wall { return wall(r.day(z))*daySeconds + wall(r.At) }

// relativeTimes returns the wall times and the instants of the plan's relative times in a zone, without those before 1970.
func (p *plan) relativeTimes(z *zone) (list []wallPlan, instants []int64) {
	for _, r := range p.Relative {
		if !r.Civil {
			if at := r.moment(z) + r.Offset; at >= 0 {
				instants = append(instants, at)
			}
			continue
		}
		if w := r.wall(z); w >= 0 {
			list = append(list, wallPlan{r.policies, w})
		}
	}
	return list, instants
}

func (k *compiler) readRelative() {
	if len(k.spec.Relative) > maxAt {
		k.faults.add("/relative", "too_many", "at most %d relative times", maxAt)
		return
	}
	for i, v := range k.spec.Relative {
		k.readOneRelative(fmt.Sprintf("/relative/%d", i), v)
	}
}

func (k *compiler) readOneRelative(pointer string, v Relative) {
	before := len(k.faults)
	to, isWall, _ := k.time(pointer+"/to", v.To)
	r := relativePlan{To: to, Wall: isWall}
	switch {
	case v.Offset != "" && (v.Days != nil || v.At != ""):
		k.faults.add(pointer, "relative_form", "a relative time has either offset, or days and at")
	case v.Offset != "":
		r.Offset = k.offset(pointer+"/offset", v.Offset)
	case v.Days == nil && v.At == "":
		k.faults.add(pointer, "relative_form", "a relative time needs offset, or days and at")
	case v.Days == nil:
		k.faults.add(pointer+"/days", "relative_form", "at needs days: the number of days after the date of to, negative before it")
	case v.At == "":
		k.faults.add(pointer+"/at", "relative_form", "days needs at: a time of day like 10:00 or 10:00:30")
	default:
		r.Civil, r.Days, r.policies = true, *v.Days, k.policy(ClassFixed)
		if r.Days < -maxRelativeDays || r.Days > maxRelativeDays {
			k.faults.add(pointer+"/days", "out_of_range", "days is from -%d to %d", maxRelativeDays, maxRelativeDays)
		}
		r.At = k.timeOfDay(pointer+"/at", v.At)
	}
	if len(k.faults) > before {
		return
	}
	last := to
	if !isWall {
		last = k.zone.wall(to)
	}
	if last+r.Offset > maxWall-daySeconds || last+int64(r.Days)*daySeconds > maxWall-daySeconds {
		k.faults.add(pointer, "time_out_of_range", "the time is after %d, the last year that is computed", maxYear)
		return
	}
	k.plan.Relative = append(k.plan.Relative, r)
}

// offset parses an elapsed duration, which may be negative, and returns its seconds.
func (k *compiler) offset(pointer, text string) int64 {
	positive, negative := strings.CutPrefix(text, "-")
	d, _, err := parseDuration(positive)
	switch {
	case err != nil:
		k.faults.add(pointer, "duration_syntax", "%q is not a duration like 30m, -24h or -1d", text)
	case d > maxRelative:
		k.faults.add(pointer, "out_of_range", "offset is from -%dd to %dd", maxRelativeDays, maxRelativeDays)
	}
	if negative {
		d = -d
	}
	return int64(d / time.Second)
}

// timeOfDay parses a time of day like 10:00 or 10:00:30, and returns its seconds.
func (k *compiler) timeOfDay(pointer, text string) int {
	layout := "15:04:05"
	if len(text) == len("15:04") {
		layout = "15:04"
	}
	t, err := time.Parse(layout, text)
	if err != nil || len(text) != len(layout) {
		k.faults.add(pointer, "time_syntax", "%.40q is not a time of day like 10:00 or 10:00:30", text)
		return 0
	}
	return t.Hour()*3600 + t.Minute()*60 + t.Second()
}

// relativeReading describes the relative times.
func (t *Timing) relativeReading() []string {
	var list []string
	for _, r := range t.plan.Relative {
		list = append(list, t.oneRelativeReading(r))
	}
	if len(list) > mostListed {
		return []string{fmt.Sprintf("at %d relative times", len(list))}
	}
	return list
}

func (t *Timing) oneRelativeReading(r relativePlan) string {
	if !r.Civil {
		text := t.stamp(r.moment(t.zone))
		switch {
		case r.Offset < 0:
			return offsetReading(-r.Offset) + " before " + text
		case r.Offset > 0:
			return offsetReading(r.Offset) + " after " + text
		}
		return "at " + text
	}
	clock := fmt.Sprintf("at %02d:%02d", r.At/3600, r.At/60%60)
	if r.At%60 != 0 {
		clock += fmt.Sprintf(":%02d", r.At%60)
	}
	date := dateOf(r.day(t.zone) - r.Days).String()
	switch {
	case r.Days < 0:
		return fmt.Sprintf("%s, %s before %s", clock, plural(-r.Days, "day"), date)
	case r.Days > 0:
		return fmt.Sprintf("%s, %s after %s", clock, plural(r.Days, "day"), date)
	}
	return clock + " on " + date
}

// offsetReading describes an elapsed time in hours or smaller units, because a day of the calendar may have 23 hours.
func offsetReading(seconds int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"hour", 3600}, {"minute", 60}} {
		if seconds%u.size == 0 {
			return plural(int(seconds/u.size), u.name)
		}
	}
	return plural(int(seconds), "second")
}
