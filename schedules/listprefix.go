package schedules

import (
	"fmt"
	"unicode/utf8"

	"github.com/carillonhq/carillon/tenants"
)

// inPrefix are the schedules whose key has a prefix, in all workflows: it looks up each workflow that has schedules, and walks the
// prefix in each. Its arguments are those of prefixArgs.
const inPrefix = `WITH RECURSIVE workflows AS (
			(SELECT workflow FROM schedule WHERE tenant_id = $1 AND workflow >= $2 ORDER BY workflow LIMIT 1)
			UNION ALL
			SELECT (SELECT s.workflow FROM schedule s WHERE s.tenant_id = $1 AND s.workflow > n.workflow ORDER BY s.workflow LIMIT 1)
			FROM workflows n
			WHERE n.workflow IS NOT NULL
		)`

const ofWorkflow = `s.tenant_id = $1 AND s.workflow = n.workflow AND s.key >= $4 AND (s.workflow, s.key) > ($2, $3) `

func (f Filter) prefixArgs(tenant tenants.ID, after Position, limit int) (past string, args []any) {
	args = []any{tenant, after.Workflow, after.Key, f.KeyPrefix, limit}
	if end := PastPrefix(f.KeyPrefix); end != "" {
		return "AND s.key < $6", append(args, end)
	}
	return "", args
}

// prefixQuery is a list by the prefix of keys of all workflows.
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

// PastPrefix is the least text after all those with a prefix, compared byte for byte; "" where there is none.
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
