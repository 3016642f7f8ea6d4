package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	promise   = regexp.MustCompile(`(?m)^\| ([^|\n]+) \| ([^|\n]+) \|$`)
	namedTest = regexp.MustCompile("^`([a-z][a-z0-9/-]*)\\.(Test[A-Z][A-Za-z0-9_]*)`$")
	testFunc  = regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9_]*)\(t \*testing\.T\) \{`)
)

// Each promise of the API names tests that exist.
func TestEachPromiseHasItsTest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	page, known, rows := string(text), map[string]map[string]bool{}, 0
	for _, row := range promise.FindAllStringSubmatch(page, -1) {
		if row[1] == "promise" || row[1] == "---" {
			continue
		}
		rows++
		for name := range strings.SplitSeq(row[2], ", ") {
			named := namedTest.FindStringSubmatch(name)
			if named == nil {
				t.Errorf("%s: %s does not name a test as package.Test", row[1], name)
				continue
			}
			if known[named[1]] == nil {
				known[named[1]] = testsOf(t, named[1])
			}
			if !known[named[1]][named[2]] {
				t.Errorf("%s: there is no test %s", row[1], name)
			}
		}
	}
	if all := strings.Count(page, "\n| ") - 2*strings.Count(page, "\n| --- |"); rows < 100 || rows != all {
		t.Errorf("%d of %d rows have a promise and its tests", rows, all)
	}
}

// testsOf returns the names of the tests in a folder below the root.
func testsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", filepath.FromSlash(folder), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range testFunc.FindAllStringSubmatch(string(text), -1) {
			tests[found[1]] = true
		}
	}
	return tests
}
