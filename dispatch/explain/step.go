package explain

import (
	"fmt"
	"time"

	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/schedules/policy"
)

// Step is one stage on the way of a tick, in the order of the way: the version of the schedule, its state, its timing, the tick, each
// attempt, and the end. A tick that does not come ends at the stage that decides this. Link is the route that shows more.
type Step struct {
	At      time.Time `json:"at"`
	What    string    `json:"what"`
	Outcome string    `json:"outcome"`
	Detail  string    `json:"detail"`
	Link    string    `json:"link,omitempty"`
}

// The stages of a tick's way.
const (
	stepVersion   = "version"    // the version of the schedule that decides about the time
	stepTiming    = "timing"     // whether that version names the time
	stepSchedule  = "schedule"   // whether the schedule fires at the time
	stepHandedOut = "handed_out" // the tick is handed out to a worker
	stepAttempt   = "attempt"    // an ended attempt at the tick
	stepTick      = "tick"       // what became of the tick
)

// The outcomes of a step that are neither the outcome of an explanation nor of an attempt.
const (
	stepInForce = "in_force"
	stepDue     = "due"
	stepOnTime  = "on_time"
	stepLate    = "late"
)

// lateFrom is the delay from which a tick is called late.
const lateFrom = time.Second

// steps returns the way of the tick of the moment, with the words of its explanation. schedule is the path of the schedule.
func (k *known) steps(e *Explanation, schedule string) []Step {
	var way []Step
	v := k.version(k.at)
	if v != nil && e.Outcome != outcomeBeforeCreated && v.timing != nil {
		detail := fmt.Sprintf("This version fires %s; it holds from %s on.", v.timing.Reading(), k.clock(latest(v.from, k.created)))
		if !v.to.IsZero() {
			detail = fmt.Sprintf("The version of that time fired %s; it held until %s.", v.timing.Reading(), k.clock(v.to))
		}
		way = append(way, Step{At: latest(v.from, k.created), What: stepVersion, Outcome: stepInForce, Detail: detail, Link: schedule + "/revisions"})
	}
	t := e.Tick
	if t == nil || !t.Timestamp.Equal(k.at) {
		return append(way, Step{At: k.at, What: decidedBy(e.Outcome), Outcome: e.Outcome, Detail: e.Detail})
	}
	if v != nil && v.timing != nil && t.Cause != record.Manual.String() && v.names(k.at) {
		way = append(way, Step{At: k.at, What: stepTiming, Outcome: stepDue, Detail: fmt.Sprintf("The version names %s.", k.clock(k.at))})
	}
	if t.Attempt > 0 {
		late := t.Late()
		out := Step{At: t.Fired(), What: stepHandedOut, Outcome: stepOnTime, Detail: fmt.Sprintf("The tick was handed out %s after its time.", span(late))}
		if late >= lateFrom {
			out.Outcome = stepLate
		}
		way = append(way, out)
	}
	for _, a := range t.Attempts {
		way = append(way, attemptStep(a))
	}
	end := Step{At: t.Fired(), What: stepTick, Outcome: e.Outcome, Detail: e.Detail, Link: "/v1/ticks/" + t.TickID}
	if t.EndedAt != nil {
		end.At = *t.EndedAt
	}
	return append(way, end)
}

// decidedBy returns the stage at which it is decided that there is no tick, or none yet.
func decidedBy(outcome string) string {
	switch outcome {
	case outcomeNotDue, outcomeExcluded, outcomeGap, outcomeAfterEnd:
		return stepTiming
	case outcomePaused, outcomeBeforeCreated:
		return stepSchedule
	}
	return stepTick
}

func attemptStep(a history.Attempt) Step {
	detail := fmt.Sprintf("Attempt %d: %s", a.Attempt, attemptWords[a.Outcome])
	if a.TookMS != nil {
		detail += fmt.Sprintf(" after %s", span(time.Duration(*a.TookMS)*time.Millisecond))
	}
	if a.Worker != nil {
		detail += fmt.Sprintf(" at worker %q", *a.Worker)
	}
	if a.Error != nil && *a.Error != "" {
		detail += fmt.Sprintf(" (%.200q)", *a.Error)
	}
	return Step{At: a.EndedAt, What: stepAttempt, Outcome: a.Outcome, Detail: detail + "."}
}

// span writes a duration: below a second in milliseconds, else in whole seconds.
func span(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return policy.FormatDuration(d.Truncate(time.Second))
}

// attemptWords says how an attempt ended.
var attemptWords = map[string]string{
	"succeeded": "it succeeded", "failed": "it failed", "timed_out": "its time was over", "lost": "its worker was lost", "cancelled": "it was told to stop",
}
