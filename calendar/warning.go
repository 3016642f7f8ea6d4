package calendar

import "time"

// Warning is something about a spec that its author may not expect. Code is stable and snake_case.
type Warning struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Warnings are what may surprise about the timing in the 24 months after now.
func (t *Timing) Warnings(now time.Time) []Warning { return t.notes }

func (k *compiler) noteDialect(text string, r cronReading) {}
