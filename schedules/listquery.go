package schedules

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// lookups joins the tables of rowTables to the rows of a page, each by its index. The planner does not take a subquery with an OFFSET
// apart, so it has no order of joins to look for. It plans a list for each page, because the number of rows depends on the filter,
// and the search for an order took longer than reading the page.
const lookups = `
	CROSS JOIN LATERAL (SELECT * FROM schedule_state WHERE tenant_id = s.tenant_id AND schedule_id = s.id OFFSET 0) st
	LEFT JOIN LATERAL (SELECT defaults, fallback_timezone FROM workflow WHERE tenant_id = s.tenant_id AND name = s.workflow OFFSET 0) w ON true
	LEFT JOIN LATERAL (SELECT * FROM cohort WHERE shard = s.shard AND id = s.cohort_id AND tenant_id = s.tenant_id OFFSET 0) c ON true
	LEFT JOIN LATERAL (SELECT from_at, until_at FROM member WHERE cohort_id = s.cohort_id AND phase = s.phase AND schedule_id = s.id AND tenant_id = s.tenant_id OFFSET 0) m ON true
	LEFT JOIN LATERAL (SELECT * FROM subject_profile WHERE tenant_id = s.tenant_id AND subject = CASE WHEN s.by_subject THEN CASE WHEN s.subject IS NULL THEN s.key ELSE s.subject END END OFFSET 0) profile ON true`

// query returns the statement that reads a list after one position, and up to another position if through is not nil. If it is nil,
// the statement looks at no more than mostListed rows that may not match.
func (f Filter) query(tenant tenants.ID, after Position, through *Position, limit int) (sql string, args []any) {
	if !f.DueBefore.IsZero() {
		return f.dueQuery(tenant, after, limit)
	}
	if f.Subject != "" {
		return f.subjectQuery(tenant, after, limit)
	}
	if f.everyWorkflow() {
		return f.prefixQuery(tenant, after, through, limit)
	}
	by, tables := f.source()
	where, args := f.where(by, tenant, after, through)
	order := by + ".workflow, " + by + ".key"
	if f.KeyContains != "" { // the keys are in the index, so only the rows that are picked are read
		tables = `(SELECT s.tenant_id, s.workflow, s.key FROM schedule s WHERE ` + where + ` ORDER BY ` + order + ` LIMIT ` + strconv.Itoa(mostListed) + `) k
			CROSS JOIN LATERAL (SELECT * FROM schedule WHERE tenant_id = k.tenant_id AND workflow = k.workflow AND key = k.key OFFSET 0) s`
		args = append(args, f.KeyContains)
		where, order = fmt.Sprintf("position($%d IN k.key) > 0", len(args)), f.order("k")
		f.KeyContains = ""
	} else if f.passesMany() && through == nil {
		tables = `(SELECT s.* FROM ` + tables + ` WHERE ` + where + ` ORDER BY ` + order + ` LIMIT ` + strconv.Itoa(mostListed) + `) s`
		where, order = "true", f.order("s")
	}
	where, args = f.pick(where, args)
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

// order returns the order of a list whose rows come from a subquery. In one workflow it is the key: outside of the subquery the planner does
// not know that the workflow is the same in all rows, and would read and sort all of them before the first.
func (f Filter) order(of string) string {
	if f.Workflow != "" {
		return of + ".key"
	}
	return of + ".workflow, " + of + ".key"
}

// source returns the table whose order a list follows, and all tables that the list reads.
func (f Filter) source() (by, tables string) {
	switch {
	case f.Label != "":
		return "l", "label l JOIN schedule s ON s.tenant_id = l.tenant_id AND s.workflow = l.workflow AND s.key = l.key"
	case f.Failing:
		return "f", "failing f JOIN schedule s ON s.tenant_id = f.tenant_id AND s.id = f.schedule_id"
	case f.Status == policy.Completed && !f.passesMany():
		return "s", ended
	}
	return "s", "schedule s"
}

// dueQuery walks the cohorts by their next time, and the members of each cohort by their place in it. The statement has no condition
// that the filter does not need, so both walks are ranges of an index. It sorts the members of one cohort at a time, and the cohorts
// that were made while the tenant had few schedules.
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

// where returns the conditions of a filter, except for its status, after one position, and up to another position if through is not
// nil. by names the table that has the workflow and the key. The clause has no condition that the filter does not need, so it is a
// range of the index.
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
	if f.Key != "" {
		and("@key = $%d", f.Key)
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

// pick adds the conditions on a row of schedule s that no index serves.
func (f Filter) pick(where string, args []any) (string, []any) {
	if f.Status != "" {
		where += " AND (" + shownAs[f.Status] + ")"
	}
	one := fmt.Sprintf("$%d", len(args)+1)
	switch {
	case f.KeyContains != "":
		return where + " AND position(" + one + " IN s.key) > 0", append(args, f.KeyContains)
	case f.Calendar != "": // a name needs no escape in JSON; few specs hold it elsewhere, so few are parsed
		return where + ` AND position('"' || ` + one + `::text || '"' IN s.spec) > 0 AND (s.spec::jsonb #> '{exclude,named}') ? ` + one + `::text`, append(args, f.Calendar)
	case f.Timezone != "":
		in := `starts_with(s.spec, '{"timezone":"' || ` + one + `::text || '"')`
		if f.Timezone == "UTC" {
			in = `(` + in + ` OR NOT starts_with(s.spec, '{"timezone":'))`
		}
		return where + ` AND CASE WHEN s.by_subject THEN ` + one + `::text = COALESCE(
			(SELECT timezone FROM subject_profile WHERE tenant_id = s.tenant_id AND subject = CASE WHEN s.subject IS NULL THEN s.key ELSE s.subject END),
			(SELECT fallback_timezone FROM workflow WHERE tenant_id = s.tenant_id AND name = s.workflow),
			(SELECT fallback_timezone FROM tenant WHERE id = s.tenant_id)) ELSE ` + in + ` END`, append(args, f.Timezone)
	}
	return where, args
}

// subjectQuery returns the statement of a list of the schedules of a subject.
func (f Filter) subjectQuery(tenant tenants.ID, after Position, limit int) (sql string, args []any) {
	begin, of, args := f.ofSubject(tenant, after, limit)
	return begin + `
		SELECT ` + rowColumns + ` FROM (` + of + `) p
		CROSS JOIN LATERAL (SELECT * FROM schedule WHERE tenant_id = $1 AND id = p.id OFFSET 0) s ` + lookups + `
		ORDER BY s.workflow, s.key`, args
}

// ofSubject returns the query of the numbers of the schedules of a subject: those that name it, and those of this key that name none.
// The statement starts with begin.
func (f Filter) ofSubject(tenant tenants.ID, after Position, limit int) (begin, query string, args []any) {
	args = []any{tenant, after.Workflow, after.Key, f.Subject, limit}
	conditions := ` AND (s.workflow, s.key) > ($2, $3)`
	if f.Status != "" {
		conditions += " AND (" + shownAs[f.Status] + ")"
	}
	begin, from := inPrefix, `workflows n`
	if f.Workflow != "" {
		args, conditions = append(args, f.Workflow), conditions+" AND s.workflow = $6"
		begin, from = "", `(SELECT $6::text COLLATE "C" AS workflow) n`
	}
	return begin, `
			SELECT x.id
			FROM (
				SELECT s.id, s.workflow, s.key FROM schedule s WHERE s.tenant_id = $1 AND s.subject = $4` + conditions + `
				UNION ALL
				SELECT x.id, x.workflow, x.key
				FROM ` + from + `
				CROSS JOIN LATERAL (
					SELECT s.id, s.workflow, s.key
					FROM schedule s
					WHERE s.tenant_id = $1 AND s.workflow = n.workflow AND s.key = $4 AND s.subject IS NULL` + conditions + `
					OFFSET 0
				) x
			) x
			ORDER BY x.workflow, x.key
			LIMIT $5`, args
}

// shownAs holds for each status the condition of the rows that have it now: a pause may have ended. Rows that are not active have an
// index of their own, which PostgreSQL uses if the statement names the status as a constant.
var shownAs = map[string]string{
	policy.Active:      "s.status = 'active' OR s.status = 'paused' AND s.paused_until <= " + postgres.TxNow + " AND s.cohort_id IS NOT NULL",
	policy.Paused:      "s.status = 'paused' AND (s.paused_until IS NULL OR s.paused_until > " + postgres.TxNow + ")",
	policy.Completed:   "s.status = 'completed' OR s.status = 'paused' AND s.paused_until <= " + postgres.TxNow + " AND s.cohort_id IS NULL",
	policy.Quarantined: "s.status = 'quarantined'",
}

// ended selects the completed rows, as one table of two ranges.
const ended = `(
		SELECT * FROM schedule WHERE status = 'completed'
		UNION ALL
		SELECT * FROM schedule WHERE status = 'paused' AND paused_until <= ` + postgres.TxNow + ` AND cohort_id IS NULL
	) s`

// lastQuery returns the statement that finds the place of row number mostListed, whatever its status.
func (f Filter) lastQuery(tenant tenants.ID, after Position) (sql string, args []any) {
	if f.everyWorkflow() {
		past, args := f.prefixArgs(tenant, after, mostListed)
		return inPrefix + `
			SELECT x.workflow, x.key
			FROM workflows n
			CROSS JOIN LATERAL (SELECT s.workflow, s.key FROM schedule s WHERE ` + ofWorkflow + past + ` ORDER BY s.key LIMIT $5) x
			OFFSET $5 - 1
			LIMIT 1`, args // any row would do: in this order they need no sort, which would read all first
	}
	by, tables := "s", "schedule s"
	switch {
	case f.Label != "":
		by, tables = "l", "label l"
	case f.Failing:
		by, tables = "f", "failing f"
	}
	where, args := f.where(by, tenant, after, nil)
	return `
		SELECT ` + by + `.workflow, ` + by + `.key
		FROM ` + tables + `
		WHERE ` + where + `
		ORDER BY ` + by + `.workflow, ` + by + `.key
		OFFSET ` + strconv.Itoa(mostListed-1) + `
		LIMIT 1`, args
}

// inPrefix finds each workflow that has schedules, one after the other by the index. A statement that begins with it walks the keys
// with a prefix in each workflow. Its arguments are those of prefixArgs.
const inPrefix = `WITH RECURSIVE workflows AS (
			(SELECT workflow FROM schedule WHERE tenant_id = $1 AND workflow >= $2 ORDER BY workflow LIMIT 1)
			UNION ALL
			SELECT (SELECT s.workflow FROM schedule s WHERE s.tenant_id = $1 AND s.workflow > n.workflow ORDER BY s.workflow LIMIT 1)
			FROM workflows n
			WHERE n.workflow IS NOT NULL
		)`

// ofWorkflow selects the keys of one workflow that begin where the prefix does, after a position.
const ofWorkflow = `s.tenant_id = $1 AND s.workflow = n.workflow AND s.key >= $4 AND (s.workflow, s.key) > ($2, $3) `

// prefixArgs returns the arguments of a statement that begins with inPrefix, and the condition that ends the prefix.
func (f Filter) prefixArgs(tenant tenants.ID, after Position, limit int) (past string, args []any) {
	args = []any{tenant, after.Workflow, after.Key, cmp.Or(f.Key, f.KeyPrefix), limit}
	if f.Key != "" {
		return "AND s.key <= $6", append(args, f.Key)
	}
	if end := PastPrefix(f.KeyPrefix); end != "" {
		return "AND s.key < $6", append(args, end)
	}
	return "", args
}

// prefixQuery returns the statement of a list by the prefix of a key, of all workflows.
func (f Filter) prefixQuery(tenant tenants.ID, after Position, through *Position, limit int) (sql string, args []any) {
	past, args := f.prefixArgs(tenant, after, limit)
	if through != nil {
		past += fmt.Sprintf(" AND (s.workflow, s.key) <= ($%d, $%d)", len(args)+1, len(args)+2)
		args = append(args, through.Workflow, through.Key)
	}
	if f.Status != "" {
		past += " AND (" + shownAs[f.Status] + ")"
	}
	return inPrefix + `
		SELECT ` + rowColumns + ` FROM (
			SELECT x.id
			FROM workflows n
			CROSS JOIN LATERAL (
				SELECT s.id, s.workflow, s.key
				FROM schedule s
				WHERE ` + ofWorkflow + past + `
				ORDER BY s.key
				LIMIT $5
			) x
			ORDER BY x.workflow, x.key
			LIMIT $5
		) p CROSS JOIN LATERAL (SELECT * FROM schedule WHERE tenant_id = $1 AND id = p.id OFFSET 0) s ` + lookups + `
		ORDER BY s.workflow, s.key`, args
}

// PastPrefix returns the least text after all texts with a prefix, compared byte for byte, or "" if there is none.
func PastPrefix(prefix string) string {
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
