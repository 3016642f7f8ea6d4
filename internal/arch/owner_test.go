package arch

import (
	"errors"
	"go/ast"
	"go/token"
	"maps"
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
		if within(s.name, "loadtest") || within(s.name, "sdk-go") || within(s.name, "calendar") {
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
	found := writers(t)
	for table, folders := range found {
		if known := strings.Fields(owners[table]); !slices.Equal(folders, known) {
			t.Errorf("%s is written by %v, and its owners are %v", table, folders, known)
		}
	}
	for table := range owners {
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

// owners are the packages that write each table.
var owners = map[string]string{
	"allowance":         "dispatch/sweep",
	"api_key":           "tenants",
	"attempt":           "dispatch/finish dispatch/upkeep",
	"audit":             "dispatch/push dispatch/upkeep schedules/subjects tenants",
	"bucket":            "dispatch/upkeep tenants",
	"buffered":          "dispatch/control dispatch/finish dispatch/upkeep",
	"calendar":          "schedules/calendars",
	"calendar_revision": "schedules/calendars",
	"chunk":             "dispatch/chunk dispatch/open dispatch/push dispatch/sweep dispatch/upkeep",
	"cohort":            "dispatch/finish dispatch/record dispatch/sweep dispatch/upkeep schedules schedules/calendars schedules/cohorts",
	"cohort_timing":     "dispatch/upkeep schedules/cohorts",
	"daily_use":         "dispatch/upkeep",
	"daily_use_delta":   "dispatch/record",
	"dead_letter":       "dispatch/control dispatch/finish dispatch/upkeep schedules/subjects",
	"endpoint":          "dispatch/push",
	"erasure":           "schedules/subjects",
	"event":             "dispatch/events",
	"folded":            "internal/postgres",
	"notice_delta":      "dispatch/finish dispatch/push tenants",
	"delayed":           "dispatch/control dispatch/finish dispatch/record dispatch/sweep dispatch/upkeep",
	"idempotency":       "dispatch/upkeep internal/once schedules/subjects",
	"inactive":          "schedules/forecast",
	"key_profile":       "schedules/subjects",
	"lease":             "dispatch/lease",
	"lease_beat":        "dispatch/lease",
	"member":            "dispatch/sweep dispatch/upkeep schedules schedules/subjects",
	"notice":            "dispatch/events",
	"operation":         "operations schedules/subjects",
	"partition_attempt": "dispatch/upkeep",
	"process":           "dispatch/cluster dispatch/upkeep",
	"push_load":         "dispatch/push dispatch/upkeep",
	"ready":             "dispatch/lease",
	"revision":          "dispatch/upkeep schedules schedules/subjects",
	"tick_time":         "dispatch/record",
	"schedule":          "dispatch/sweep dispatch/upkeep schedules schedules/subjects",
	"schedule_state":    "dispatch/state dispatch/upkeep schedules schedules/subjects",
	"setting":           "tenants",
	"slot":              "dispatch/finish",
	"sync":              "schedules/bulk",
	"sync_line":         "schedules/bulk",
	"tally":             "dispatch/upkeep schedules/forecast",
	"tally_delta":       "dispatch/upkeep schedules/forecast schedules/subjects",
	"tenant":            "dispatch/control dispatch/upkeep tenants",
	"tick":              "dispatch/control dispatch/finish dispatch/open dispatch/record dispatch/upkeep",
	"fair_turn":         "dispatch/control dispatch/sweep",
	"tzdata":            "schedules/calendars",
	"queued":            "dispatch/control dispatch/finish dispatch/open",
	"wake":              "dispatch/control dispatch/upkeep",
	"workflow":          "schedules",
}
