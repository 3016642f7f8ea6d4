package arch

import (
	"path"
	"slices"
	"strings"
	"testing"
)

const (
	echo  = "github.com/labstack/echo/v4"
	river = "github.com/riverqueue/river"
)

// mayServe are the folders that speak HTTP in any of their files. In other folders only http.go does.
var mayServe = []string{"api", "api/apitest", "console", "internal/web", "cmd/carillon", "sdk-go", "sdk-go/carillontest", "loadtest", "loadtest/chaos"}

// mayRequest are the files beside those that make requests over HTTP.
var mayRequest = []string{"tenants/jwks.go"}

// mayQueue are the folders that use River.
var mayQueue = []string{"dispatch", "migrations", "loadtest"}

// otherTransport are the files that speak HTTP although they should not. An entry may go, and none may be added.
var otherTransport = []string{
	"dispatch/backfill.go",
	"dispatch/controlhttp.go",
	"dispatch/deadreplay.go",
	"dispatch/endpointhttp.go",
	"dispatch/explainhttp.go",
	"dispatch/header.go",
	"dispatch/headervalue.go",
	"dispatch/leasehttp.go",
	"dispatch/push.go",
	"dispatch/pushclient.go",
	"dispatch/recordhttp.go",
	"dispatch/replay.go",
	"dispatch/secret.go",
	"dispatch/trigger.go",
	"internal/fault/fault.go",
	"operations/run.go",
	"schedules/action.go",
	"schedules/actionhttp.go",
	"schedules/bulkhttp.go",
	"schedules/exporthttp.go",
	"schedules/reschedulehttp.go",
	"schedules/status.go",
	"schedules/subjects/rename.go",
	"schedules/sync.go",
	"schedules/synchttp.go",
	"schedules/workflowhttp.go",
	"tenants/apikeyhttp.go",
	"tenants/audithttp.go",
	"tenants/erase.go",
	"tenants/limit.go",
	"tenants/published.go",
	"tenants/shed.go",
	"tenants/usehttp.go",
}

// The domain knows no HTTP: only a folder's http.go does, and River is the dispatch's.
func TestTheDomainKnowsNoTransport(t *testing.T) {
	t.Parallel()
	var found []string
	for _, s := range sources(t) {
		imports := s.imports()
		serves := slices.Contains(imports, "net/http") || slices.ContainsFunc(imports, func(path string) bool { return within(path, echo) })
		if serves && path.Base(s.name) != "http.go" && !slices.Contains(mayServe, s.folder()) && !slices.Contains(mayRequest, s.name) {
			found = append(found, s.name)
		}
		queues := slices.ContainsFunc(imports, func(path string) bool { return strings.HasPrefix(path, river) })
		if queues && !slices.Contains(mayQueue, s.folder()) {
			t.Errorf("%s uses River", s.name)
		}
	}
	for _, name := range found {
		if !slices.Contains(otherTransport, name) {
			t.Errorf("%s speaks HTTP", name)
		}
	}
	for _, name := range otherTransport {
		if !slices.Contains(found, name) {
			t.Errorf("the entry of %s is out of date: it speaks no HTTP", name)
		}
	}
}
