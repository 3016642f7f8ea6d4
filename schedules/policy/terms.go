package policy

import (
	"encoding/json"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
)

// Terms are the policy and the delivery that hold for a schedule. Nothing in them is inherited any more.
type Terms struct {
	Overlap, Missed, OnExpired, Queue string

	MaxLateness, Timeout  time.Duration
	PauseAfterFailures    int32
	Priority, MaxAttempts int16

	KeepSucceeded, KeepFailed time.Duration // 0: as long as the tenant's ticks are kept
}

// BuiltIn returns the terms that hold where neither a schedule nor its workflow says otherwise.
func BuiltIn() Terms {
	return Terms{
		Overlap: DefaultOverlap, Missed: DefaultMissed, OnExpired: DefaultOnExpired, Queue: DefaultQueue,
		MaxLateness: DefaultMaxLateness, Timeout: DefaultTimeout, Priority: DefaultPriority, MaxAttempts: DefaultMaxAttempts,
	}
}

// Resolve returns the terms that hold for a schedule, or for one of its versions: its own, else the stored defaults of its workflow,
// else the built-in ones. The defaults are nil if the workflow is gone. fault.IsNewerVersion holds for its error.
func Resolve(own Stored, defaults []byte) (Terms, error) {
	inherited, err := OfWorkflow(defaults)
	if err != nil {
		return Terms{}, err
	}
	return inherited.With(own), nil
}

// OfWorkflow returns the terms that the schedules of a workflow inherit, out of its stored defaults. fault.IsNewerVersion holds for
// its error.
func OfWorkflow(defaults []byte) (Terms, error) {
	own, err := readDefaults(defaults)
	if err != nil {
		return Terms{}, err
	}
	return BuiltIn().With(own), nil
}

// With returns the terms of a schedule that inherits t: its own terms, and those of t where it states none.
func (t Terms) With(own Stored) Terms {
	override(&t.Overlap, own.Overlap)
	override(&t.Missed, own.Missed)
	override(&t.OnExpired, own.OnExpired)
	override(&t.Queue, own.Queue)
	override(&t.Priority, own.Priority)
	override(&t.MaxAttempts, own.MaxAttempts)
	override(&t.PauseAfterFailures, own.PauseAfterFailures)
	overrideLength(&t.MaxLateness, own.MaxLateness)
	overrideLength(&t.Timeout, own.Timeout)
	overrideLength(&t.KeepSucceeded, own.KeepSucceeded)
	overrideLength(&t.KeepFailed, own.KeepFailed)
	return t
}

func override[T any](inherited *T, own *T) {
	if own != nil {
		*inherited = *own
	}
}

func overrideLength(inherited *time.Duration, seconds *int32) {
	if seconds != nil {
		*inherited = time.Duration(*seconds) * time.Second
	}
}

// Latest returns the last moment at which a tick of a nominal time may be handed out; expires is false if it may be at any time.
func (t Terms) Latest(nominal time.Time) (at time.Time, expires bool) {
	return nominal.Add(t.MaxLateness), t.OnExpired == "skip"
}

// Expired reports whether a tick of a nominal time is too late to be handed out at a moment.
func (t Terms) Expired(nominal, at time.Time) bool {
	latest, expires := t.Latest(nominal)
	return expires && at.After(latest)
}

// Late reports whether a tick of a nominal time that is handed out at a moment is later than max_lateness, where on_expired lets it through.
func (t Terms) Late(nominal, at time.Time) bool {
	latest, expires := t.Latest(nominal)
	return !expires && at.After(latest)
}

// SQL returns the expression of a term in a statement that reads the schedule itself, and so cannot be given Terms: Resolve in SQL.
// own is the column of the schedule, and inherited the term of its workflow.
func SQL(own, inherited string) string { return "COALESCE(" + own + ", " + inherited + ")" }

// OverlapSQL is the overlap policy of a schedule s of workflow w.
const OverlapSQL = "COALESCE(s.overlap, w.defaults #>> '{policy,overlap}', '" + DefaultOverlap + "')"

// readDefaults reads the stored defaults of a workflow. They were checked when they were stored: those that cannot be read were
// written by a newer program.
func readDefaults(stored []byte) (Stored, error) {
	if len(stored) == 0 || string(stored) == "{}" {
		return Stored{}, nil
	}
	var d Defaults
	if err := json.Unmarshal(stored, &d); err != nil {
		return Stored{}, fault.NewerVersion(err)
	}
	own, err := ReadTerms("", d.Policy, d.Delivery)
	if err != nil {
		return Stored{}, fault.NewerVersion(err)
	}
	return own, nil
}

// Show returns the terms as the API shows them.
func (t Terms) Show() (Policy, Delivery) {
	p := Policy{
		Overlap: t.Overlap, Missed: t.Missed, MaxLateness: FormatDuration(t.MaxLateness), OnExpired: t.OnExpired,
		PauseAfterFailures: new(int(t.PauseAfterFailures)),
	}
	d := Delivery{
		Queue: t.Queue, Priority: new(int(t.Priority)), Timeout: FormatDuration(t.Timeout), MaxAttempts: new(int(t.MaxAttempts)),
		Retention: &Retention{Succeeded: kept(t.KeepSucceeded), Failed: kept(t.KeepFailed)},
	}
	return p, d
}

func kept(length time.Duration) string {
	if length == 0 {
		length = defaultRetention
	}
	return FormatDuration(length)
}
