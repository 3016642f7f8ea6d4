package calendar

import (
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// Warning describes an effect of a spec that its author may not expect. Code is stable and in snake_case.
type Warning struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// warnAhead is how many days ahead Warnings considers changes of the clock: 24 months.
const warnAhead = 731

// noteDialect adds warnings for expressions that other cron libraries interpret differently.
func (k *compiler) noteDialect(text string, r cronReading) {
	note := func(code, format string, args ...any) {
		k.notes = append(k.notes, Warning{code, fmt.Sprintf(format, args...)})
	}
	short := fmt.Sprintf("%.60q", text)
	if n := len(strings.Fields(text)); !strings.Contains(text, "@") && n > 5 {
		note("dialect", "%s has %d fields: read with seconds first; others read a year last or refuse it", short, n)
	}
	if (r.domStep && !r.dowStar) || (r.dowStep && !r.domStar) {
		note("dialect", "%s has a step after * in one field of days and a list in the other: both must match here, as in Vixie's cron; others fire when one does", short)
	}
	if r.hashed {
		note("hashed", "%s has an H, which stands for a value of the schedule's own", short)
	}
}

// Warnings returns the unexpected effects of the timing, including changes of the clock in the 24 months after now. Warnings about the
// spec's text exist only for a timing from Compile.
func (t *Timing) Warnings(now time.Time) []Warning {
	list := append([]Warning(nil), t.notes...)
	if t.delay != nil {
		return append(list, Warning{"depends_on_run", "each tick comes after the run before it has ended, so coming times are estimates"})
	}
	if _, ok := t.Next(now); !ok {
		list = append(list, Warning{"never_fires", "there is no tick after " + t.stamp(now.Unix())})
	}
	for _, f := range t.plan.Fields {
		list = append(list, f.warnings()...)
	}
	if t.plan.Rule != nil {
		if f, ok := t.plan.Rule.fields(); ok {
			list = append(list, f.warnings()...)
		}
	}
	if t.plan.Jitter == 0 && t.onTheHour() {
		list = append(list, Warning{"round_minute", "many schedules fire at minute 0: a jitter, or H for the minute, spreads them"})
	}
	return unique(append(list, t.clockWarnings(now)...))
}

func unique(list []Warning) []Warning {
	seen := map[Warning]bool{}
	out := list[:0]
	for _, w := range list {
		if !seen[w] {
			out = append(out, w)
		}
		seen[w] = true
	}
	return out
}

func (t *Timing) onTheHour() bool {
	for _, f := range t.plan.Fields {
		if f.Seconds == 1 && f.Minutes == 1 && f.Hours != allHours {
			return true
		}
	}
	return false
}

func (f *fields) warnings() []Warning {
	var list []Warning
	if f.Or {
		list = append(list, Warning{"day_or_day", "day of month and day of week are both given: it fires when either matches; day_match: and asks for both"})
	}
	late := f.Days &^ (1<<29 - 1)
	switch {
	case bits.OnesCount32(f.Days) > mostListed || late == 0 || f.Or && f.Week != 0:
	case f.Months == 1<<2 && f.Days == 1<<29 && f.Last|f.Nearest == 0:
		list = append(list, Warning{"leap_years_only", "29 February comes in leap years only"})
	default:
		list = append(list, Warning{"short_months", fmt.Sprintf("months without day %d have no tick for it; L is the last day of each", bits.Len32(late)-1)})
	}
	return list
}

// clockWarnings returns warnings for the ticks that changes of the zone's clock affect.
func (t *Timing) clockWarnings(now time.Time) []Warning {
	var gaps, overlaps []string
	z := t.zone
	until := now.Unix() + warnAhead*daySeconds
	for i := z.find(now.Unix()) + 1; i < len(z.starts) && z.starts[i] < until; i++ {
		before, after := z.starts[i]+z.offset(i-1), z.starts[i]+z.offset(i)
		for _, r := range t.resolvedSources() {
			low, high := min(before, after), max(before, after)
			w, ok := r.set.next(low)
			if !ok || w >= high {
				continue
			}
			another, ok := r.set.next(w + 1)
			several := ok && another < high
			if before < after {
				gaps = append(gaps, gapDetail(r.gap, w, low, high, several))
				continue
			}
			overlaps = append(overlaps, overlapDetail(r.overlap, w, low, high, several))
		}
	}
	var list []Warning
	if len(gaps) > 0 {
		list = append(list, Warning{"dst_gap", joinDetails(gaps)})
	}
	if len(overlaps) > 0 {
		list = append(list, Warning{"dst_overlap", joinDetails(overlaps)})
	}
	return list
}

func joinDetails(list []string) string {
	const most = 4
	if len(list) > most {
		list = append(list[:most:most], fmt.Sprintf("and %d more", len(list)-most))
	}
	return strings.Join(list, "; ")
}

// gapDetail describes the effect of a gap on the tick at w, or on several ticks from w on.
func gapDetail(policy gapPolicy, w, low, high wall, several bool) string {
	text := fmt.Sprintf("on %s the clock skips from %s to %s: ", date(low), clock(low), clock(high))
	if several {
		return text + "the ticks from " + clock(w) + " on " + [...]string{
			gapSkip: "are left out", gapNextValid: "come as one at " + clock(high), gapShiftForward: "come from " + clock(w+high-low) + " on",
		}[policy]
	}
	return text + "the tick at " + clock(w) + " " + [...]string{
		gapSkip: "is left out", gapNextValid: "comes at " + clock(high), gapShiftForward: "comes at " + clock(w+high-low),
	}[policy]
}

// overlapDetail describes the effect of an overlap on the tick at w, or on several ticks from w on.
func overlapDetail(policy overlapPolicy, w, low, high wall, several bool) string {
	text := fmt.Sprintf("on %s the clock shows %s to %s twice: the tick at %s comes ", date(low), clock(low), clock(high), clock(w))
	if several {
		text = fmt.Sprintf("on %s the clock shows %s to %s twice: the ticks from %s on come ", date(low), clock(low), clock(high), clock(w))
	}
	return text + [...]string{overlapFirst: "once, the first time", overlapLast: "once, the second time", overlapBoth: "both times"}[policy]
}

func date(w wall) string  { return time.Unix(w, 0).UTC().Format(time.DateOnly) }
func clock(w wall) string { return time.Unix(w, 0).UTC().Format("15:04") }

// resolvedSources returns the timing's sets of wall times.
func (t *Timing) resolvedSources() []*resolved {
	var list []*resolved
	for _, s := range t.sources {
		if rule, ok := s.(*ruleSource); ok {
			s = rule.rule
		}
		if r, ok := s.(*resolved); ok {
			list = append(list, r)
		}
	}
	return list
}
