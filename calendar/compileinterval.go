package calendar

import (
	"fmt"
	"time"
)

func (k *compiler) readIntervals() {
	if len(k.spec.Intervals) > maxMembers {
		k.faults.add("/intervals", "too_many", "at most %d intervals", maxMembers)
		return
	}
	for i, v := range k.spec.Intervals {
		k.readInterval(fmt.Sprintf("/intervals/%d", i), v)
	}
	k.placeFirst()
}

func (k *compiler) readInterval(pointer string, v Interval) {
	before := len(k.faults)
	every, civil, err := parseDuration(v.Every)
	switch {
	case err != nil:
		k.faults.add(pointer+"/every", "duration_syntax", "%s", err)
	case every < time.Second || every > maxEvery:
		k.faults.add(pointer+"/every", "every_out_of_range", "every is from 1s to 3660d")
	case !civil && mixesDays(v.Every):
		k.faults.add(pointer+"/every", "every_mixed", "%q mixes days, counted on the zone's clock, with elapsed time: use 24h for an elapsed day", v.Every)
	}
	var offset time.Duration
	if v.Offset != "" {
		if offset, _, err = parseDuration(v.Offset); err != nil {
			k.faults.add(pointer+"/offset", "duration_syntax", "%s", err)
		}
	}
	aligned := v.Mode == "" || v.Mode == "aligned"
	switch v.Mode {
	case "", "aligned", "fixed_rate", "fixed_delay":
	default:
		k.faults.add(pointer+"/mode", "unknown_value", "mode is aligned, fixed_rate or fixed_delay, not %q", v.Mode)
	}
	switch v.First {
	case "", "after":
	case "now":
		if aligned {
			k.faults.add(pointer+"/first", "first_of_aligned", "an aligned interval has its times fixed: first is for fixed_rate and fixed_delay")
		}
	default:
		k.faults.add(pointer+"/first", "unknown_value", "first is after or now, not %q", v.First)
	}
	if !aligned && v.Offset != "" {
		k.faults.add(pointer+"/offset", "offset_not_aligned", "offset is for aligned intervals")
	}
	if v.Mode == "fixed_delay" && !k.alone() {
		k.faults.add(pointer+"/mode", "fixed_delay_alone", "fixed_delay stands alone in a spec, without exclusions")
	}
	if len(k.faults) > before {
		return
	}
	seconds := int64(every / time.Second)
	switch v.Mode {
	case "fixed_rate":
		k.addRate(v, seconds, civil)
	case "fixed_delay":
		k.plan.Every = append(k.plan.Every, everyPlan{Every: seconds, Civil: civil, Delay: true})
		if v.First == "now" {
			k.first = firstNow
		}
	default:
		k.addEvery(everyPlan{Every: seconds, Phase: floorMod(int64(offset/time.Second), seconds), Civil: civil})
	}
}

func mixesDays(text string) bool {
	for _, c := range text {
		if c == 'd' || c == 'w' {
			return true
		}
	}
	return false
}

func classOf(civil bool) Class {
	if civil {
		return ClassFixed
	}
	return ClassElapsed
}

// alone reports whether the spec has one interval and nothing else.
func (k *compiler) alone() bool {
	s := k.spec
	return len(s.Intervals) == 1 && len(s.Cron)+len(s.Calendars)+len(s.At)+len(s.Relative) == 0 && s.RRule == "" && s.Exclude == nil
}

// addRate adds an interval with its anchor at start_at or at the schedule's creation.
func (k *compiler) addRate(v Interval, every int64, civil bool) {
	phase := k.anchor
	if civil {
		phase = k.zone.wall(k.anchor)
	}
	p := everyPlan{Every: every, Phase: floorMod(phase, every), Civil: civil}
	if k.plan.Start == nil {
		// If the spec has no other member, the schedule itself stores the bound of its creation, and schedules can share the timing.
		only := len(k.spec.Cron)+len(k.spec.Intervals) == 1 && len(k.spec.Calendars)+len(k.spec.At)+len(k.spec.Relative) == 0 && k.spec.RRule == ""
		switch {
		case only && v.First == "now":
			k.first = firstNow
		case only:
			k.first = firstAnchorless
		default:
			since := k.anchor
			if v.First != "now" {
				since++
			}
			p.Since = &since
		}
	}
	k.addEvery(p)
}

func (k *compiler) addEvery(p everyPlan) {
	if p.Civil {
		p.policies = k.policy(ClassFixed)
	}
	k.plan.Every = append(k.plan.Every, p)
}

// placeFirst lets ticks begin at the creation itself if any interval has first: now.
func (k *compiler) placeFirst() {
	if k.plan.Start != nil {
		return
	}
	for _, v := range k.spec.Intervals {
		if v.First == "now" {
			k.first = firstNow
		}
	}
}
