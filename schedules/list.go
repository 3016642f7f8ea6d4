package schedules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Filter says which schedules a list holds; an empty member does not restrict it. At most one of those after Status is given.
type Filter struct {
	Workflow    string    `json:"w,omitempty"`
	Status      string    `json:"s,omitempty"`
	Key         string    `json:"k,omitempty"`
	KeyPrefix   string    `json:"p,omitempty"`
	KeyContains string    `json:"c,omitempty"`
	Subject     string    `json:"u,omitempty"`
	Label       string    `json:"l,omitempty"` // name:value
	Timezone    string    `json:"z,omitempty"` // of the spec, or of the subject that it follows
	Calendar    string    `json:"n,omitempty"` // whose days the spec leaves out by this name
	Failing     bool      `json:"f,omitempty"` // whose last ended tick failed
	DueBefore   time.Time `json:"d,omitzero"`  // whose next tick comes before this; the list is in due order
}

// Position is where a page of a list begins: after this workflow and key, or in due order after this member.
type Position struct {
	Workflow string    `json:"w,omitempty"`
	Key      string    `json:"k,omitempty"`
	NextAt   time.Time `json:"n,omitzero"`
	Cohort   int64     `json:"c,omitempty"`
	Phase    int64     `json:"s,omitempty"`
	ID       int64     `json:"i,omitempty"`
}

// List returns a page of a tenant's schedules, and the cursor of the next page, if there is one: by workflow and key, or
// by the next times of their timings where those due before a moment are asked for. Of these a page may hold fewer than
// limit: members whose own next tick comes later than their timing's are left out of it. A page also ends at web.MostPage bytes, and
// after the schedules that mostListed bounds.
func (s *Schedules) List(ctx context.Context, tenant tenants.ID, f Filter, limit int, cursor string) (page []Schedule, next *string, err error) {
	page = []Schedule{}
	next, err = s.list(ctx, tenant, f, limit, cursor, func(one Schedule, _ *row, _ time.Time) { page = append(page, one) })
	return page, next, err
}

// ListSummaries is List without payloads and notes.
func (s *Schedules) ListSummaries(ctx context.Context, tenant tenants.ID, f Filter, limit int, cursor string) (page []Summary, next *string, err error) {
	page = []Summary{}
	next, err = s.list(ctx, tenant, f, limit, cursor, func(one Schedule, r *row, now time.Time) { page = append(page, r.summary(one, now)) })
	return page, next, err
}

// list calls add with each schedule of a page, its row and the clock.
func (s *Schedules) list(ctx context.Context, tenant tenants.ID, f Filter, limit int, cursor string, add func(one Schedule, r *row, now time.Time)) (next *string, err error) {
	if err := f.Check(""); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	name := fmt.Sprintf("schedules %+v", f)
	var after Position
	paging, err := s.Cursors.Page(int32(tenant), name, limit, cursor, &after)
	if err != nil {
		return nil, err
	}
	found, end, now, err := s.read(ctx, tenant, f, after, paging.Rows())
	if err != nil {
		return nil, err
	}
	if len(found) > limit {
		found, end = found[:limit], new(f.position(found[limit-1]))
	}
	shown, err := s.show(ctx, tenant, found, now)
	if err != nil {
		return nil, err
	}
	for i, one := range shown {
		if f.DueBefore.IsZero() || one.NextAt != nil && one.NextAt.Before(f.DueBefore) && (f.Status == "" || one.Status == f.Status) {
			add(one, found[i], now)
		}
	}
	if end == nil {
		return nil, nil
	}
	return paging.Next(*end)
}

// readFirst is how many rows of a list are read at first. What they hold tells how many more are read, so that the database
// sends few rows that do not fit on the page.
const readFirst = 128

// roomToRead is how many bytes there must be room for before a list is read: the rows that do not fit come from the database all
// the same.
const roomToRead = 256 << 10

// read reads up to limit rows of a list from a position on. End is nil unless it stopped before that and before the end of the list:
// because it may hold no more bytes, or has looked at as many rows as it may.
func (s *Schedules) read(ctx context.Context, tenant tenants.ID, f Filter, after Position, limit int) (found []*row, end *Position, now time.Time, err error) {
	if err := web.Room(ctx, roomToRead); err != nil {
		return nil, nil, now, err
	}
	held := 0
	for n := min(limit, readFirst); ; {
		some, err := s.look(ctx, tenant, f, after, n, web.MostPage-held)
		if len(found) > 0 && web.NoRoom(err) {
			return found, &after, now, nil
		}
		if err != nil {
			return nil, nil, now, err
		}
		found, now = append(found, some.rows...), some.at
		if some.end != nil || len(some.rows) < n || len(found) == limit {
			return found, some.end, now, nil
		}
		for _, r := range some.rows {
			held += web.Takes(r.held())
		}
		after = f.position(some.rows[len(some.rows)-1])
		n = min(limit-len(found), fitting(web.MostPage-held, held, len(found)))
	}
}

// fitting is how many rows fit into room, and one more, if they are as large as those n that hold so many bytes.
func fitting(room, held, n int) int {
	return max(0, room)/max(1, held/n) + 1
}

func (f Filter) position(r *row) Position {
	if f.DueBefore.IsZero() {
		return Position{Workflow: r.Workflow, Key: r.Key}
	}
	return Position{NextAt: r.NextAt.UTC(), Cohort: *r.CohortID, Phase: r.Phase, ID: r.ID}
}

// Check returns the faults of a filter, each located below prefix.
func (f Filter) Check(prefix string) error {
	var errs []error
	if f.Workflow != "" {
		errs = append(errs, policy.CheckName(prefix+"/workflow", "workflow", f.Workflow))
	}
	if f.Status != "" && !slices.Contains([]string{policy.Active, policy.Paused, policy.Completed, policy.Quarantined}, f.Status) {
		errs = append(errs, fault.Invalid(prefix+"/status", "%q is not one of active, paused, completed, quarantined", f.Status))
	}
	for member, text := range map[string]string{"key": f.Key, "key_prefix": f.KeyPrefix, "key_contains": f.KeyContains} {
		if text != "" {
			errs = append(errs, policy.CheckKey(prefix+"/"+member, text))
		}
	}
	if f.Subject != "" {
		errs = append(errs, policy.CheckSubject(prefix+"/subject", f.Subject))
	}
	if f.Timezone != "" {
		errs = append(errs, CheckZone(prefix+"/timezone", f.Timezone))
	}
	if f.Calendar != "" {
		errs = append(errs, policy.CheckName(prefix+"/calendar", "calendar", f.Calendar))
	}
	if name, value, found := strings.Cut(f.Label, ":"); f.Label != "" && (!found || !policy.ValidName(name) || len(value) > longestLabel) {
		errs = append(errs, fault.Invalid(prefix+"/label", "%q is not name:value", f.Label))
	}
	given := 0
	for _, one := range []bool{f.Key != "", f.KeyPrefix != "", f.KeyContains != "", f.Subject != "", f.Label != "", f.Timezone != "", f.Calendar != "", f.Failing, !f.DueBefore.IsZero()} {
		if one {
			given++
		}
	}
	if given > 1 {
		errs = append(errs, fault.Invalid(prefix, "at most one of key, key_prefix, key_contains, subject, label, timezone, calendar, failing and due_before is given"))
	}
	return fault.Join(errs...)
}

// mostListed bounds the schedules that one page looks at if its index also holds schedules that the filter does not pick. A page that
// finds few is short, and its cursor continues after the last schedule that the page looked at.
const mostListed = 5_000

// picksRows reports whether no index holds what the filter asks for, so that each row is looked at.
func (f Filter) picksRows() bool { return f.KeyContains != "" || f.Timezone != "" || f.Calendar != "" }

// passesMany reports whether a list walks an index that also holds schedules which the filter does not pick.
func (f Filter) passesMany() bool {
	if f.picksRows() {
		return true
	}
	return f.Status != "" && f.DueBefore.IsZero() && f.Subject == "" && (f.Label != "" || f.Failing || f.KeyPrefix != "" || f.Key != "" || f.Status == policy.Active)
}

// everyWorkflow reports whether a list walks one key, or a prefix of keys, in each workflow.
func (f Filter) everyWorkflow() bool { return (f.KeyPrefix != "" || f.Key != "") && f.Workflow == "" }

// looked holds the rows of a list after a position.
type looked struct {
	rows []*row
	end  *Position // where the search stopped before it found n rows; nil at the end of the list
	at   time.Time // the clock
}

// look reads up to n rows of a list after a position.
func (s *Schedules) look(ctx context.Context, tenant tenants.ID, f Filter, after Position, n, most int) (l looked, err error) {
	read := func(through *Position) error {
		sql, args := f.query(tenant, after, through, n)
		var full bool
		l.rows, full, l.at, err = readRows(ctx, s.Pool, n, most, sql, args...)
		if err == nil && full {
			l.end = new(f.position(l.rows[len(l.rows)-1]))
		}
		return err
	}
	if !f.everyWorkflow() || !f.passesMany() {
		if err := read(nil); err != nil || l.end != nil || len(l.rows) == n || !f.passesMany() {
			return l, err
		}
		web.Done(ctx, l.rows, (*row).held)
	}
	// The statement found few rows, and does not tell where it stopped. So they are read again, up to a known place.
	through, err := s.lastLooked(ctx, tenant, f, after)
	if err != nil {
		return l, err
	}
	if err := read(through); err == nil && l.end == nil && len(l.rows) < n {
		l.end = through
	}
	return l, err
}

// lastLooked returns the place of the last row that a page may look at after a position. It returns nil if fewer rows are left.
func (s *Schedules) lastLooked(ctx context.Context, tenant tenants.ID, f Filter, after Position) (*Position, error) {
	sql, args := f.lastQuery(tenant, after)
	var last Position
	err := s.Pool.QueryRow(ctx, sql, args...).Scan(&last.Workflow, &last.Key)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look how far a page goes: %w", err)
	}
	return &last, nil
}
