//go:build mutant

package sabotage

import (
	"os"
	"strings"
	"sync"
)

var chosen = sync.OnceValue(func() Bug { return Bug(os.Getenv("CARILLON_MUTANT")) })

// On tells whether the program has the bug: where CARILLON_MUTANT names it.
func (b Bug) On() bool { return b == chosen() }

// Without returns the statement, with the bug without a part of it.
func (b Bug) Without(sql, part string) string { return b.Instead(sql, part, "") }

// Instead returns the statement, with the bug with another part in the stead of one.
func (b Bug) Instead(sql, part, other string) string {
	if !b.On() {
		return sql
	}
	if !strings.Contains(sql, part) {
		panic("the bug " + string(b) + " does not fit: " + sql)
	}
	return strings.ReplaceAll(sql, part, other)
}
