package calendar

type rulePlan struct{}

func (t *Timing) addRule(*rulePlan, *exclusions) Class { return ClassFixed }

func (k *compiler) readRule() {
	if k.spec.RRule != "" {
		k.faults.add("/rrule", "unsupported", "rules are not read")
	}
}
