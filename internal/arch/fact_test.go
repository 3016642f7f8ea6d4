package arch

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"testing"
)

// facts are parts of statements that one file owns: all other SQL uses what that file declares.
var facts = []struct {
	what    string
	pattern *regexp.Regexp
	owner   string
}{
	{"whether a tenant is stopped", regexp.MustCompile(`\bhalted_at IS NOT NULL\s+OR\b|\bOR\s+(\w+\.)?halted_at IS NOT NULL\b`), "tenants/tenants.go"},
}

func TestEachFactHasItsOwner(t *testing.T) {
	t.Parallel()
	owned := make([]int, len(facts))
	for _, s := range sources(t) {
		if within(s.name, "loadtest") || within(s.name, "sdk-go") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
			for i, f := range facts {
				switch {
				case !f.pattern.MatchString(text):
				case s.name == f.owner:
					owned[i]++
				default:
					t.Errorf("%s spells %s, which %s owns", s.set.Position(n.Pos()), f.what, f.owner)
				}
			}
			return true
		})
	}
	for i, f := range facts {
		if owned[i] == 0 {
			t.Errorf("%s does not spell %s", f.owner, f.what)
		}
	}
}
