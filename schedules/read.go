package schedules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// Get returns one schedule.
func (s *Schedules) Get(ctx context.Context, tenant tenants.ID, workflow, key string) (Schedule, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	r, now, err := readRow(ctx, s.Pool, tenant, workflow, key)
	if err != nil {
		return Schedule{}, err
	}
	return r.schedule(ctx, s.Pool, s, tenant, now)
}

func readRow(ctx context.Context, db postgres.DB, tenant tenants.ID, workflow, key string) (*row, time.Time, error) {
	var b pgx.Batch
	b.Queue(oneRow, tenant, workflow, key)
	b.Queue(`SELECT clock_timestamp()`)
	results := db.SendBatch(ctx, &b)
	defer results.Close()
	var now time.Time
	rows, err := results.Query()
	if err != nil {
		return nil, now, fmt.Errorf("read schedule: %w", err)
	}
	r, err := collectRow(rows)
	if err != nil {
		return nil, now, fmt.Errorf("read schedule: %w", err)
	}
	if r == nil {
		return nil, now, absent(workflow, key)
	}
	if err := results.QueryRow().Scan(&now); err != nil {
		return nil, now, fmt.Errorf("read clock: %w", err)
	}
	return r, now.UTC(), nil
}

// Filter says which schedules a list holds; an empty member does not restrict it.
type Filter struct {
	Workflow  string `json:"w,omitempty"`
	Status    string `json:"s,omitempty"`
	KeyPrefix string `json:"p,omitempty"`
}

// position is where a page of a list begins: after this workflow and key.
type position struct {
	Workflow string `json:"w"`
	Key      string `json:"k"`
}

// List returns a page of a tenant's schedules by workflow and key, and the cursor of the next page, if there is one.
func (s *Schedules) List(ctx context.Context, tenant tenants.ID, f Filter, limit int, cursor string) (page []Schedule, next *string, err error) {
	if err := f.check(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	name := fmt.Sprintf("schedules %q", f)
	var after position
	if cursor != "" {
		if err := s.Cursors.Open(int32(tenant), name, cursor, &after); err != nil {
			return nil, nil, err
		}
	}
	where, args := f.where(tenant, after)
	args = append(args, limit+1)
	rows, err := s.Pool.Query(ctx, `SELECT `+rowColumns+` FROM `+rowTables+`
		WHERE `+where+`
		ORDER BY s.workflow, s.key
		LIMIT $`+strconv.Itoa(len(args)), args...)
	if err != nil {
		return nil, nil, fmt.Errorf("list schedules: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[row])
	if err != nil {
		return nil, nil, fmt.Errorf("list schedules: %w", err)
	}
	more := len(found) > limit
	found = found[:min(limit, len(found))]
	page, err = s.show(ctx, tenant, found)
	if err != nil || !more {
		return page, nil, err
	}
	last := found[limit-1]
	sealed, err := s.Cursors.Seal(int32(tenant), name, position{last.Workflow, last.Key})
	return page, &sealed, err
}

func (f Filter) check() error {
	var errs []error
	if f.Workflow != "" {
		errs = append(errs, CheckName("/workflow", "workflow", f.Workflow))
	}
	if f.Status != "" && !slices.Contains([]string{Active, Paused, Completed, Quarantined}, f.Status) {
		errs = append(errs, fault.Invalid("/status", "%q is not one of active, paused, completed, quarantined", f.Status))
	}
	if f.KeyPrefix != "" {
		errs = append(errs, checkKey("/key_prefix", f.KeyPrefix))
	}
	return fault.Join(errs...)
}

// where is the filter in SQL, from a position on. Only what is asked for is in it, so that it is a range of the index.
func (f Filter) where(tenant tenants.ID, after position) (clause string, args []any) {
	clause, args = "s.tenant_id = $1", []any{tenant}
	and := func(format string, values ...any) {
		numbers := make([]any, len(values))
		for i := range values {
			numbers[i] = len(args) + i + 1
		}
		clause, args = clause+" AND "+fmt.Sprintf(format, numbers...), append(args, values...)
	}
	if f.Workflow != "" {
		and("s.workflow = $%d AND s.key > $%d", f.Workflow, after.Key)
	} else {
		and("(s.workflow, s.key) > ($%d, $%d)", after.Workflow, after.Key)
	}
	if f.KeyPrefix != "" {
		and("s.key >= $%d", f.KeyPrefix)
		if past := pastPrefix(f.KeyPrefix); past != "" {
			and("s.key < $%d", past)
		}
	}
	if f.Status != "" {
		and(`$%d = CASE
			WHEN s.paused_until > clock_timestamp() OR s.paused_until IS NULL THEN s.status
			WHEN s.cohort_id IS NULL THEN 'completed'
			ELSE 'active'
		END`, f.Status)
	}
	return clause, args
}

// pastPrefix is the least text after all those with a prefix, compared byte for byte; "" where there is none.
func pastPrefix(prefix string) string {
	r := []rune(prefix) // the order of UTF-8's bytes is that of its characters
	for n := len(r) - 1; n >= 0; n-- {
		if r[n] == utf8.MaxRune {
			continue
		}
		if r[n]++; r[n] == 0xD800 { // surrogates are no characters
			r[n] = 0xE000
		}
		return string(r[:n+1])
	}
	return ""
}

// UpcomingTick is one coming tick of a spec.
type UpcomingTick struct {
	Timestamp time.Time        `json:"timestamp"`
	LocalTime string           `json:"local_time"`
	DST       calendar.DSTNote `json:"dst"`
}

// Preview tells what a spec does: its coming ticks, a reading in English, warnings and its class for DST.
type Preview struct {
	Ticks     []UpcomingTick     `json:"ticks"`
	Reading   string             `json:"reading"`
	Warnings  []calendar.Warning `json:"warnings"`
	Class     calendar.Class     `json:"class"`
	Exhausted bool               `json:"exhausted"`
}

// Upcoming returns up to count coming ticks of a stored schedule, strictly after from (now where it is zero).
func (s *Schedules) Upcoming(ctx context.Context, tenant tenants.ID, workflow, key string, count int, from time.Time) (Preview, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	r, now, err := readRow(ctx, s.Pool, tenant, workflow, key)
	if err != nil {
		return Preview{}, err
	}
	r.wake(now)
	t, err := r.timing(ctx, s.Pool, s.Timings, tenant)
	if errors.Is(err, errUncomputable) {
		return Preview{}, fault.Fields(fault.Field{Pointer: "/spec", Code: "not_computable", Detail: "the schedule's spec can no longer be computed"})
	}
	if err != nil {
		return Preview{}, err
	}
	after := now
	if !from.IsZero() {
		after = from
	}
	next := r.nextAfter
	if r.Status == Paused && r.CohortID == nil {
		next = r.wouldBe()
	}
	out := preview(t, after, time.Time{}, count, next)
	out.Warnings = append(out.Warnings, s.Timings.warnings(r, t, tenant, now)...)
	return out, nil
}

// wouldBe gives the coming ticks of a paused schedule, were it resumed now.
func (r *row) wouldBe() func(*calendar.Timing, time.Time) (time.Time, bool) {
	given := int32(0)
	return func(t *calendar.Timing, after time.Time) (time.Time, bool) {
		given++
		tick, ok := t.Next(after)
		return tick.At, ok && (r.TicksLeft == nil || given <= *r.TicksLeft)
	}
}

// PreviewParams are an unsaved spec and which of its ticks are asked for.
type PreviewParams struct {
	Spec  calendar.Spec `json:"spec"`
	From  *time.Time    `json:"from,omitempty"`
	Count *int          `json:"count,omitempty"`
	Until *time.Time    `json:"until,omitempty"`
}

// PreviewSpec tells what an unsaved spec would do. Its anchor is now. One that fires more often than the smallest
// interval is warned of.
func PreviewSpec(p PreviewParams, identity string, smallest time.Duration, now time.Time) (Preview, error) {
	count := upcomingShown
	if p.Count != nil {
		count = *p.Count
	}
	countErr := checkCount("/count", count)
	t, err := calendar.Compile(p.Spec, calendar.Context{Created: wholeSecond(now), Identity: identity})
	if err := fault.Join(countErr, specFault(err)); err != nil {
		return Preview{}, err
	}
	after, until := now, time.Time{}
	if p.From != nil {
		after = p.From.UTC()
	}
	if p.Until != nil {
		until = p.Until.UTC()
	}
	left := count
	if p.Spec.MaxTicks != nil {
		left = *p.Spec.MaxTicks
	}
	out := preview(t, after, until, count, func(t *calendar.Timing, after time.Time) (time.Time, bool) {
		if first := t.FirstAt(wholeSecond(now)).Add(-time.Second); after.Before(first) && p.From == nil {
			after = first
		}
		tick, ok := t.Next(after)
		if left--; left < 0 && p.Spec.MaxTicks != nil {
			return time.Time{}, false
		}
		return tick.At, ok
	})
	out.Warnings = append(out.Warnings, t.Warnings(now)...)
	if gap := t.MinGap(now); gap > 0 && gap < smallest {
		out.Warnings = append(out.Warnings, calendar.Warning{Code: "interval_too_small", Detail: tooSmall(gap, smallest)})
	}
	return out, nil
}

func checkCount(pointer string, count int) error {
	if count < 1 || count > 1000 {
		return fault.Invalid(pointer, "%d is not between 1 and 1000", count)
	}
	return nil
}

func preview(t *calendar.Timing, after, until time.Time, count int, next func(*calendar.Timing, time.Time) (time.Time, bool)) Preview {
	out := Preview{Ticks: []UpcomingTick{}, Reading: t.Reading(), Warnings: []calendar.Warning{}, Class: t.Class()}
	for {
		at, ok := next(t, after)
		if !ok {
			out.Exhausted = true
			return out
		}
		if len(out.Ticks) == count || !until.IsZero() && at.After(until) {
			return out
		}
		tick, _ := t.Prev(at.Add(time.Second))
		out.Ticks = append(out.Ticks, UpcomingTick{at, t.Local(at).Format(time.RFC3339), tick.DST})
		after = at
	}
}
