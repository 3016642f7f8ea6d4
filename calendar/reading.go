package calendar

// Reading is the timing in plain English.
func (t *Timing) Reading() string { return "" }
