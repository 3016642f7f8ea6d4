package calendar

import "slices"

// build returns the timing of a plan. It returns faults for zones and calendars that the context lacks, and for exclusions that cost too
// much to compute.
func (p plan) build(c Context) (*Timing, Faults) {
	var faults Faults
	zones := c.zones()
	if !zones.Has(p.Zone) {
		faults.add("/timezone", "unknown_timezone", "%s", unknownZone(zones, p.Zone))
		return nil, faults
	}
	out := p.exclusions(c, &faults)
	if len(faults) > 0 {
		return nil, faults
	}
	t := p.timing(zones, out)
	if t.tooComplex {
		faults.add("/exclude", "too_complex", "the exclusions with times cost too much to compute: use fewer calendars")
		return nil, faults
	}
	return t, nil
}

// timing returns the timing of a plan. zones has the plan's zone. out are the plan's exclusions, or nil.
func (p plan) timing(zones *Zones, out *exclusions) *Timing {
	t := &Timing{plan: p, zones: zones, zone: zones.zone(p.Zone), out: out, quiet: p.Quiet.week(), end: maxWall}
	t.hash = t.hashedOnce()
	if p.Start != nil {
		t.start = *p.Start
	}
	if p.End != nil {
		t.end = *p.End
	}
	var classes []Class
	for _, f := range p.Fields {
		set := newFieldSet(f.fields, nil)
		classes = append(classes, fieldClass(f.fields))
		if set.rule != noDay {
			t.add(set, f.policies, out, &set.fields)
		}
	}
	for _, e := range p.Every {
		classes = append(classes, classOf(e.Civil))
		t.addEvery(e, out)
	}
	if p.Rule != nil {
		classes = append(classes, t.addRule(p.Rule, out))
	}
	relative, instants := p.relativeTimes(t.zone)
	for _, w := range byPolicy(slices.Concat(p.Walls, relative)) {
		classes = append(classes, ClassFixed)
		t.add(w.list, w.policies, out, nil)
	}
	if instants = slices.Concat(p.Moments, instants); len(instants) > 0 {
		classes = append(classes, ClassFixed)
		slices.Sort(instants)
		t.addInstants(moments(instants), out, nil)
	}
	t.class = oneClass(classes)
	t.move()
	if out != nil {
		out.dead = nil
	}
	return t
}

func fieldClass(f fields) Class {
	if f.Hours == allHours {
		return ClassEveryHour
	}
	return ClassFixed
}

// oneClass returns the common class of all members, or mixed.
func oneClass(all []Class) Class {
	all = slices.Compact(slices.Sorted(slices.Values(all)))
	if len(all) == 1 {
		return all[0]
	}
	return ClassMixed
}

func (t *Timing) addEvery(e everyPlan, out *exclusions) {
	if e.Delay {
		t.delay = &delay{every: e.Every, civil: e.Civil}
		return
	}
	since := int64(0)
	if e.Since != nil {
		since = *e.Since
	}
	if e.Civil {
		set := &days{every: e.Every, phase: e.Phase}
		if e.Since != nil {
			set.since = t.zone.wall(since)
		}
		t.add(set, e.policies, out, timesOf(e.Phase, daySeconds, 0))
		return
	}
	t.addInstants(&progression{every: e.Every, phase: e.Phase, since: since}, out, t.progressionTimes(e, out))
}

// wallsOf are the single wall times with the same policies.
type wallsOf struct {
	policies
	list walls
}

func byPolicy(plans []wallPlan) []wallsOf {
	var groups []wallsOf
	for _, p := range plans {
		i := slices.IndexFunc(groups, func(g wallsOf) bool { return g.policies == p.policies })
		if i < 0 {
			i = len(groups)
			groups = append(groups, wallsOf{policies: p.policies})
		}
		groups[i].list = append(groups[i].list, p.Wall)
	}
	for _, g := range groups {
		slices.Sort(g.list)
	}
	return groups
}
