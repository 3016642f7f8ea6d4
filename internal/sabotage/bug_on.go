//go:build mutant

package sabotage

import (
	"os"
	"strings"
	"sync"
)

var chosen = sync.OnceValue(func() Bug { return Bug(os.Getenv("CARILLON_MUTANT")) })

// On reports whether CARILLON_MUTANT names the bug.
func (b Bug) On() bool { return b == chosen() }

// Without returns sql. If the bug is on, it removes part.
func (b Bug) Without(sql, part string) string { return b.Instead(sql, part, "") }

// Instead returns sql. If the bug is on, it replaces part with other. It panics if sql does not contain part.
func (b Bug) Instead(sql, part, other string) string {
	if !b.On() {
		return sql
	}
	if !strings.Contains(sql, part) {
		panic("the bug " + string(b) + " does not fit: " + sql)
	}
	return strings.ReplaceAll(sql, part, other)
}
