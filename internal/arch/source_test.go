package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// These folders hold the helpers that the tests of a feature share. They count as its tests.
const (
	dispatchHelpers = "dispatch/dispatchtest"
	scheduleHelpers = "schedules/schedulestest"
)

// source is one Go file of ours that is no test and was not generated.
type source struct {
	name  string // its path below the root, with slashes
	lines int
	set   *token.FileSet
	file  *ast.File
}

// folder returns the folder of the file.
func (s source) folder() string { return filepath.ToSlash(filepath.Dir(s.name)) }

// imports returns what the file imports.
func (s source) imports() []string {
	var paths []string
	for _, spec := range s.file.Imports {
		paths = append(paths, strings.Trim(spec.Path.Value, `"`))
	}
	return paths
}

// sources returns all our files, of all modules but the tools'.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
	if err != nil || len(all) < 300 {
		t.Fatalf("got %d files, %v", len(all), err)
	}
	return all
}

var parsed = sync.OnceValues(func() (all []source, err error) {
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, filepath.FromSlash("../../")))
		if d.IsDir() {
			if path != "../.." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || name == "tools" || name == dispatchHelpers || name == scheduleHelpers) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, text, parser.ParseComments)
		if err != nil || ast.IsGenerated(file) {
			return err
		}
		all = append(all, source{name, strings.Count(string(text), "\n"), set, file})
		return nil
	})
	return all, err
})
