package arch

import (
	"slices"
	"strings"
	"testing"
)

const (
	echo  = "github.com/labstack/echo/v4"
	river = "github.com/riverqueue/river"
)

// mayServe are the folders that speak HTTP in any of their files. In other folders only http.go does, and files whose name ends so.
var mayServe = []string{"api", "api/apitest", "console", "internal/web", "cmd/carillon", "cmd/carillon/cli", "cmd/carillon/cli/api", "cmd/carillon/cli/command", "sdk-go", "sdk-go/carillontest", "loadtest", "loadtest/chaos"}

// mayRequest are the folders whose files make requests over HTTP. Of these files only http.go serves any.
var mayRequest = []string{"dispatch/push"}

// mayQueue are the folders that use River.
var mayQueue = []string{"dispatch", "dispatch/open", "dispatch/upkeep", "migrations", "loadtest"}

// The domain knows no HTTP: only the files do that are named for it, and River is the dispatch's.
func TestTheDomainKnowsNoTransport(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if ofDomain(s) && speaksHTTP(s) {
			t.Errorf("%s speaks HTTP", s.name)
		}
		queues := slices.ContainsFunc(s.imports(), func(path string) bool { return strings.HasPrefix(path, river) })
		if queues && !slices.Contains(mayQueue, s.folder()) {
			t.Errorf("%s uses River", s.name)
		}
	}
}

// ofDomain reports whether a file must not speak HTTP.
func ofDomain(s source) bool {
	return !strings.HasSuffix(s.name, "http.go") && !slices.Contains(mayServe, s.folder())
}

// speaksHTTP reports whether a file imports Echo, or net/http where it makes no requests.
func speaksHTTP(s source) bool {
	imports := s.imports()
	requests := slices.Contains(mayRequest, s.folder())
	return slices.Contains(imports, "net/http") && !requests || slices.ContainsFunc(imports, func(path string) bool { return within(path, echo) })
}
