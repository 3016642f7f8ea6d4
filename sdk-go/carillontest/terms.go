package carillontest

import (
	"cmp"
	"slices"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

// terms are the policy and the delivery in force for a schedule.
type terms struct {
	policy   carillon.Policy
	delivery carillon.Delivery

	lateness    time.Duration // max_lateness
	maxFailures int64         // pause_after_failures; 0: never
}

// builtIn has the values that apply if neither a schedule nor its workflow states one.
var builtIn = carillon.Defaults{
	Policy: carillon.Policy{Overlap: "skip", Missed: "last", MaxLateness: "24h", OnExpired: "skip", PauseAfterFailures: new(int)},
	Delivery: carillon.Delivery{
		Queue: "default", Priority: 2, Timeout: "1m", MaxAttempts: 10, Retention: carillon.Retention{Succeeded: "30d", Failed: "30d"},
	},
}

// over returns the members of d, and those of base where d has none.
func over(d, base carillon.Defaults) carillon.Defaults {
	p, q := &d.Policy, base.Policy
	p.Overlap, p.Missed = cmp.Or(p.Overlap, q.Overlap), cmp.Or(p.Missed, q.Missed)
	p.MaxLateness, p.OnExpired = cmp.Or(p.MaxLateness, q.MaxLateness), cmp.Or(p.OnExpired, q.OnExpired)
	p.PauseAfterFailures = cmp.Or(p.PauseAfterFailures, q.PauseAfterFailures)
	e, f := &d.Delivery, base.Delivery
	e.Queue, e.Priority, e.Timeout = cmp.Or(e.Queue, f.Queue), cmp.Or(e.Priority, f.Priority), cmp.Or(e.Timeout, f.Timeout)
	e.MaxAttempts = cmp.Or(e.MaxAttempts, f.MaxAttempts)
	e.Retention.Succeeded = cmp.Or(e.Retention.Succeeded, f.Retention.Succeeded)
	e.Retention.Failed = cmp.Or(e.Retention.Failed, f.Retention.Failed)
	return d
}

// resolve returns the terms of a schedule. What it does not state comes from the defaults of its workflow, and then from builtIn.
func resolve(stated, defaults carillon.Defaults) terms {
	all := over(over(stated, defaults), builtIn)
	t := terms{policy: all.Policy, delivery: all.Delivery, maxFailures: int64(*all.Policy.PauseAfterFailures)}
	t.lateness, _ = parseDuration(all.Policy.MaxLateness)
	for _, text := range []*string{
		&t.policy.MaxLateness, &t.delivery.Timeout, &t.delivery.Retention.Succeeded, &t.delivery.Retention.Failed,
	} {
		d, _ := parseDuration(*text)
		*text = formatDuration(d)
	}
	return t
}

// expired reports whether a tick of a nominal time is too late to be handed out at a moment.
func (t *terms) expired(nominal, at time.Time) bool {
	return t.policy.OnExpired == "skip" && at.After(nominal.Add(t.lateness))
}

// late reports whether a tick is later than max_lateness and is delivered all the same.
func (t *terms) late(nominal, at time.Time) bool {
	return t.policy.OnExpired != "skip" && at.After(nominal.Add(t.lateness))
}

// inherited returns the pointers of the terms that a schedule does not state itself.
func inherited(d carillon.Defaults) []string {
	pointers := []string{}
	for _, one := range []struct {
		pointer string
		absent  bool
	}{
		{"/policy/overlap", d.Policy.Overlap == ""},
		{"/policy/missed", d.Policy.Missed == ""},
		{"/policy/max_lateness", d.Policy.MaxLateness == ""},
		{"/policy/on_expired", d.Policy.OnExpired == ""},
		{"/policy/pause_after_failures", d.Policy.PauseAfterFailures == nil},
		{"/delivery/queue", d.Delivery.Queue == ""},
		{"/delivery/priority", d.Delivery.Priority == 0},
		{"/delivery/timeout", d.Delivery.Timeout == ""},
		{"/delivery/max_attempts", d.Delivery.MaxAttempts == 0},
		{"/delivery/retention/succeeded", d.Delivery.Retention.Succeeded == ""},
		{"/delivery/retention/failed", d.Delivery.Retention.Failed == ""},
	} {
		if one.absent {
			pointers = append(pointers, one.pointer)
		}
	}
	return pointers
}

// checkTerms returns the faults of a policy and a delivery, located below prefix.
func checkTerms(prefix string, d carillon.Defaults) error {
	var errs []error
	choice := func(pointer, s string, allowed ...string) {
		if s != "" && !slices.Contains(allowed, s) {
			errs = append(errs, fault.Invalid(prefix+pointer, "%q is not one of %q", s, allowed))
		}
	}
	length := func(pointer, s string, least, most time.Duration) {
		if s == "" {
			return
		}
		if d, ok := parseDuration(s); !ok || d < least || d > most {
			errs = append(errs, fault.Invalid(prefix+pointer, "%q is not a duration from %s to %s", s, formatDuration(least), formatDuration(most)))
		}
	}
	number := func(pointer string, n, least, most int) {
		if n < least || n > most {
			errs = append(errs, fault.Invalid(prefix+pointer, "%d is not between %d and %d", n, least, most))
		}
	}
	const longest = 366 * 24 * time.Hour
	choice("/policy/overlap", d.Policy.Overlap, "skip", "buffer_one", "buffer_all", "cancel_other", "allow_all")
	choice("/policy/missed", d.Policy.Missed, "last", "all", "none")
	choice("/policy/on_expired", d.Policy.OnExpired, "skip", "deliver")
	length("/policy/max_lateness", d.Policy.MaxLateness, time.Second, longest)
	if n := d.Policy.PauseAfterFailures; n != nil {
		number("/policy/pause_after_failures", *n, 0, 1_000_000)
	}
	length("/delivery/timeout", d.Delivery.Timeout, time.Second, 24*time.Hour)
	number("/delivery/priority", d.Delivery.Priority, 0, 4)
	number("/delivery/max_attempts", d.Delivery.MaxAttempts, 0, 100)
	length("/delivery/retention/succeeded", d.Delivery.Retention.Succeeded, time.Hour, longest)
	length("/delivery/retention/failed", d.Delivery.Retention.Failed, time.Hour, longest)
	return fault.Join(errs...)
}
