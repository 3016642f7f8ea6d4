package arch

import (
	"os"
	"strings"
	"testing"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each Go block of the README is in a program of the SDK's guides, which a test runs.
func TestTheREADMEsExampleRuns(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../sdk-go/servertest/guides/hello/main.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(readme(t), "```go\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("the README has no example")
	}
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		if !strings.Contains(string(source), code) {
			t.Errorf("this is not in the program:\n%s", code)
		}
	}
}

func TestTheREADMEHasEveryDirectory(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	_, layout, _ := strings.Cut(readme(t), "\n## Layout\n")
	layout, _, _ = strings.Cut(layout, "\n## ")
	listed := strings.Count(layout, "\n| `")
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		listed--
		if !strings.Contains(layout, "\n| `"+e.Name()+"` | ") {
			t.Errorf("the layout lacks %s", e.Name())
		}
	}
	if listed != 0 {
		t.Error("the layout has directories that are not there")
	}
}

// Each link of the README into the repository leads to a file that exists.
func TestTheREADMEsLinksLead(t *testing.T) {
	t.Parallel()
	for _, after := range strings.Split(readme(t), "](")[1:] {
		target, _, _ := strings.Cut(after, ")")
		if strings.Contains(target, "://") {
			continue
		}
		if _, err := os.Stat("../../" + target); err != nil {
			t.Errorf("the README links to %s, which is not there", target)
		}
	}
}

// The settings that we advise keep what tenants send out of PostgreSQL's log.
func TestTheAdvisedPostgreSQLLogsNoParameters(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/postgresql.conf")
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"log_parameter_max_length = 0", "log_parameter_max_length_on_error = 0", "log_error_verbosity = terse"} {
		if !strings.Contains(string(text), "\n"+setting) {
			t.Errorf("deploy/postgresql.conf lacks %s", setting)
		}
	}
}
