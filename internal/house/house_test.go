// Package house holds the arrows between our packages: which may import which.
package house

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

// rooms says, for each package (and what lies below it), what of ours it may import besides internal: "*" is anything
// but loadtest. A package that is not in the list may import nothing of ours; the longest name that fits decides.
var rooms = map[string]string{
	"calendar":                       "calendar",
	"calendar/tzdata":                "",
	"internal":                       "internal",
	"internal/postgres/postgrestest": "internal migrations",
	"migrations":                     "internal migrations",
	"tenants":                        "internal tenants",
	"schedules":                      "internal tenants calendar schedules",
	"dispatch":                       "internal tenants calendar schedules dispatch",
	"console":                        "internal tenants calendar schedules dispatch console",
	"api":                            "api",
	"cmd":                            "*",
	"loadtest":                       "* loadtest",
}

// forTests may be imported by the tests of any package but the calendar's.
const forTests = "internal api migrations"

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
		for _, imported := range pkg.Imports {
			if !permitted(imported, allowed(name)) {
				t.Errorf("%s imports %s", name, imported)
			}
		}
		for _, imported := range append(pkg.TestImports, pkg.XTestImports...) {
			if !permitted(imported, allowed(name)+" "+name+" "+forTests) || within(name, "calendar") && !permitted(imported, "calendar") {
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

func allowed(name string) string {
	for at := name; at != "."; at = filepath.Dir(at) {
		if may, ok := rooms[at]; ok {
			return may
		}
	}
	return ""
}

func permitted(imported, may string) bool {
	name, ours := strings.CutPrefix(imported, module+"/")
	return !ours || slices.ContainsFunc(strings.Fields(may), func(room string) bool {
		return within(name, room) || room == "*" && !within(name, "loadtest")
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
	} {
		if permitted(module+"/"+imported, allowed(from)) {
			t.Errorf("%s may import %s", from, imported)
		}
	}
}
