package carillon_test

import (
	"os"
	"strings"
	"testing"
)

// Each Go block of the README is in the examples, which run in the module of package carillontest.
func TestExampleIsTheReadmes(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("carillontest/example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.ReplaceAll(string(source), "\n\t", "\n")
	blocks := strings.Split(string(readme), "```go\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("the README has no example")
	}
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		if !strings.Contains(examples, "\n"+code) {
			t.Errorf("this is in no example:\n%s", code)
		}
	}
}
