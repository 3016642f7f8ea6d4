package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
)

// Policy says what happens to ticks that overlap, are late or fail. An absent member is inherited.
type Policy struct {
	Overlap            string `json:"overlap,omitempty"`
	Missed             string `json:"missed,omitempty"`
	MaxLateness        string `json:"max_lateness,omitempty"`
	OnExpired          string `json:"on_expired,omitempty"`
	PauseAfterFailures *int   `json:"pause_after_failures,omitempty"`
}

// Delivery says how ticks reach a worker. An absent member is inherited.
type Delivery struct {
	Queue       string     `json:"queue,omitempty"`
	Priority    *int       `json:"priority,omitempty"`
	Timeout     string     `json:"timeout,omitempty"`
	MaxAttempts *int       `json:"max_attempts,omitempty"`
	Retention   *Retention `json:"retention,omitempty"`
}

// Retention says how long ended ticks are kept.
type Retention struct {
	Succeeded string `json:"succeeded,omitempty"`
	Failed    string `json:"failed,omitempty"`
}

// Defaults are what the schedules of a workflow inherit.
type Defaults struct {
	Policy   *Policy   `json:"policy,omitempty"`
	Delivery *Delivery `json:"delivery,omitempty"`
}

// What holds where neither a schedule nor its workflow says otherwise.
const (
	DefaultOverlap     = "skip"
	DefaultMissed      = "last"
	DefaultOnExpired   = "skip"
	DefaultQueue       = "default"
	DefaultPriority    = 2
	DefaultMaxAttempts = 10
	DefaultMaxLateness = 24 * time.Hour
	DefaultTimeout     = time.Minute
	defaultRetention   = 30 * 24 * time.Hour

	Priorities = 4 // from 1, the highest, on

	longestLateness = 366 * 24 * time.Hour
	longestTimeout  = 24 * time.Hour
	mostAttempts    = 100
)

// ReadTerms checks a policy and a delivery and returns what they state. It locates each fault below prefix, and joins all faults.
func ReadTerms(prefix string, p *Policy, d *Delivery) (t Stored, err error) {
	var errs []error
	choice := func(pointer, s string, allowed ...string) *string {
		if s == "" {
			return nil
		}
		if !slices.Contains(allowed, s) {
			errs = append(errs, fault.Invalid(prefix+pointer, "%q is not one of %s", s, strings.Join(allowed, ", ")))
		}
		return &s
	}
	seconds := func(pointer, s string, least, most time.Duration) *int32 {
		if s == "" {
			return nil
		}
		length, err := Within(prefix+pointer, s, least, most)
		errs = append(errs, err)
		return new(int32(length / time.Second))
	}
	number := func(pointer string, n *int, least, most int) *int {
		if n != nil && (*n < least || *n > most) {
			errs = append(errs, fault.Invalid(prefix+pointer, "%d is not between %d and %d", *n, least, most))
			return nil
		}
		return n
	}
	if p != nil {
		t.Overlap = choice("/policy/overlap", p.Overlap, "skip", "buffer_one", "buffer_all", "cancel_other", "allow_all")
		t.Missed = choice("/policy/missed", p.Missed, "last", "all", "none")
		t.MaxLateness = seconds("/policy/max_lateness", p.MaxLateness, time.Second, longestLateness)
		t.OnExpired = choice("/policy/on_expired", p.OnExpired, "skip", "deliver")
		if n := number("/policy/pause_after_failures", p.PauseAfterFailures, 0, 1_000_000); n != nil {
			t.PauseAfterFailures = new(int32(*n))
		}
	}
	if d != nil {
		if d.Queue != "" && !ValidName(d.Queue) {
			errs = append(errs, fault.Invalid(prefix+"/delivery/queue", "%q is not 1 to 128 of A-Z a-z 0-9 . _ -", d.Queue))
		}
		if d.Queue != "" {
			t.Queue = &d.Queue
		}
		if n := number("/delivery/priority", d.Priority, 1, Priorities); n != nil {
			t.Priority = new(int16(*n))
		}
		t.Timeout = seconds("/delivery/timeout", d.Timeout, time.Second, longestTimeout)
		if n := number("/delivery/max_attempts", d.MaxAttempts, 1, mostAttempts); n != nil {
			t.MaxAttempts = new(int16(*n))
		}
		if r := d.Retention; r != nil {
			t.KeepSucceeded = seconds("/delivery/retention/succeeded", r.Succeeded, time.Hour, longestLateness)
			t.KeepFailed = seconds("/delivery/retention/failed", r.Failed, time.Hour, longestLateness)
		}
	}
	return t, fault.Join(errs...)
}
