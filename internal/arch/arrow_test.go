package arch

import (
	"errors"
	"go/build"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/carillonhq/carillon"

// rooms lists, for each package, exactly the packages of this module that it may import. "internal" stands for all packages below
// internal, "*" for all packages except loadtest. A package that is not in the list may import none.
var rooms = map[string]string{
	"calendar":                       "",
	"internal/arch":                  "",
	"internal/fault":                 "",
	"internal/bytelru":               "internal",
	"internal/ident":                 "internal",
	"internal/instant":               "internal",
	"internal/keyset":                "internal",
	"internal/loop":                  "",
	"internal/mergepatch":            "",
	"internal/once":                  "internal",
	"internal/postgres":              "internal",
	"internal/postgres/embedded":     "internal",
	"internal/postgres/postgrestest": "internal migrations",
	"internal/postgres/shiftedclock": "internal",
	"internal/postgres/silent":       "",
	"internal/sabotage":              "",
	"internal/trace":                 "internal",
	"internal/trace/tracetest":       "",
	"internal/varint":                "",
	"internal/version":               "internal",
	"internal/web":                   "internal",
	"internal/web/webtest":           "internal",
	"migrations":                     "internal",
	"tenants":                        "internal",
	"operations":                     "internal tenants",
	"schedules/policy":               "internal tenants",
	"schedules/runs":                 "calendar",
	"schedules/cohorts":              "internal tenants calendar schedules/policy schedules/runs",
	"schedules/calendars":            "internal tenants calendar operations schedules/policy schedules/cohorts",
	"schedules/forecast":             "internal tenants calendar schedules/policy schedules/cohorts",
	"schedules":                      "internal tenants calendar operations schedules/policy schedules/cohorts schedules/runs schedules/forecast",
	"dispatch/state":                 "internal tenants",
	"dispatch/record":                "internal tenants calendar schedules/policy schedules/cohorts dispatch/state",
	"dispatch/rate":                  "internal tenants",
	"dispatch/tail":                  "internal tenants dispatch/record",
	"dispatch/cluster":               "internal tenants schedules/cohorts",
	"dispatch/chunk":                 "internal tenants calendar schedules/cohorts schedules/runs dispatch/record dispatch/cluster",
	"dispatch/message":               "internal tenants calendar schedules/cohorts dispatch/record",
	"dispatch/finish":                "internal tenants calendar schedules/policy schedules/cohorts dispatch/state dispatch/record dispatch/cluster dispatch/tail",
	"dispatch/history":               "internal tenants calendar operations schedules/policy schedules/cohorts schedules/forecast dispatch/record dispatch/chunk dispatch/tail",
	"dispatch/explain":               "internal tenants calendar schedules/policy schedules/cohorts dispatch/state dispatch/record dispatch/history",
	"dispatch/sweep":                 "internal tenants calendar schedules/cohorts schedules/runs dispatch/state dispatch/record dispatch/rate dispatch/cluster dispatch/chunk",
	"dispatch/push":                  "internal tenants calendar schedules/policy schedules/cohorts dispatch/record dispatch/rate dispatch/cluster dispatch/chunk dispatch/message dispatch/finish",
	"dispatch/lease":                 "internal tenants calendar schedules/policy dispatch/record dispatch/cluster dispatch/chunk dispatch/message dispatch/finish",
	"dispatch/open":                  "internal tenants calendar schedules/policy schedules/cohorts dispatch/state dispatch/record dispatch/cluster dispatch/chunk dispatch/finish dispatch/rate dispatch/push dispatch/lease",
	"dispatch/events":                "internal tenants dispatch/record dispatch/cluster dispatch/finish dispatch/push",
	"dispatch/expect":                "internal tenants schedules/policy dispatch/record dispatch/history",
	"dispatch/control":               "internal tenants calendar operations schedules/policy schedules/cohorts dispatch/state dispatch/record dispatch/rate dispatch/cluster dispatch/chunk dispatch/message dispatch/finish dispatch/history dispatch/sweep dispatch/lease",
	"dispatch/upkeep":                "internal tenants operations schedules/policy schedules/cohorts schedules/forecast schedules/calendars schedules/bulk dispatch/record dispatch/cluster dispatch/chunk dispatch/finish dispatch/history dispatch/sweep dispatch/push dispatch/events dispatch/expect dispatch/control",
	"dispatch":                       "internal tenants operations schedules/cohorts dispatch/record dispatch/tail dispatch/cluster dispatch/chunk dispatch/message dispatch/finish dispatch/history dispatch/explain dispatch/sweep dispatch/push dispatch/lease dispatch/open dispatch/events dispatch/expect dispatch/control dispatch/upkeep",
	"dispatch/platform":              "internal tenants schedules/cohorts schedules/forecast dispatch/cluster dispatch/chunk dispatch/history dispatch/upkeep",
	"dispatch/subjectview":           "internal tenants calendar schedules schedules/policy schedules/subjects dispatch/history dispatch/explain",
	"schedules/bulk":                 "internal tenants calendar schedules schedules/policy schedules/forecast schedules/subjects",
	dispatchHelpers:                  "internal tenants schedules/cohorts api/apitest migrations " + wholeDispatch,
	scheduleHelpers:                  "internal tenants api/apitest " + wholeSchedules,
	"schedules/subjects":             "internal tenants calendar operations schedules schedules/policy schedules/cohorts schedules/forecast",
	"console":                        "internal tenants schedules dispatch",
	"api":                            "",
	"api/apitest":                    "api",
	"api/apitest/provoked":           "api/apitest",
	"docs":                           "",
	"cmd/carillon":                   "*",
	"cmd/carillon/cli/caret":         "",
	"cmd/carillon/cli/draw":          "calendar",
	"cmd/carillon/cli/events":        "",
	"cmd/carillon/cli/forward":       "",
	"cmd/carillon/cli/progress":      "",
	"cmd/carillon/cli/when":          "internal calendar",
	"cmd/carillon/cli":               client,
	"cmd/carillon/cli/api":           "cmd/carillon/cli/exit",
	"cmd/carillon/cli/command":       client,
	"cmd/carillon/cli/exit":          "",
	"cmd/carillon/cli/output":        "cmd/carillon/cli/exit",
	"cmd/carillon/cli/profile":       "",
	"loadtest":                       "* loadtest/chaos",
	"loadtest/chaos":                 "*",
}

// client is what the commands of the command line may import: nothing of the server, because they speak to its API.
const client = "cmd/carillon/cli/api cmd/carillon/cli/caret cmd/carillon/cli/command cmd/carillon/cli/draw cmd/carillon/cli/events cmd/carillon/cli/exit " +
	"cmd/carillon/cli/forward cmd/carillon/cli/output cmd/carillon/cli/profile cmd/carillon/cli/progress cmd/carillon/cli/when calendar docs"

// wholeDispatch may also be imported by the tests of dispatch and of its rooms: they run a whole Carillon.
const wholeDispatch = "dispatch dispatch/dispatchtest dispatch/sweep dispatch/chunk dispatch/open dispatch/push dispatch/lease dispatch/finish dispatch/events dispatch/control " +
	"dispatch/history dispatch/explain dispatch/subjectview dispatch/platform dispatch/upkeep dispatch/record dispatch/state dispatch/message dispatch/cluster operations calendar schedules schedules/policy schedules/runs schedules/forecast schedules/calendars schedules/subjects schedules/bulk"

// wholeSchedules may also be imported by the tests of schedules, of its rooms and of operations: they run all services of schedules.
const wholeSchedules = "schedules schedules/schedulestest schedules/policy schedules/cohorts schedules/runs schedules/forecast schedules/calendars schedules/subjects schedules/bulk operations calendar"

// forTests may be imported by the tests of any package but the calendar's.
const forTests = "internal api api/apitest migrations"

func TestArrowsPointOneWay(t *testing.T) {
	t.Parallel()
	var seen int
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		name, _ := filepath.Rel("../..", path)
		if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || ownModule(path) && name != "loadtest") {
			return fs.SkipDir
		}
		pkg, err := build.ImportDir(path, 0)
		if _, empty := errors.AsType[*build.NoGoError](err); empty {
			return nil
		}
		if err != nil {
			return err
		}
		seen++
		if _, known := rooms[name]; !known {
			t.Errorf("%s is not in the list of rooms", name)
		}
		for _, imported := range pkg.Imports {
			if !permitted(imported, rooms[name]) {
				t.Errorf("%s imports %s", name, imported)
			}
		}
		for _, imported := range append(pkg.TestImports, pkg.XTestImports...) {
			may := rooms[name] + " " + name + " " + forTests
			if within(name, "dispatch") {
				may += " " + wholeDispatch
			}
			if within(name, "schedules") || name == "operations" {
				may += " " + wholeSchedules
			}
			if !permitted(imported, may) || within(name, "calendar") && !permitted(imported, "calendar") {
				t.Errorf("a test of %s imports %s", name, imported)
			}
		}
		return nil
	})
	if err != nil || seen < 5 {
		t.Errorf("got %d packages, %v", seen, err)
	}
}

func ownModule(path string) bool {
	found, _ := filepath.Glob(filepath.Join(path, "go.mod"))
	return len(found) > 0
}

func permitted(imported, may string) bool {
	name, ours := strings.CutPrefix(imported, module+"/")
	return !ours || slices.ContainsFunc(strings.Fields(may), func(room string) bool {
		return name == room || room == "internal" && within(name, room) || room == "*" && !within(name, "loadtest")
	})
}

func within(name, room string) bool {
	return name == room || strings.HasPrefix(name, room+"/")
}

func TestWrongArrowsAreFound(t *testing.T) {
	t.Parallel()
	for from, imported := range map[string]string{
		"calendar": "internal/fault", "internal/web": "tenants", "tenants": "schedules", "schedules": "dispatch",
		"dispatch": "api", "cmd/carillon": "loadtest", "migrations": "tenants", "api": "internal/web", "new": "calendar",
		"schedules/bulk": "operations", "dispatch/state": "dispatch", "console": "schedules/bulk", "loadtest/chaos": "loadtest",
	} {
		if permitted(module+"/"+imported, rooms[from]) {
			t.Errorf("%s may import %s", from, imported)
		}
	}
}
