package arch

import (
	"errors"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// writes matches a statement that writes a table, and finds its name.
var writes = regexp.MustCompile(`\b(?:INSERT INTO|UPDATE|DELETE FROM|TRUNCATE|COPY)\s+(?:ONLY\s+)?([a-z_]+)\b`)

// texts calls visit for each string in the server's code.
func texts(t *testing.T, visit func(s source, text string)) {
	t.Helper()
	for _, s := range sources(t) {
		if within(s.name, "loadtest") || within(s.name, "sdk-go") || within(s.name, "calendar") || within(s.name, "internal/postgres/shiftedclock") || within(s.name, "internal/postgres/postgrestest") {
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
			visit(s, text)
			return true
		})
	}
}

// writers returns the folders whose SQL writes each table, in order.
func writers(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string]map[string]bool{}
	texts(t, func(s source, text string) {
		for _, match := range writes.FindAllStringSubmatch(text, -1) {
			if found[match[1]] == nil {
				found[match[1]] = map[string]bool{}
			}
			found[match[1]][s.folder()] = true
		}
	})
	sorted := map[string][]string{}
	for table, folders := range found {
		sorted[table] = slices.Sorted(maps.Keys(folders))
	}
	return sorted
}

// Each table is written by the packages that own it, and by no other.
func TestEachTableHasItsWriters(t *testing.T) {
	t.Parallel()
	found, said := writers(t), owners(t)
	for table, folders := range found {
		if !slices.Equal(folders, said[table]) {
			t.Errorf("%s is written by %v, and its comment says %v", table, folders, said[table])
		}
	}
	for table := range said {
		if found[table] == nil {
			t.Errorf("nobody writes %s", table)
		}
	}
}

var (
	updatesState = regexp.MustCompile(`(?s)\bUPDATE\s+schedule_state\b[^=]*?\bSET\s(.*)`)
	assigns      = regexp.MustCompile(`(?:^|,)\s*([a-z_]+)\s*=`)
	endsSet      = regexp.MustCompile(`\s(?:FROM|WHERE)\s`)
)

// A schedule's counters move in dispatch/state alone.
func TestCountersMoveInStateAlone(t *testing.T) {
	t.Parallel()
	texts(t, func(s source, text string) {
		if s.folder() == "dispatch/state" {
			return
		}
		counters, err := countersSet(text)
		if err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		for _, counter := range counters {
			t.Errorf("%s changes schedule_state.%s, which belongs to dispatch/state", s.name, counter)
		}
	})
}

// countersSet returns the columns of schedule_state that a statement updates and that count ticks.
func countersSet(text string) (counters []string, err error) {
	others := []string{"skips", "rezoned_at", "delay_at", "delay_left"} // they count no ticks
	if !strings.Contains(text, "UPDATE schedule_state") {
		return nil, nil
	}
	update := updatesState.FindStringSubmatch(text)
	if update == nil {
		return nil, errors.New("it updates schedule_state, and not in one text")
	}
	for _, assigned := range assigns.FindAllStringSubmatch(endsSet.Split(update[1], 2)[0], -1) {
		if !slices.Contains(others, assigned[1]) {
			counters = append(counters, assigned[1])
		}
	}
	return counters, nil
}

var (
	tableComment = regexp.MustCompile(`COMMENT ON TABLE ([a-z_]+) IS '((?:[^']|'')*)'`)
	writtenBy    = regexp.MustCompile(` Written by ([a-z/, -]+)\.$`)
)

// owners returns the packages that write each table, as the comments of the schema say.
func owners(t *testing.T) map[string][]string {
	t.Helper()
	names, err := filepath.Glob("../../migrations/sql/*.sql")
	if err != nil || len(names) < 5 {
		t.Fatalf("got %v, %v", names, err)
	}
	all := map[string][]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, comment := range tableComment.FindAllStringSubmatch(string(text), -1) {
			if by := writtenBy.FindStringSubmatch(comment[2]); by != nil {
				all[comment[1]] = strings.Split(by[1], ", ")
			}
		}
	}
	return all
}
