package record

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/state"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/trace"
)

// State is the state of a tick. States from Succeeded on are final.
type State int16

// The states, as they are stored.
const (
	Scheduled State = iota
	Running
	Succeeded
	Failed
	Cancelled
	Skipped
)

// StateNames are the names of the states, as the API shows them, in the order of their values.
var StateNames = []string{"scheduled", "running", "succeeded", "failed", "cancelled", "skipped"}

// String returns the name that the API shows.
func (s State) String() string { return StateNames[s] }

// Reason says why a tick was skipped or cancelled.
type Reason int16

// The reasons, as they are stored.
const (
	NoReason Reason = iota
	Overlap
	Paused
	Missed
	Expired
	Excluded
	Requested
	QuietHours
	NoWorkflow
	Superseded
)

var reasonNames = []string{"", "overlap", "paused", "missed", "expired", "excluded", "requested", "quiet_hours", "no_workflow", "superseded"}

// String returns the name that the API shows; the name of NoReason is empty.
func (r Reason) String() string { return reasonNames[r] }

// Cause says what made a tick.
type Cause int16

// The causes, as they are stored.
const (
	BySchedule Cause = iota
	Manual
	Backfill
	CatchUp
	Buffered
)

// CauseNames are the names of the causes, as the API shows them, in the order of their values.
var CauseNames = []string{"schedule", "manual", "backfill", "catch_up", "buffered"}

// String returns the name that the API shows.
func (c Cause) String() string { return CauseNames[c] }

// Tick is a row of the record.
type Tick struct {
	ScheduleID  int64
	NominalAt   time.Time
	Seq         int32
	Version     int32
	MissedCount int32
	Occurrence  *int64
	CohortID    *int64
	ChunkID     *int64
	LastAt      *time.Time
	UntilAt     *time.Time
	FiredAt     time.Time
	EndedAt     *time.Time
	Shard       int16
	Attempt     int16
	State       State
	Reason      Reason
	Cause       Cause
	DST         calendar.DSTNote `db:"dst"`
	StartedAt   *time.Time
	Payload     *string
	Result      *string
	Error       *string
	Trace       []byte // its trace.Context, stored; nil: it follows from its id

	ReplayedFrom *int16

	Workflow string `db:"-"` // set before a tick is recorded; the row does not hold it
}

// Stopped reports whether a running tick was told to stop: for a newer one, or by a client.
func (t *Tick) Stopped() bool { return t.State == Running && t.Reason != NoReason }

// Later reports whether the tick is a manual one that waits for its time.
func (t *Tick) Later() bool { return t.State == Scheduled && t.Cause == Manual && t.Attempt == 0 }

// Unfired reports whether the tick is a manual one for later that has not fired: it waits, or was cancelled before its time.
func (t *Tick) Unfired() bool { return t.Cause == Manual && t.Attempt == 0 }

// ReplayAs changes a failed tick into one that is delivered again.
func (t *Tick) ReplayAs(f state.Decision) {
	t.ReplayedFrom, t.Attempt = new(t.Attempt), t.Attempt+1
	t.State, t.Reason, t.EndedAt, t.Error, t.ChunkID = Running, NoReason, nil, nil, nil
	if f == state.Buffered {
		t.State = Scheduled
	}
}

// Budget returns how many attempts a tick has in all, if a schedule allows most attempts. The count starts again with each replay.
func (t *Tick) Budget(most int16) int16 {
	if t.ReplayedFrom == nil {
		return most
	}
	return most + *t.ReplayedFrom
}

// TraceOf returns the trace that the tick continues, the same on every attempt. A tick without a stored one has one that follows from its
// id, and is not sampled: no span of it is exported.
func (t *Tick) TraceOf(id string) trace.Context {
	if c := trace.Read(t.Trace); c.Valid() {
		return c
	}
	return trace.Of(id)
}

// RowKey returns the key of the row, without its tenant.
func (t *Tick) RowKey() ident.TickKey {
	return ident.TickKey{Schedule: t.ScheduleID, At: t.NominalAt.UTC(), Seq: t.Seq}
}

// Columns are the columns of tick that a Tick is scanned from by name.
const Columns = `
	t.schedule_id, t.nominal_at, t.seq, t.version, t.missed_count, t.occurrence, t.cohort_id, t.chunk_id, t.last_at, t.until_at,
	t.fired_at, t.ended_at, t.shard, t.attempt, t.state, t.reason, t.cause, t.dst, t.started_at, t.payload, t.result, t.error, t.replayed_from, t.trace`

// Held returns how many bytes the long texts of a tick have.
func (t *Tick) Held() int {
	n := 0
	for _, text := range []*string{t.Payload, t.Result, t.Error} {
		if text != nil {
			n += len(*text)
		}
	}
	return n
}

// DeadColumns are the columns of a dead letter without its tenant.
const DeadColumns = `schedule_id, nominal_at, seq, workflow, key, subject, failed_at, fired_at, last_at, until_at, occurrence, cohort_id,
	version, missed_count, shard, attempt, cause, dst, payload, error, trace`

// Valid returns s as text that PostgreSQL stores: it replaces invalid UTF-8 and NUL.
func Valid(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

// EndOfTime is later than any nominal time.
var EndOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// IsAside is the condition that a tick t is a backfill's or was delivered again: it runs beside the schedule's own ticks.
var IsAside = fmt.Sprintf(`(t.cause = %d OR t.replayed_from IS NOT NULL)`, int16(Backfill))
