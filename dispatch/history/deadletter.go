package history

import (
	"context"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// deadLetter is a row of dead_letter as a tick, with the name of its schedule.
type deadLetter struct {
	record.Tick
	Workflow string
	Key      string
	Subject  *string // nil: the key
	FailedAt time.Time
}

// scanDead reads a row of record.DeadColumns.
func scanDead(row pgx.CollectableRow) (*deadLetter, error) {
	one := &deadLetter{}
	err := row.Scan(
		&one.ScheduleID, &one.NominalAt, &one.Seq, &one.Workflow, &one.Key, &one.Subject, &one.FailedAt, &one.FiredAt, &one.LastAt, &one.UntilAt, &one.Occurrence,
		&one.CohortID, &one.Version, &one.MissedCount, &one.Shard, &one.Attempt, &one.Cause, &one.DST, &one.Payload, &one.Error, &one.Trace,
	)
	one.State, one.EndedAt = record.Failed, &one.FailedAt
	return one, err
}

// Schedule returns the schedule of the tick.
func (l *deadLetter) Schedule() record.Schedule {
	s := record.Schedule{Workflow: l.Workflow, Key: l.Key, Subject: l.Key}
	if l.Subject != nil {
		s.Subject = *l.Subject
	}
	return s
}

// held returns how many bytes the long texts of the tick have.
func (l *deadLetter) held() int { return l.Tick.Held() }

// deadRetention returns for how long dead letters of a tenant are shown after they failed. Older ones are past their retention.
func (r *Reader) deadRetention(ctx context.Context, tenant tenants.ID) (time.Duration, error) {
	quotas, err := r.quotas(ctx, tenant)
	return time.Duration(quotas.DeadLetterRetentionDays) * 24 * time.Hour, err
}

// Letter reads a dead letter within its retention, and returns nil if there is none. If db is a transaction, the row stays locked
// until it ends.
func (r *Reader) Letter(ctx context.Context, db postgres.DB, tenant tenants.ID, k ident.TickKey) (*deadLetter, error) {
	retention, err := r.deadRetention(ctx, tenant)
	if err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, `
		SELECT `+record.DeadColumns+`
		FROM dead_letter
		WHERE `+record.ByKey+` AND failed_at > `+postgres.Now+` - $5::interval
		FOR UPDATE`, tenant, k.Schedule, k.At, k.Seq, retention)
	if err != nil {
		return nil, fmt.Errorf("read dead letter: %w", err)
	}
	found, err := pgx.CollectRows(rows, scanDead)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// DeadFilter picks dead letters: of a workflow, of the workflows that push to an endpoint now, and of a key, if these are not empty, with
// nominal times from From on and before To, if these are not nil. The zero value picks all.
type DeadFilter struct {
	Workflow string     `json:"workflow,omitempty"`
	Endpoint string     `json:"endpoint,omitempty"`
	Key      string     `json:"key,omitempty"`
	From     *time.Time `json:"from,omitempty" null:"yes"`
	To       *time.Time `json:"to,omitempty" null:"yes"`
}

// name returns the filter as part of a cursor's name: a cursor is valid for the same filter only.
func (f DeadFilter) name() string {
	return fmt.Sprintf("dead letters %q %q %q %d %d", f.Workflow, f.Endpoint, f.Key, f.since().Unix(), f.Until().Unix())
}

func (f DeadFilter) since() (at time.Time) {
	if f.From != nil {
		at = *f.From
	}
	return at.UTC()
}

// Until returns the end of the picked nominal times, which is not included.
func (f DeadFilter) Until() time.Time {
	if f.To == nil {
		return record.EndOfTime
	}
	return f.To.UTC()
}

// DeadAt is where a page of dead letters begins: after this tick, in the order of the page.
type DeadAt struct {
	At       time.Time `json:"a"`
	Schedule int64     `json:"i"`
	Seq      int32     `json:"s"`
}

// DeadLetters returns a page of a tenant's ticks that failed for good, newest nominal time first, and the cursor of the
// next page, if there is one.
func (r *Reader) DeadLetters(ctx context.Context, tenant tenants.ID, f DeadFilter, limit int, cursor string) (page []Tick, next *string, err error) {
	from := DeadAt{At: f.Until()}
	paging, err := r.cursors.Page(int32(tenant), f.name(), limit, cursor, &from)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	found, more, err := r.DeadBefore(ctx, r.api, tenant, f, from, limit)
	if err != nil {
		return nil, nil, err
	}
	page = make([]Tick, 0, len(found))
	for _, l := range found {
		page = append(page, r.Shown(&l.Tick, l.Schedule()))
	}
	if err := r.Localize(ctx, r.api, tenant, pointers(page)...); err != nil {
		return nil, nil, err
	}
	if !more {
		return page, nil, nil
	}
	next, err = paging.Next(found[len(found)-1].Place())
	return page, next, err
}

// Place returns the position of the dead letter in a list.
func (l *deadLetter) Place() DeadAt { return DeadAt{l.NominalAt.UTC(), l.ScheduleID, l.Seq} }

// DeadBefore reads up to limit dead letters of a filter that come before one, newest first. more reports whether there are others. It
// reads fewer if they hold more than web.MostPage bytes. Each filter has an index in this order.
func (r *Reader) DeadBefore(ctx context.Context, db postgres.DB, tenant tenants.ID, f DeadFilter, from DeadAt, limit int) (found []*deadLetter, more bool, err error) {
	retention, err := r.deadRetention(ctx, tenant)
	if err != nil {
		return nil, false, err
	}
	args := []any{tenant, from.At, from.Schedule, from.Seq, f.since(), limit + 1, retention}
	source, args := f.source(args, `(nominal_at, schedule_id, seq) < ($2, $3, $4) AND nominal_at >= $5 AND failed_at > `+postgres.Now+` - $7::interval`, "$6")
	query := func() (pgx.Rows, error) {
		return db.Query(ctx, `SELECT `+record.DeadColumns+` FROM (`+source+`) dead_letter ORDER BY nominal_at DESC, schedule_id DESC, seq DESC`, args...)
	}
	found, full, err := web.Collect(ctx, limit+1, web.MostPage, query, scanDead, (*deadLetter).held)
	if err != nil {
		return nil, false, fmt.Errorf("read dead letters: %w", err)
	}
	found, more = web.Trim(found, limit, full)
	return found, more, nil
}

// source returns a query of the dead letters of tenant $1 that the filter picks and that fulfil a condition: the latest by nominal time, up to
// a limit. Of an endpoint it reads so many of each workflow, by the index.
func (f DeadFilter) source(args []any, condition, limit string) (string, []any) {
	where := `tenant_id = $1 AND ` + condition
	for _, only := range []struct{ column, value string }{{"workflow", f.Workflow}, {"key", f.Key}} {
		if only.value != "" {
			args = append(args, only.value)
			where += fmt.Sprintf(" AND %s = $%d", only.column, len(args))
		}
	}
	const order = ` ORDER BY nominal_at DESC, schedule_id DESC, seq DESC LIMIT `
	if f.Endpoint == "" {
		return `SELECT * FROM dead_letter WHERE ` + where + order + limit, args
	}
	args = append(args, f.Endpoint)
	return fmt.Sprintf(`
		SELECT d.*
		FROM (SELECT name FROM workflow WHERE tenant_id = $1 AND endpoint = $%d) w
		CROSS JOIN LATERAL (SELECT * FROM dead_letter WHERE %s AND workflow = w.name%s%s) d%s%s`, len(args), where, order, limit, order, limit), args
}

// CountDead returns how many dead letters a filter picks.
func (r *Reader) CountDead(ctx context.Context, tenant tenants.ID, f DeadFilter) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	retention, err := r.deadRetention(ctx, tenant)
	if err != nil {
		return 0, err
	}
	source, args := f.source([]any{tenant, f.since(), f.Until(), retention}, `nominal_at >= $2 AND nominal_at < $3 AND failed_at > `+postgres.Now+` - $4::interval`, "ALL")
	if err := r.api.QueryRow(ctx, `SELECT count(*) FROM (`+source+`) dead_letter`, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count dead letters: %w", err)
	}
	return n, nil
}

// Check returns the faults of a filter that is the body of a request.
func (f DeadFilter) Check() error {
	var errs []error
	if f.Workflow != "" {
		errs = append(errs, policy.CheckName("/filter/workflow", "workflow", f.Workflow))
	}
	if f.Endpoint != "" {
		errs = append(errs, policy.CheckName("/filter/endpoint", "endpoint", f.Endpoint))
	}
	if f.Key != "" && !policy.ValidKey(f.Key) {
		errs = append(errs, fault.Invalid("/filter/key", "a key is 1 to 256 bytes of UTF-8 without control characters"))
	}
	return fault.Join(errs...)
}
