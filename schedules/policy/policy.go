package policy

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/tenants"
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

	longestLateness = 366 * 24 * time.Hour
	longestTimeout  = 24 * time.Hour
	mostAttempts    = 100
)

// terms are a policy and a delivery as they are stored: nil is inherited.
type Stored struct {
	Overlap            *string `db:"overlap"`
	Missed             *string `db:"missed"`
	MaxLateness        *int32  `db:"max_lateness_s"`
	OnExpired          *string `db:"on_expired"`
	PauseAfterFailures *int32  `db:"pause_after_failures"`
	Queue              *string `db:"queue"`
	Priority           *int16  `db:"priority"`
	Timeout            *int32  `db:"timeout_s"`
	MaxAttempts        *int16  `db:"max_attempts"`
	KeepSucceeded      *int32  `db:"keep_succeeded_s"`
	KeepFailed         *int32  `db:"keep_failed_s"`
}

// readTerms checks a policy and a delivery, each fault located below prefix, and returns all faults joined.
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
		if n := number("/delivery/priority", d.Priority, 1, 4); n != nil {
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

// keepable refuses terms that keep ended ticks longer than the tenant's are kept; faults are located below prefix.
func (t Stored) Keepable(prefix string, q tenants.Quotas) error {
	check := func(pointer, quota string, seconds *int32, days int) error {
		if seconds == nil || time.Duration(*seconds)*time.Second <= time.Duration(days)*24*time.Hour {
			return nil
		}
		return fault.Invalid(prefix+pointer, "%s is longer than the tenant's ticks are kept: %s allows %dd", shown(*seconds), quota, days)
	}
	return fault.Join(
		check("/delivery/retention/succeeded", "tick_retention_days", t.KeepSucceeded, q.TickRetentionDays),
		check("/delivery/retention/failed", "dead_letter_retention_days", t.KeepFailed, q.DeadLetterRetentionDays))
}

// over returns t with what it leaves open taken from below, and names what was taken.
func (t Stored) Over(below Stored) (whole Stored, inherited []string) {
	whole = t
	inherit(&whole.Overlap, below.Overlap, "/policy/overlap", &inherited)
	inherit(&whole.Missed, below.Missed, "/policy/missed", &inherited)
	inherit(&whole.MaxLateness, below.MaxLateness, "/policy/max_lateness", &inherited)
	inherit(&whole.OnExpired, below.OnExpired, "/policy/on_expired", &inherited)
	inherit(&whole.PauseAfterFailures, below.PauseAfterFailures, "/policy/pause_after_failures", &inherited)
	inherit(&whole.Queue, below.Queue, "/delivery/queue", &inherited)
	inherit(&whole.Priority, below.Priority, "/delivery/priority", &inherited)
	inherit(&whole.Timeout, below.Timeout, "/delivery/timeout", &inherited)
	inherit(&whole.MaxAttempts, below.MaxAttempts, "/delivery/max_attempts", &inherited)
	inherit(&whole.KeepSucceeded, below.KeepSucceeded, "/delivery/retention/succeeded", &inherited)
	inherit(&whole.KeepFailed, below.KeepFailed, "/delivery/retention/failed", &inherited)
	return whole, inherited
}

func inherit[T any](own **T, below *T, pointer string, inherited *[]string) {
	if *own == nil {
		*own = below
		*inherited = append(*inherited, pointer)
	}
}

var SystemTerms = Stored{
	Overlap: new(DefaultOverlap), Missed: new(DefaultMissed), OnExpired: new(DefaultOnExpired), Queue: new(DefaultQueue),
	MaxLateness: new(int32(DefaultMaxLateness / time.Second)), PauseAfterFailures: new(int32(0)),
	Priority: new(int16(DefaultPriority)), Timeout: new(int32(DefaultTimeout / time.Second)), MaxAttempts: new(int16(DefaultMaxAttempts)),
	KeepSucceeded: new(int32(defaultRetention / time.Second)), KeepFailed: new(int32(defaultRetention / time.Second)),
}

// policy and delivery show whole terms, in which nothing is nil.
func (t Stored) Policy() Policy {
	return Policy{
		Overlap: *t.Overlap, Missed: *t.Missed, MaxLateness: shown(*t.MaxLateness), OnExpired: *t.OnExpired,
		PauseAfterFailures: new(int(*t.PauseAfterFailures)),
	}
}

func (t Stored) Delivery() Delivery {
	return Delivery{
		Queue: *t.Queue, Priority: new(int(*t.Priority)), Timeout: shown(*t.Timeout), MaxAttempts: new(int(*t.MaxAttempts)),
		Retention: &Retention{Succeeded: shown(*t.KeepSucceeded), Failed: shown(*t.KeepFailed)},
	}
}

// stated are the members of terms that are not inherited.
func (t Stored) Stated() (p Policy, d Delivery) {
	p = Policy{Overlap: text(t.Overlap), Missed: text(t.Missed), MaxLateness: lengthOf(t.MaxLateness), OnExpired: text(t.OnExpired), PauseAfterFailures: number(t.PauseAfterFailures)}
	d = Delivery{Queue: text(t.Queue), Priority: number(t.Priority), Timeout: lengthOf(t.Timeout), MaxAttempts: number(t.MaxAttempts)}
	if t.KeepSucceeded != nil || t.KeepFailed != nil {
		d.Retention = &Retention{Succeeded: lengthOf(t.KeepSucceeded), Failed: lengthOf(t.KeepFailed)}
	}
	return p, d
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func lengthOf(seconds *int32) string {
	if seconds == nil {
		return ""
	}
	return shown(*seconds)
}

func number[N int16 | int32](n *N) *int {
	if n == nil {
		return nil
	}
	return new(int(*n))
}

func shown(seconds int32) string { return FormatDuration(time.Duration(seconds) * time.Second) }

// equal tells whether two terms say the same.
func (t Stored) Equal(o Stored) bool {
	return Same(t.Overlap, o.Overlap) && Same(t.Missed, o.Missed) && Same(t.MaxLateness, o.MaxLateness) &&
		Same(t.OnExpired, o.OnExpired) && Same(t.PauseAfterFailures, o.PauseAfterFailures) && Same(t.Queue, o.Queue) &&
		Same(t.Priority, o.Priority) && Same(t.Timeout, o.Timeout) && Same(t.MaxAttempts, o.MaxAttempts) &&
		Same(t.KeepSucceeded, o.KeepSucceeded) && Same(t.KeepFailed, o.KeepFailed)
}

func Same[T comparable](a, b *T) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// Terms are a whole policy and delivery.
type Terms struct {
	Overlap, OnExpired, Queue                 string
	MaxLateness, Timeout                      time.Duration
	Priority, MaxAttempts, PauseAfterFailures int

	KeepSucceeded, KeepFailed time.Duration // 0: as long as the tenant's ticks are kept
}

// DefaultTerms returns the terms of a schedule that states none itself, under the stored defaults of its workflow. NewerVersion
// holds for its error.
func DefaultTerms(stored []byte) (Terms, error) {
	t, err := ReadDefaults(stored)
	if err != nil {
		return Terms{}, err
	}
	var keepSucceeded, keepFailed time.Duration
	if t.KeepSucceeded != nil {
		keepSucceeded = time.Duration(*t.KeepSucceeded) * time.Second
	}
	if t.KeepFailed != nil {
		keepFailed = time.Duration(*t.KeepFailed) * time.Second
	}
	t, _ = t.Over(SystemTerms)
	return Terms{
		KeepSucceeded: keepSucceeded, KeepFailed: keepFailed,
		Overlap: *t.Overlap, OnExpired: *t.OnExpired, Queue: *t.Queue,
		MaxLateness: time.Duration(*t.MaxLateness) * time.Second, Timeout: time.Duration(*t.Timeout) * time.Second,
		Priority: int(*t.Priority), MaxAttempts: int(*t.MaxAttempts), PauseAfterFailures: int(*t.PauseAfterFailures),
	}, nil
}

// readDefaults reads stored defaults of a workflow. Its error is newerVersion.
func ReadDefaults(stored []byte) (Stored, error) {
	if len(stored) == 0 || string(stored) == "{}" {
		return Stored{}, nil
	}
	var d Defaults
	if err := json.Unmarshal(stored, &d); err != nil {
		return Stored{}, fault.NewerVersion(err)
	}
	t, err := ReadTerms("", d.Policy, d.Delivery)
	if err != nil {
		return Stored{}, fault.NewerVersion(err)
	}
	return t, nil
}
