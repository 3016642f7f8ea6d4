package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/instant"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// before is where a page of a history begins: after this tick, in the order of the page.
type before struct {
	At  time.Time `json:"a"`
	Seq int32     `json:"s"`
}

// Span picks ticks of a history: those in State, with nominal times from From on and before To. The zero value picks all.
type Span struct {
	State    string
	From, To time.Time
}

// bounds returns s as values of columns; a state of -1 is any.
func (s Span) bounds() (state int16, from, to time.Time, err error) {
	state, from, to = -1, s.From.UTC(), s.To.UTC()
	if s.State != "" {
		if state = int16(slices.Index(record.StateNames, s.State)); state < 0 {
			return 0, from, to, fault.Invalid("/state", "%q is not one of %s", s.State, strings.Join(record.StateNames, ", "))
		}
	}
	if to.IsZero() {
		to = record.EndOfTime
	}
	return state, from, to, nil
}

// History returns a page of a schedule's ticks, newest first, and the cursor of the next page, if there is one. If the schedule is
// deleted, the page is of the last schedule that had the name.
func (r *Reader) History(ctx context.Context, of policy.Name, s Span, limit int, cursor string) (page []Tick, next *string, err error) {
	state, oldest, end, err := s.bounds()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	kept, err := r.Kept(ctx, of.Tenant)
	if err != nil {
		return nil, nil, err
	}
	schedule, err := r.lastOf(ctx, of)
	if err != nil {
		return nil, nil, err
	}
	name := fmt.Sprintf("ticks %d %d %d %d", schedule, state, oldest.Unix(), end.Unix())
	from := before{At: end} // seq is 0 or more, so none at that time comes before it
	paging, err := r.cursors.Page(int32(of.Tenant), name, limit, cursor, &from)
	if err != nil {
		return nil, nil, err
	}
	if oldest.Before(kept.Oldest) {
		oldest = kept.Oldest
	}
	named, err := record.SchedulesOf(ctx, r.api, of.Tenant, []int64{schedule})
	if err != nil {
		return nil, nil, err
	}
	good, bad := kept.Since(named[schedule])
	query := func() (pgx.Rows, error) {
		return r.api.Query(ctx, `
			SELECT `+record.Columns+`
			FROM tick t
			WHERE t.tenant_id = $1 AND t.schedule_id = $2 AND (t.nominal_at, t.seq) < ($3, $4)
				AND t.nominal_at >= $5 AND ($6 < 0 OR t.state = $6)
				AND NOT (t.state = $8 AND t.ended_at < $9 OR t.state = $10 AND t.ended_at < $11)
			ORDER BY t.nominal_at DESC, t.seq DESC
			LIMIT $7`, of.Tenant, schedule, from.At, from.Seq, oldest, state, paging.Rows(),
			int16(record.Succeeded), good, int16(record.Failed), bad)
	}
	found, full, err := web.Collect(ctx, paging.Rows(), web.MostPage, query, pgx.RowToAddrOfStructByName[record.Tick], (*record.Tick).Held)
	if err != nil {
		return nil, nil, fmt.Errorf("read ticks: %w", err)
	}
	found, next, err = web.Cut(paging, found, full, func(t *record.Tick) before { return before{t.NominalAt.UTC(), t.Seq} })
	if err != nil {
		return nil, nil, err
	}
	at, err := record.SchedulesAt(ctx, r.api, of.Tenant, found, named)
	if err != nil {
		return nil, nil, err
	}
	page = make([]Tick, 0, len(found))
	for i, t := range found {
		page = append(page, r.Shown(t, at[i]))
	}
	return page, next, r.Localize(ctx, r.api, of.Tenant, pointers(page)...)
}

// lastOf returns the schedule with a name, or the last deleted one that had it.
func (r *Reader) lastOf(ctx context.Context, of policy.Name) (schedule int64, err error) {
	err = r.api.QueryRow(ctx, `
		SELECT COALESCE(
			(SELECT id FROM schedule WHERE tenant_id = $1 AND workflow = $2 AND key = $3),
			(SELECT max(schedule_id) FROM revision WHERE tenant_id = $1 AND workflow = $2 AND key = $3 AND deleted), 0)`,
		of.Tenant, of.Workflow, of.Key).Scan(&schedule)
	if err != nil {
		return 0, fmt.Errorf("read schedule: %w", err)
	}
	if schedule == 0 {
		return 0, fault.NotFound("no schedule %q of workflow %q", of.Key, of.Workflow)
	}
	return schedule, nil
}

// Tick returns one tick with its attempts, or its dead letter. A tick that does not exist or is past its retention is a fault, 404.
func (r *Reader) Tick(ctx context.Context, tenant tenants.ID, id string) (Tick, error) {
	absent := record.NoTick(id)
	k, ok := r.ids.ParseTick(id)
	if !ok {
		return Tick{}, absent
	}
	kept, err := r.Kept(ctx, tenant)
	if err != nil {
		return Tick{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	found, _, err := r.ticksOf(ctx, tenant, []ident.TickKey{k})
	if err != nil {
		return Tick{}, err
	}
	named, err := record.SchedulesOf(ctx, r.api, tenant, []int64{k.Schedule})
	if err != nil {
		return Tick{}, err
	}
	w, known := named[k.Schedule]
	var t *record.Tick
	switch {
	case len(found) > 0 && known && !kept.Over(found[0], w):
		t = found[0]
		at, err := record.SchedulesAt(ctx, r.api, tenant, found[:1], named)
		if err != nil {
			return Tick{}, err
		}
		w = at[0]
	default: // a dead letter outlives its tick
		l, err := r.Letter(ctx, r.api, tenant, k)
		if err != nil || l == nil {
			return Tick{}, cmp.Or(err, absent)
		}
		t, w = &l.Tick, l.Schedule()
	}
	out := r.Shown(t, w)
	if err := r.Localize(ctx, r.api, tenant, &out); err != nil {
		return Tick{}, err
	}
	if err := r.readPayload(ctx, tenant, t, &out); err != nil {
		return Tick{}, err
	}
	rows, _ := r.api.Query(ctx, `
		SELECT attempt, started_at, ended_at, outcome, status, error, worker
		FROM attempt
		WHERE `+record.ByKey+` AND ended_at >= $5
		ORDER BY attempt`, tenant, k.Schedule, k.At, k.Seq, kept.attempts) // CollectRows reports the error
	out.Attempts, err = pgx.CollectRows(rows, scanAttempt)
	if err != nil {
		return Tick{}, fmt.Errorf("read attempts: %w", err)
	}
	if last, unrecorded := lastAttempt(t); unrecorded {
		out.Attempts = append(out.Attempts, last)
	}
	return out, nil
}

// Tick is a tick as its history shows it.
type Tick struct {
	TickID          string     `json:"tick_id"`
	ScheduleID      string     `json:"schedule_id"`
	Workflow        string     `json:"workflow"`
	Key             string     `json:"key"`
	Subject         string     `json:"subject"`
	Timestamp       time.Time  `json:"timestamp"`
	LocalTime       string     `json:"local_time"` // of Timestamp, in Timezone
	Timezone        string     `json:"timezone"`   // by which the schedule was timed
	State           string     `json:"state"`
	Reason          string     `json:"reason,omitempty"`
	Cause           string     `json:"cause"`
	DST             string     `json:"dst"`
	LastTimestamp   *time.Time `json:"last_timestamp"`
	DueAt           *time.Time `json:"due_at,omitempty"` // set while a manual tick waits for its time
	FiredAt         *time.Time `json:"fired_at"`         // null: a manual tick for later has not fired yet
	EndedAt         *time.Time `json:"ended_at"`
	LatenessMS      *int64     `json:"lateness_ms"` // likewise
	Attempt         int16      `json:"attempt"`
	Occurrence      *int64     `json:"occurrence"`
	MissedCount     int32      `json:"missed_count"`
	ScheduleVersion int32      `json:"schedule_version"`
	Traceparent     string     `json:"traceparent"` // as its worker receives it
	Result          web.Raw    `json:"result,omitempty"`
	Error           *string    `json:"error,omitempty"`
	Payload         web.Raw    `json:"payload,omitempty"`      // only if one tick is read
	PayloadKept     *bool      `json:"payload_kept,omitempty"` // false: retention dropped the payload
	Attempts        []Attempt  `json:"attempts,omitzero"`      // only if one tick is read

	timed timed
}

// Fired returns when the tick fired; its nominal time if it has not.
func (t *Tick) Fired() time.Time {
	if t.FiredAt == nil {
		return t.Timestamp
	}
	return *t.FiredAt
}

// Late returns how much later than its nominal time the tick fired.
func (t *Tick) Late() time.Duration { return t.Fired().Sub(t.Timestamp) }

// LongRaws returns the fields that may be long. A list writes them without encoding them again.
func (t *Tick) LongRaws() []*web.Raw { return []*web.Raw{&t.Result} }

// Shown returns a tick as the API shows it, without its attempts.
func (r *Reader) Shown(t *record.Tick, of record.Schedule) Tick {
	out := Tick{
		TickID: r.ids.Tick(t.RowKey()), ScheduleID: r.ids.Schedule(t.ScheduleID), Workflow: of.Workflow, Key: of.Key, Subject: of.Subject,
		Timestamp: t.NominalAt.UTC(), State: t.State.String(), Reason: t.Reason.String(), Cause: t.Cause.String(),
		DST: t.DST.String(), LastTimestamp: instant.UTC(t.LastAt), EndedAt: instant.UTC(t.EndedAt),
		Attempt: t.Attempt, Occurrence: t.Occurrence,
		MissedCount: t.MissedCount, ScheduleVersion: t.Version, Error: t.Error,
		timed: timed{t.CohortID, t.Shard, t.ScheduleID, t.Version},
	}
	out.Traceparent = t.TraceOf(out.TickID).String()
	if t.Later() {
		out.DueAt = &out.Timestamp
	}
	if !t.Unfired() {
		out.FiredAt, out.LatenessMS = new(t.FiredAt.UTC().Truncate(time.Millisecond)), new(t.FiredAt.Sub(t.NominalAt).Milliseconds())
	}
	if t.Result != nil && t.State != record.Cancelled { // that of a cancelled tick came late, and is kept with the attempt
		out.Result = web.Raw(*t.Result)
	}
	return out
}

// Names returns the names of schedules by their numbers, including those of deleted schedules. Unknown numbers are left out.
func (r *Reader) Names(ctx context.Context, tenant tenants.ID, schedules []int64) (map[int64]policy.Name, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	found, err := record.SchedulesOf(ctx, r.api, tenant, schedules)
	names := make(map[int64]policy.Name, len(found))
	for id, s := range found {
		names[id] = policy.Name{Tenant: tenant, Workflow: s.Workflow, Key: s.Key}
	}
	return names, err
}
