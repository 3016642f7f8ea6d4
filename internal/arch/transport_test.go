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

// mayServe are the folders in which every file may use HTTP. In other folders only files whose name ends with http.go may.
var mayServe = []string{"api", "api/apitest", "console", "internal/web", "internal/web/webtest", "cmd/carillon", "cmd/carillon/cli", "cmd/carillon/cli/api", "cmd/carillon/cli/command", "sdk-go", "sdk-go/carillontest", "loadtest", "loadtest/chaos"}

// mayRequest are the folders in which every file may send HTTP requests. Only files whose name ends with http.go may serve them there.
var mayRequest = []string{"dispatch/push"}

// mayQueue are the folders that use River.
var mayQueue = []string{"dispatch", "dispatch/open", "dispatch/upkeep", "migrations", "loadtest"}

// The domain does not use HTTP, except in files whose name ends with http.go. Only the folders of mayQueue use River.
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

// speaksHTTP reports whether a file imports Echo, or imports net/http outside the folders of mayRequest.
func speaksHTTP(s source) bool {
	imports := s.imports()
	requests := slices.Contains(mayRequest, s.folder())
	return slices.Contains(imports, "net/http") && !requests || slices.ContainsFunc(imports, func(path string) bool { return within(path, echo) })
}
