package arch

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"testing"
)

// facts are parts of statements and numbers that one file owns: all other code uses what that file declares.
var facts = []struct {
	what    string
	pattern *regexp.Regexp
	owner   string
}{
	{"whether a tenant is stopped", regexp.MustCompile(`\bhalted_at IS NOT NULL\s+OR\b|\bOR\s+(\w+\.)?halted_at IS NOT NULL\b`), "tenants/tenants.go"},
	{"the time", regexp.MustCompile(`(?i)\b(clock_timestamp|now|transaction_timestamp|statement_timestamp)\(\)|\b(current_timestamp|current_date|localtimestamp)\b`), "internal/postgres/clock.go"},
	{"the key of a tick", regexp.MustCompile(`\bnominal_at = (\$\d|\w+\.\w+|COALESCE\([^)]*\)) AND (\w+\.)?seq = `), "dispatch/record/key.go"},
	{"the class of an advisory lock", regexp.MustCompile(`^0x4341_?[0-9a-f]{4}$`), "internal/postgres/locks.go"},
}

func TestEachFactHasItsOwner(t *testing.T) {
	t.Parallel()
	read := map[string]bool{}
	for _, s := range sources(t) {
		if within(s.name, "loadtest") || within(s.name, "sdk-go") || within(s.name, "migrations") || within(s.name, "internal/postgres/postgrestest") ||
			within(s.name, "internal/postgres/shiftedclock") { // it defines functions that replace those of PostgreSQL
			continue
		}
		read[s.name] = true
		ast.Inspect(s.file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING && literal.Kind != token.INT {
				return true
			}
			text := literal.Value
			if literal.Kind == token.STRING {
				var err error
				if text, err = strconv.Unquote(text); err != nil {
					t.Errorf("%s: %v", s.name, err)
				}
			}
			for _, f := range facts {
				if s.name != f.owner && f.pattern.MatchString(text) {
					t.Errorf("%s spells %s, which %s owns", s.set.Position(n.Pos()), f.what, f.owner)
				}
			}
			return true
		})
	}
	for _, f := range facts {
		if !read[f.owner] {
			t.Errorf("%s is gone, which owns %s", f.owner, f.what)
		}
	}
}
