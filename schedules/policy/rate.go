package policy

import (
	"time"

	"github.com/carillonhq/carillon/internal/fault"
)

// Rate limits how many ticks a second go out for a workflow, or to an endpoint. After a pause of more than a minute the rate rises
// evenly from a tenth, over Ramp.
type Rate struct {
	PerSecond int32  `json:"per_second"`
	Ramp      string `json:"ramp,omitempty"` // a duration; empty: the whole rate at once
}

const (
	mostPerSecond = 100_000
	longestRamp   = 24 * time.Hour
)

// Check returns what is wrong with the rate at a place of a body. A nil rate is no limit.
func (r *Rate) Check(pointer string) error {
	if r == nil {
		return nil
	}
	var errs []error
	if r.PerSecond < 1 || r.PerSecond > mostPerSecond {
		errs = append(errs, fault.Invalid(pointer+"/per_second", "%d is not between 1 and %d", r.PerSecond, mostPerSecond))
	}
	if r.Ramp != "" {
		_, err := Within(pointer+"/ramp", r.Ramp, time.Second, longestRamp)
		errs = append(errs, err)
	}
	return fault.Join(errs...)
}

// Stored returns the rate as it is stored: ticks a second, and the seconds of the ramp. Both are nil for no limit.
func (r *Rate) Stored() (perSecond, ramp *int32) {
	if r == nil {
		return nil, nil
	}
	if d, is := ParseDuration(r.Ramp); is {
		ramp = new(int32(d / time.Second))
	}
	return &r.PerSecond, ramp
}

// RateOf returns a stored rate; nil if there is none.
func RateOf(perSecond, ramp *int32) *Rate {
	if perSecond == nil {
		return nil
	}
	r := &Rate{PerSecond: *perSecond}
	if ramp != nil {
		r.Ramp = shown(*ramp)
	}
	return r
}

// Expect is what a tenant expects of the ticks of a workflow. It is told when they are later than that.
type Expect struct {
	HandedOutWithin string `json:"handed_out_within,omitempty"` // a duration from the nominal time; empty: nothing is expected
	EndedWithin     string `json:"ended_within,omitempty"`      // likewise
}

const longestExpected = 7 * 24 * time.Hour

// Check returns what is wrong with the expectations at a place of a body. Nil: nothing is expected.
func (e *Expect) Check(pointer string) error {
	if e == nil {
		return nil
	}
	if *e == (Expect{}) {
		return fault.Invalid(pointer, "give handed_out_within, ended_within or both")
	}
	var errs []error
	for name, text := range map[string]string{"/handed_out_within": e.HandedOutWithin, "/ended_within": e.EndedWithin} {
		if text != "" {
			_, err := Within(pointer+name, text, time.Second, longestExpected)
			errs = append(errs, err)
		}
	}
	return fault.Join(errs...)
}

// Stored returns the expectations in seconds; nil where nothing is expected.
func (e *Expect) Stored() (handedOut, ended *int32) {
	if e == nil {
		return nil, nil
	}
	seconds := func(text string) *int32 {
		d, is := ParseDuration(text)
		if !is {
			return nil
		}
		return new(int32(d / time.Second))
	}
	return seconds(e.HandedOutWithin), seconds(e.EndedWithin)
}

// ExpectOf returns stored expectations; nil if there are none.
func ExpectOf(handedOut, ended *int32) *Expect {
	if handedOut == nil && ended == nil {
		return nil
	}
	e := &Expect{}
	if handedOut != nil {
		e.HandedOutWithin = shown(*handedOut)
	}
	if ended != nil {
		e.EndedWithin = shown(*ended)
	}
	return e
}
