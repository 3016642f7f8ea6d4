package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// opening matches a call that opens a connection or a pool without package postgres, and so without its deadlines.
var opening = regexp.MustCompile(`\b(pgxpool\.New|pgx\.Connect|pgconn\.Connect)\w*\(`)

// mayOpen are the folders that may open connections themselves: package postgres, tools, test helpers, and migrations, which have no
// deadlines.
var mayOpen = []string{dispatchHelpers + "/", "internal/postgres/", "loadtest/", "migrations/"}

// Every call to the database ends by itself because every connection comes from package postgres.
func TestConnectionsComeFromPackagePostgres(t *testing.T) {
	t.Parallel()
	seen := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(path, filepath.FromSlash("../../")))
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		seen++
		for _, folder := range mayOpen {
			if strings.HasPrefix(name, folder) {
				return nil
			}
		}
		code, err := os.ReadFile(path)
		if found := opening.Find(code); found != nil {
			t.Errorf("%s has %s…): open it with postgres.Open or postgres.Connect", name, found)
		}
		return err
	})
	if err != nil || seen < 100 {
		t.Errorf("got %d files, %v", seen, err)
	}
}
