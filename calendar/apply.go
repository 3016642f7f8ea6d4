package calendar

// allTimes matches all times of a day.
var allTimes = &fields{Hours: allHours, Minutes: allSixty, Seconds: allSixty}

// timesOf returns a superset of the times of day of phase + n × every, on a clock that is off seconds ahead.
func timesOf(phase, every, off int64) *fields {
	step := gcd(every, daySeconds)
	if step == 1 {
		return allTimes
	}
	f := &fields{}
	first := floorMod(phase+off, daySeconds)
	for at := first % step; at < daySeconds; at += step {
		f.Hours |= 1 << (at / 3600)
		f.Minutes |= 1 << (at / 60 % 60)
		f.Seconds |= 1 << (at % 60)
	}
	return f
}

// progressionTimes returns the times of day that the zone's clock can show at the instants of an interval; nil without timed exclusions.
func (t *Timing) progressionTimes(e everyPlan, out *exclusions) *fields {
	if out == nil || len(out.times) == 0 {
		return nil
	}
	f := &fields{}
	seen := map[int32]bool{}
	for _, off := range t.zone.offsets {
		if seen[off] {
			continue
		}
		seen[off] = true
		one := timesOf(e.Phase, e.Every, int64(off))
		f.Hours |= one.Hours
		f.Minutes |= one.Minutes
		f.Seconds |= one.Seconds
	}
	return f
}

// add adds the instants of a set of wall times, without the excluded ones. times contains all times of day of the set; nil: any.
func (t *Timing) add(set wallSet, p policies, out *exclusions, times *fields) {
	t.sources = append(t.sources, t.resolve(set, p, out, times))
}

func (t *Timing) resolve(set wallSet, p policies, out *exclusions, times *fields) source {
	if out != nil {
		set = t.less(set, out, times)
	}
	return &resolved{set: set, zone: t.zone, gap: p.Gap, overlap: p.Overlap}
}

// less returns the set without its excluded wall times, or with them moved.
func (t *Timing) less(set wallSet, out *exclusions, times *fields) wallSet {
	if times == nil {
		times = allTimes
	}
	blocked, ok := out.blocked(times, out.then != "")
	if !ok {
		t.tooComplex = true
		return set
	}
	if out.then != "" {
		set = &moved{set: set, days: out.days, back: out.then == "previous"}
	} else if f, ok := set.(*fieldSet); ok && len(out.times) == 0 {
		return newFieldSet(f.fields, blocked)
	} else if ok {
		set = newFieldSet(f.fields, blocked)
	}
	if len(out.times) == 0 && out.then != "" {
		return set
	}
	return &filtered{set: set, times: times, blocked: blocked, out: out}
}

func (t *Timing) addInstants(s source, out *exclusions, times *fields) {
	t.sources = append(t.sources, t.instants(s, out, times)...)
}

// instants returns a set of instants without the excluded ones. If exclusions move, a second set has the moved ones.
func (t *Timing) instants(s source, out *exclusions, times *fields) []source {
	if out == nil {
		return []source{s}
	}
	if times == nil {
		times = allTimes
	}
	blocked, ok := out.blocked(times, false)
	if !ok {
		t.tooComplex = true
		return []source{s}
	}
	list := []source{&filteredInstants{set: s, zone: t.zone, times: times, blocked: blocked, out: out}}
	if out.then == "" {
		return list
	}
	var set wallSet = &moved{set: &shown{s, t.zone}, days: out.days, back: out.then == "previous", alone: true}
	if len(out.times) > 0 {
		dead, _ := out.blocked(times, true)
		set = &filtered{set: set, times: times, blocked: dead, out: &exclusions{days: &dates{}, times: out.times}}
	}
	return append(list, &resolved{set: set, zone: t.zone, gap: gapShiftForward, overlap: overlapFirst})
}
