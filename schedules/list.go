package schedules

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Filter says which schedules a list holds; an empty member does not restrict it. At most one of KeyPrefix, Label and
// DueBefore is given.
type Filter struct {
	Workflow  string    `json:"w,omitempty"`
	Status    string    `json:"s,omitempty"`
	KeyPrefix string    `json:"p,omitempty"`
	Label     string    `json:"l,omitempty"` // name:value
	DueBefore time.Time `json:"d,omitzero"`  // whose next tick comes before this; the list is in due order
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
	if err := f.check(""); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	name := fmt.Sprintf("schedules %q", f)
	var after Position
	paging, err := s.Cursors.Page(int32(tenant), name, limit, cursor, &after)
	if err != nil {
		return nil, nil, err
	}
	found, end, now, err := s.read(ctx, tenant, f, after, paging.Rows())
	if err != nil {
		return nil, nil, err
	}
	if len(found) > limit {
		found, end = found[:limit], new(f.position(found[limit-1]))
	}
	if page, err = s.show(ctx, tenant, found, now); err != nil {
		return nil, nil, err
	}
	if !f.DueBefore.IsZero() {
		page = slices.DeleteFunc(page, func(one Schedule) bool {
			return one.NextAt == nil || !one.NextAt.Before(f.DueBefore) || f.Status != "" && one.Status != f.Status
		})
	}
	if end == nil {
		return page, nil, nil
	}
	next, err = paging.Next(*end)
	return page, next, err
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

// check returns the faults of a filter, each located below prefix.
func (f Filter) check(prefix string) error {
	var errs []error
	if f.Workflow != "" {
		errs = append(errs, policy.CheckName(prefix+"/workflow", "workflow", f.Workflow))
	}
	if f.Status != "" && !slices.Contains([]string{policy.Active, policy.Paused, policy.Completed, policy.Quarantined}, f.Status) {
		errs = append(errs, fault.Invalid(prefix+"/status", "%q is not one of active, paused, completed, quarantined", f.Status))
	}
	if f.KeyPrefix != "" {
		errs = append(errs, policy.CheckKey(prefix+"/key_prefix", f.KeyPrefix))
	}
	if name, value, found := strings.Cut(f.Label, ":"); f.Label != "" && (!found || !policy.ValidName(name) || len(value) > longestLabel) {
		errs = append(errs, fault.Invalid(prefix+"/label", "%q is not name:value", f.Label))
	}
	given := 0
	for _, one := range []bool{f.KeyPrefix != "", f.Label != "", !f.DueBefore.IsZero()} {
		if one {
			given++
		}
	}
	if given > 1 {
		errs = append(errs, fault.Invalid(prefix, "at most one of key_prefix, label and due_before is given"))
	}
	return fault.Join(errs...)
}

// lookups join what rowTables does to the rows of a page, each by its index: a subquery with an OFFSET is not taken apart,
// so the planner has no order of joins to look for. It plans a list anew for each page, as the rows that a page has depend
// on what is asked for, and that took it longer than to read the page.
const lookups = `
	CROSS JOIN LATERAL (SELECT * FROM schedule_state WHERE tenant_id = s.tenant_id AND schedule_id = s.id OFFSET 0) st
	LEFT JOIN LATERAL (SELECT defaults FROM workflow WHERE tenant_id = s.tenant_id AND name = s.workflow OFFSET 0) w ON true
	LEFT JOIN LATERAL (SELECT * FROM cohort WHERE shard = s.shard AND id = s.cohort_id AND tenant_id = s.tenant_id OFFSET 0) c ON true
	LEFT JOIN LATERAL (SELECT from_at, until_at FROM member WHERE cohort_id = s.cohort_id AND phase = s.phase AND schedule_id = s.id AND tenant_id = s.tenant_id OFFSET 0) m ON true
	LEFT JOIN LATERAL (SELECT * FROM key_profile WHERE tenant_id = s.tenant_id AND key = CASE WHEN s.by_key THEN s.key END OFFSET 0) kp ON true`

// query is the list in SQL, from a position on, and through another one unless that is nil. Without that one it looks at mostListed
// rows that may not match.
func (f Filter) query(tenant tenants.ID, after Position, through *Position, limit int) (sql string, args []any) {
	if !f.DueBefore.IsZero() {
		return f.dueQuery(tenant, after, limit)
	}
	if f.everyWorkflow() {
		return f.prefixQuery(tenant, after, through, limit)
	}
	by, tables := f.source()
	where, args := f.where(by, tenant, after, through)
	order := by + ".workflow, " + by + ".key"
	if f.passesMany() && through == nil {
		tables = `(SELECT s.* FROM ` + tables + ` WHERE ` + where + ` ORDER BY ` + order + ` LIMIT ` + strconv.Itoa(mostListed) + `) s`
		where, order = "true", "s.workflow, s.key"
	}
	if f.Status != "" {
		where += " AND (" + shownAs[f.Status] + ")"
	}
	args = append(args, limit)
	return `SELECT ` + rowColumns + ` FROM (
			SELECT s.*
			FROM ` + tables + `
			WHERE ` + where + `
			ORDER BY ` + order + `
			LIMIT $` + strconv.Itoa(len(args)) + `
		) s ` + lookups + `
		ORDER BY s.workflow, s.key`, args
}

// source is the table whose order a list follows, and all the tables that it is read of.
func (f Filter) source() (by, tables string) {
	switch {
	case f.Label != "":
		return "l", "label l JOIN schedule s ON s.tenant_id = l.tenant_id AND s.workflow = l.workflow AND s.key = l.key"
	case f.Status == policy.Completed && !f.passesMany():
		return "s", ended
	}
	return "s", "schedule s"
}

// dueQuery walks the cohorts by their next time, and the members of each by their place in it. Only what is asked for is
// in it, so that both are ranges of their indexes; the sort is of one cohort at a time, and of those that are few.
func (f Filter) dueQuery(tenant tenants.ID, after Position, limit int) (sql string, args []any) {
	args = []any{tenant, f.DueBefore, after.NextAt, after.Cohort, after.Phase, after.ID, int64(math.MinInt64), limit}
	workflow := ""
	if f.Workflow != "" {
		workflow, args = "AND d.workflow = $9", append(args, f.Workflow)
	}
	asked := "d.next_at < $2 AND (d.next_at, d.id) >= ($3::timestamptz, $4::bigint) " + workflow
	members := cohorts.ByNextTime("d.id, d.next_at", asked, func(from, where string) string {
		return `
			SELECT d.next_at, d.id AS cohort_id, x.phase, x.schedule_id
			FROM ` + from + `
			CROSS JOIN LATERAL (
				SELECT phase, schedule_id
				FROM member
				WHERE cohort_id = d.id AND tenant_id = $1 AND (phase, schedule_id) >
					(CASE WHEN d.id = $4 AND d.next_at = $3 THEN $5::bigint ELSE $7::bigint END, CASE WHEN d.id = $4 AND d.next_at = $3 THEN $6::bigint ELSE -1::bigint END)
				ORDER BY phase, schedule_id
				LIMIT $8
			) x
			WHERE ` + where + `
			ORDER BY d.next_at, d.id, x.phase, x.schedule_id
			LIMIT $8`
	})
	return `SELECT ` + rowColumns + ` FROM (
			SELECT *
			FROM (` + members + `) p
			ORDER BY next_at, cohort_id, phase, schedule_id
			LIMIT $8
		) p CROSS JOIN LATERAL (SELECT * FROM schedule WHERE tenant_id = $1 AND id = p.schedule_id OFFSET 0) s ` + lookups + `
		ORDER BY p.next_at, p.cohort_id, p.phase, p.schedule_id`, args
}

// where is the filter but its status in SQL, from a position on in the workflow and key of a table, and through another one unless
// that is nil. Only what is asked for is in it, so that it is a range of the index.
func (f Filter) where(by string, tenant tenants.ID, after Position, through *Position) (clause string, args []any) {
	clause, args = by+".tenant_id = $1", []any{tenant}
	and := func(format string, values ...any) {
		numbers := make([]any, len(values))
		for i := range values {
			numbers[i] = len(args) + i + 1
		}
		clause, args = clause+" AND "+fmt.Sprintf(strings.ReplaceAll(format, "@", by+"."), numbers...), append(args, values...)
	}
	if f.Label != "" {
		name, value, _ := strings.Cut(f.Label, ":")
		and("@name = $%d AND @value = $%d", name, value)
	}
	if f.Workflow != "" {
		and("@workflow = $%d AND @key > $%d", f.Workflow, after.Key)
	} else {
		and("(@workflow, @key) > ($%d, $%d)", after.Workflow, after.Key)
	}
	if f.KeyPrefix != "" {
		and("@key >= $%d", f.KeyPrefix)
		if past := PastPrefix(f.KeyPrefix); past != "" {
			and("@key < $%d", past)
		}
	}
	if through != nil {
		and("(@workflow, @key) <= ($%d, $%d)", through.Workflow, through.Key)
	}
	return clause, args
}

// shownAs tells in SQL which rows have a status by now: a pause may have ended. What is not active has an index of its own,
// which serves where the status is in the statement as a constant.
var shownAs = map[string]string{
	policy.Active:      "s.status = 'active' OR s.status = 'paused' AND s.paused_until <= " + postgres.TxNow + " AND s.cohort_id IS NOT NULL",
	policy.Paused:      "s.status = 'paused' AND (s.paused_until IS NULL OR s.paused_until > " + postgres.TxNow + ")",
	policy.Completed:   "s.status = 'completed' OR s.status = 'paused' AND s.paused_until <= " + postgres.TxNow + " AND s.cohort_id IS NULL",
	policy.Quarantined: "s.status = 'quarantined'",
}

// ended are the rows that are completed, as one table of two ranges.
const ended = `(
		SELECT * FROM schedule WHERE status = 'completed'
		UNION ALL
		SELECT * FROM schedule WHERE status = 'paused' AND paused_until <= ` + postgres.TxNow + ` AND cohort_id IS NULL
	) s`
