package policy

import (
	"strings"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/tenants"
)

// Stored holds the terms that a schedule states itself, as columns hold them, or those of a workflow's defaults. nil is inherited.
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

// Columns are the columns of a Stored.
const Columns = `overlap, missed, max_lateness_s, on_expired, pause_after_failures, queue, priority, timeout_s, max_attempts, keep_succeeded_s, keep_failed_s`

// ColumnsOf returns the columns of a Stored in a table.
func ColumnsOf(table string) string {
	return table + "." + strings.ReplaceAll(Columns, ", ", ", "+table+".")
}

// Fields returns where the values of Columns go, in their order.
func (t *Stored) Fields() []any {
	return []any{
		&t.Overlap, &t.Missed, &t.MaxLateness, &t.OnExpired, &t.PauseAfterFailures, &t.Queue, &t.Priority, &t.Timeout,
		&t.MaxAttempts, &t.KeepSucceeded, &t.KeepFailed,
	}
}

// Keepable refuses terms that keep ended ticks longer than the tenant's are kept; faults are located below prefix.
func (t Stored) Keepable(prefix string, q tenants.Quotas) error {
	check := func(pointer, quota string, seconds *int32, days int) error {
		if seconds == nil || time.Duration(*seconds)*time.Second <= time.Duration(days)*24*time.Hour {
			return nil
		}
		return fault.Invalid(prefix+pointer, "%s exceeds the quota %s, which allows %dd", shown(*seconds), quota, days)
	}
	return fault.Join(
		check("/delivery/retention/succeeded", "tick_retention_days", t.KeepSucceeded, q.TickRetentionDays),
		check("/delivery/retention/failed", "dead_letter_retention_days", t.KeepFailed, q.DeadLetterRetentionDays))
}

// Inherited names the terms that are inherited, by their JSON pointers in a schedule.
func (t Stored) Inherited() []string {
	pointers := []string{}
	for _, one := range []struct {
		pointer   string
		inherited bool
	}{
		{"/policy/overlap", t.Overlap == nil},
		{"/policy/missed", t.Missed == nil},
		{"/policy/max_lateness", t.MaxLateness == nil},
		{"/policy/on_expired", t.OnExpired == nil},
		{"/policy/pause_after_failures", t.PauseAfterFailures == nil},
		{"/delivery/queue", t.Queue == nil},
		{"/delivery/priority", t.Priority == nil},
		{"/delivery/timeout", t.Timeout == nil},
		{"/delivery/max_attempts", t.MaxAttempts == nil},
		{"/delivery/retention/succeeded", t.KeepSucceeded == nil},
		{"/delivery/retention/failed", t.KeepFailed == nil},
	} {
		if one.inherited {
			pointers = append(pointers, one.pointer)
		}
	}
	return pointers
}

// Stated returns the terms that are not inherited, as the API shows them.
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

// Equal reports whether both state the same terms.
func (t Stored) Equal(o Stored) bool {
	return Same(t.Overlap, o.Overlap) && Same(t.Missed, o.Missed) && Same(t.MaxLateness, o.MaxLateness) &&
		Same(t.OnExpired, o.OnExpired) && Same(t.PauseAfterFailures, o.PauseAfterFailures) && Same(t.Queue, o.Queue) &&
		Same(t.Priority, o.Priority) && Same(t.Timeout, o.Timeout) && Same(t.MaxAttempts, o.MaxAttempts) &&
		Same(t.KeepSucceeded, o.KeepSucceeded) && Same(t.KeepFailed, o.KeepFailed)
}

// Same reports whether both are nil, or point to equal values.
func Same[T comparable](a, b *T) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}
