package calendar

type exclusions struct{}

func (p plan) exclusions(Context, *Faults) *exclusions { return nil }

func timesOf(_, _, _ int64) *fields { return nil }

func (t *Timing) progressionTimes(everyPlan) *fields { return nil }

func (t *Timing) add(set wallSet, p policies, out *exclusions, times *fields) {
	t.sources = append(t.sources, t.resolve(set, p, out, times))
}

func (t *Timing) resolve(set wallSet, p policies, _ *exclusions, _ *fields) source {
	return &resolved{set: set, zone: t.zone, gap: p.Gap, overlap: p.Overlap}
}

func (t *Timing) addInstants(s source, out *exclusions, times *fields) {
	t.sources = append(t.sources, t.instants(s, out, times)...)
}

func (t *Timing) instants(s source, _ *exclusions, _ *fields) []source { return []source{s} }

func (k *compiler) readExclude() {
	if k.spec.Exclude != nil {
		k.faults.add("/exclude", "unsupported", "exclusions are not read")
	}
}
