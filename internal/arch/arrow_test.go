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

// rooms says, for each package, what of ours it may import: exactly these packages. "internal" stands for all that lies below it,
// "*" for anything but loadtest. A package that is not in the list may import nothing of ours.
var rooms = map[string]string{
	"calendar":                       "",
	"internal/arch":                  "",
	"internal/fault":                 "",
	"internal/hoard":                 "internal",
	"internal/ident":                 "internal",
	"internal/instant":               "internal",
	"internal/keyset":                "internal",
	"internal/loop":                  "",
	"internal/once":                  "internal",
	"internal/postgres":              "internal",
	"internal/postgres/embedded":     "internal",
	"internal/postgres/postgrestest": "internal migrations",
	"internal/postgres/silent":       "",
	"internal/sabotage":              "",
	"internal/varint":                "",
	"internal/version":               "internal",
	"internal/web":                   "internal",
	"migrations":                     "internal",
	"tenants":                        "internal",
	"operations":                     "internal tenants",
	"schedules/policy":               "internal tenants",
	"schedules/cohorts":              "internal tenants calendar schedules/policy",
	"schedules/calendars":            "internal tenants calendar operations schedules/policy schedules/cohorts",
	"schedules/forecast":             "internal tenants calendar schedules/policy schedules/cohorts",
	"schedules":                      "internal tenants calendar operations schedules/policy schedules/cohorts schedules/forecast",
	"dispatch/state":                 "internal tenants",
	"dispatch/message":               "internal tenants calendar schedules/cohorts dispatch/record",
	"dispatch":                       "internal tenants calendar operations schedules schedules/policy schedules/cohorts schedules/forecast schedules/calendars schedules/subjects dispatch/state dispatch/record dispatch/chunk dispatch/cluster dispatch/message",
	"dispatch/chunk":                 "internal tenants calendar schedules/cohorts dispatch/record",
	"dispatch/cluster":               "internal tenants calendar schedules/policy schedules/cohorts",
	"dispatch/record":                "internal tenants calendar schedules/policy schedules/cohorts dispatch/state",
	"schedules/subjects":             "internal tenants calendar operations schedules schedules/policy schedules/cohorts schedules/forecast",
	"console":                        "internal tenants schedules dispatch",
	"api":                            "",
	"api/apitest":                    "api",
	"api/apitest/provoked":           "api/apitest",
	"cmd/carillon":                   "*",
	"loadtest":                       "* loadtest/chaos",
	"loadtest/chaos":                 "*",
}

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
		if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || ownModule(path)) {
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
			below := strings.HasPrefix(imported, module+"/"+name+"/") // tests of a whole feature stand beside its uppermost room
			if !below && !permitted(imported, rooms[name]+" "+name+" "+forTests) || within(name, "calendar") && !permitted(imported, "calendar") {
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
		"schedules/bulk": "tenants", "dispatch/state": "dispatch", "console": "schedules/bulk", "loadtest/chaos": "loadtest",
	} {
		if permitted(module+"/"+imported, rooms[from]) {
			t.Errorf("%s may import %s", from, imported)
		}
	}
}
