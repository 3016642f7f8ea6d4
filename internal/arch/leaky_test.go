package arch

import (
	"regexp"
	"testing"
)

// leaky finds comparisons of a column with COALESCE of two columns.
var leaky = regexp.MustCompile(`\b(AND|ON|WHERE) (COALESCE\([a-z_.]+, [a-z_.]+\) = |[a-z_.]+ = (CASE WHEN [a-z_.]+ THEN )?COALESCE\([a-z_.]+, [a-z_.]+\))`)

// On a table with row-level security PostgreSQL uses no index for a condition with COALESCE. It treats the expression as one that may leak
// rows, so it checks the policy first, on each row of the table. CASE WHEN a IS NULL THEN b ELSE a END has the same result.
func TestNoStatementComparesWithCOALESCE(t *testing.T) {
	t.Parallel()
	texts(t, func(s source, text string) {
		if found := leaky.FindString(text); found != "" {
			t.Errorf("%s compares with %q, for which an index is not used under row-level security", s.name, found)
		}
	})
	for _, condition := range []string{"ON a = COALESCE(s.b, s.c)", "AND COALESCE(b, c) = $2", "WHERE a = CASE WHEN b THEN COALESCE(c, d) END"} {
		if !leaky.MatchString(condition) {
			t.Errorf("%q is not found", condition)
		}
	}
}
