package calendar

type exclusions struct{}

func (p plan) exclusions(Context, *Faults) *exclusions { return nil }

func timesOf(_, _, _ int64) *fields { return nil }

func (t *Timing) progressionTimes(everyPlan) *fields { return nil }

func (t *Timing) add(set wallSet, p policies, _ *exclusions, _ *fields) {
	t.sources = append(t.sources, &resolved{set: set, zone: t.zone, gap: p.Gap, overlap: p.Overlap})
}

func (t *Timing) addInstants(s source, _ *exclusions, _ *fields) {
	t.sources = append(t.sources, s)
}

func (k *compiler) readExclude() {
	if k.spec.Exclude != nil {
		k.faults.add("/exclude", "unsupported", "exclusions are not read")
	}
}
