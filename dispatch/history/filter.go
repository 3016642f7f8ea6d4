package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// Filter picks ticks of a tenant within a Span. Each member that is not empty restricts the list: to a workflow, a key, a subject, a
// schedule by its id, a cause, or the ticks that an operation made.
type Filter struct {
	Workflow, Key, Subject, ScheduleID string
	Operation, Cause                   string
	Span
}

// name returns the filter as part of a cursor's name: a cursor is valid for the same filter only.
func (f Filter) name() string {
	return fmt.Sprintf("all ticks %q %q %q %q %q %q %q %d %d",
		f.Workflow, f.Key, f.Subject, f.ScheduleID, f.Operation, f.Cause, f.State, f.From.Unix(), f.To.Unix())
}

// picked is a filter as values of columns. A state or cause of -1 is any.
type picked struct {
	state, cause int16
	oldest, end  time.Time // nominal times
	subject      string    // empty: any
	ofSchedules  bool      // only ticks of schedules
	schedules    []int64
	madeFrom     time.Time // since when the operation made ticks; zero: the filter names none
	trace        [16]byte  // only ticks of this trace; zero: any
	kept         Kept
}

// has reports whether the filter picks a tick of a schedule by what an index does not decide.
func (p *picked) has(t *record.Tick, of record.Schedule) bool {
	switch {
	case p.state >= 0 && int16(t.State) != p.state, p.cause >= 0 && int16(t.Cause) != p.cause:
		return false
	case p.subject != "" && of.Subject != p.subject, p.trace != [16]byte{} && trace.Read(t.Trace).Trace != p.trace:
		return false
	}
	return !t.FiredAt.Before(p.madeFrom)
}

// pick reads what a filter names.
func (r *Reader) pick(ctx context.Context, tenant tenants.ID, f Filter) (p picked, err error) {
	p = picked{cause: -1, subject: f.Subject}
	var spanErr, causeErr error
	p.state, p.oldest, p.end, spanErr = f.bounds()
	if f.Cause != "" {
		if p.cause = int16(slices.Index(record.CauseNames, f.Cause)); p.cause < 0 {
			causeErr = fault.Invalid("/cause", "%q is not one of %s", f.Cause, strings.Join(record.CauseNames, ", "))
		}
	}
	if err := fault.Join(spanErr, causeErr); err != nil {
		return p, err
	}
	if f.Operation != "" {
		found, err := r.pickOperation(ctx, tenant, f.Operation, &f, &p)
		if err != nil || !found {
			p.ofSchedules = true // of none
			return p, err
		}
	}
	if f.ScheduleID != "" || f.Key != "" || f.Subject != "" {
		p.ofSchedules = true
		p.schedules, err = r.schedulesOf(ctx, tenant, f)
	}
	return p, err
}

// pickOperation restricts a filter to the ticks that an operation made since it began: those of a backfill, in its span, or those of an
// action that triggers schedules. Other operations make none.
func (r *Reader) pickOperation(ctx context.Context, tenant tenants.ID, operation string, f *Filter, p *picked) (found bool, err error) {
	id, ok := r.ids.ParseOperation(operation)
	if !ok {
		return false, nil
	}
	var kind string
	var params []byte
	var ended *time.Time
	err = r.api.QueryRow(ctx, `SELECT kind, params, created_at, ended_at FROM operation WHERE tenant_id = $1 AND id = $2`, tenant, id).
		Scan(&kind, &params, &p.madeFrom, &ended)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read operation: %w", err)
	}
	if kind != record.BackfillKind && kind != operations.ActionsKind {
		return false, nil
	}
	var of struct {
		record.BackfillParams
		Action string `json:"action"`
	}
	if err := json.Unmarshal(params, &of); err != nil {
		return false, fmt.Errorf("read the params of an operation: %w", err)
	}
	switch {
	case kind == record.BackfillKind && of.ScheduleID != "" && (f.ScheduleID == "" || f.ScheduleID == of.ScheduleID): // an erasure removes the params
		f.ScheduleID = of.ScheduleID
		return p.only(record.Backfill, of.From, of.To), nil
	case kind == operations.ActionsKind && of.Action == "trigger":
		p.trace = trace.Of(r.ids.Operation(id)).Trace
		to := p.end
		if ended != nil {
			to = ended.Add(time.Second)
		}
		return p.only(record.Manual, p.madeFrom.Truncate(time.Second), to), nil
	}
	return false, nil
}

// only restricts p to ticks with a cause and with nominal times from one moment on and before another. It reports whether p may pick
// such ticks.
func (p *picked) only(cause record.Cause, from, to time.Time) bool {
	if p.cause >= 0 && p.cause != int16(cause) {
		return false
	}
	p.cause = int16(cause)
	if from.After(p.oldest) {
		p.oldest = from
	}
	if to.Before(p.end) {
		p.end = to
	}
	return true
}

// mostSchedules limits how many schedules with a key or a subject are read: those of several workflows, and deleted ones.
const mostSchedules = 1000

// schedulesOf returns the schedules that a filter names, including deleted ones.
func (r *Reader) schedulesOf(ctx context.Context, tenant tenants.ID, f Filter) ([]int64, error) {
	var err error
	var ids []int64
	switch {
	case f.ScheduleID != "":
		id, ok := r.ids.ParseSchedule(f.ScheduleID)
		if !ok {
			return nil, nil
		}
		ids = []int64{id}
	case f.Key != "":
		ids, err = r.withKey(ctx, tenant, f.Workflow, f.Key)
	default:
		ids, err = r.ofSubject(ctx, tenant, f.Subject)
	}
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	named, err := record.SchedulesOf(ctx, r.api, tenant, ids)
	if err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(ids, func(id int64) bool {
		w, known := named[id]
		return !known || f.Workflow != "" && w.Workflow != f.Workflow || f.Key != "" && w.Key != f.Key
	})
	slices.Sort(ids)
	return ids, nil
}

// withKey returns the schedules with a key, of one workflow or of all.
func (r *Reader) withKey(ctx context.Context, tenant tenants.ID, workflow, key string) ([]int64, error) {
	return r.numbers(ctx, `
		WITH flow AS (
			SELECT $2::text AS name WHERE $2 <> ''
			UNION ALL
			SELECT name FROM workflow WHERE tenant_id = $1 AND $2 = ''
		)
		SELECT id FROM (
			SELECT s.id FROM flow JOIN schedule s ON s.tenant_id = $1 AND s.workflow = flow.name AND s.key = $3
			UNION
			SELECT r.schedule_id FROM flow JOIN revision r ON r.tenant_id = $1 AND r.workflow = flow.name AND r.key = $3 AND r.deleted
		) named (id)
		ORDER BY id DESC
		LIMIT $4`, tenant, workflow, key, mostSchedules)
}

// ofSubject returns the schedules that are or were for a subject, in all workflows. Schedules that have the subject as their key are
// looked up workflow by workflow.
func (r *Reader) ofSubject(ctx context.Context, tenant tenants.ID, subject string) ([]int64, error) {
	return r.numbers(ctx, `
		WITH flow AS (
			SELECT name FROM workflow WHERE tenant_id = $1
		)
		SELECT id FROM (
			(SELECT id FROM schedule WHERE tenant_id = $1 AND subject = $2 ORDER BY id DESC LIMIT $3)
			UNION
			(SELECT schedule_id FROM revision WHERE tenant_id = $1 AND subject = $2 GROUP BY schedule_id ORDER BY schedule_id DESC LIMIT $3)
			UNION
			SELECT s.id FROM flow JOIN schedule s ON s.tenant_id = $1 AND s.workflow = flow.name AND s.key = $2
			UNION
			SELECT r.schedule_id FROM flow JOIN revision r ON r.tenant_id = $1 AND r.workflow = flow.name AND r.key = $2 AND r.deleted
		) named (id)
		ORDER BY id DESC
		LIMIT $3`, tenant, subject, mostSchedules)
}

func (r *Reader) numbers(ctx context.Context, sql string, args ...any) ([]int64, error) {
	rows, _ := r.api.Query(ctx, sql, args...) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look for schedules: %w", err)
	}
	return ids, nil
}
