package arch

import (
	"os"
	"regexp"
	"testing"
)

// Go installs a command only from a module without these directives.
func TestTheCommandCanBeInstalled(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`(?m)^(replace|exclude)\b.*`).FindString(string(file)); found != "" {
		t.Errorf("go.mod has %q, so that go install refuses the command", found)
	}
}

// The SDK brings no other module into a client's program.
func TestTheSDKRequiresNoModule(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("../../sdk-go/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`(?m)^(require|replace)\b.*`).FindString(string(file)); found != "" {
		t.Errorf("sdk-go/go.mod has %q", found)
	}
}
