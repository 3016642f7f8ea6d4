package apitest

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"testing"

	"github.com/labstack/echo/v4"
)

var (
	echoParam = regexp.MustCompile(`:([A-Za-z_]+)`)
	methods   = []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace,
	}
)

// Routes reports where a router's table differs from the document's operations, whichever of them has more; the names
// of parameters must be the same. Elsewhere are operations, such as "GET /metrics", that another listener serves.
func Routes(t testing.TB, table []*echo.Route, elsewhere ...string) {
	t.Helper()
	for _, difference := range New(t).routes(table, elsewhere...) {
		t.Error(difference)
	}
}

func (c *Contract) routes(table []*echo.Route, elsewhere ...string) []string {
	documented, routed := map[string]bool{}, map[string]bool{}
	for _, name := range elsewhere {
		routed[name] = true
	}
	for path, item := range c.doc.Paths.Map() {
		for method := range item.Operations() {
			documented[method+" "+path] = true
		}
	}
	for _, r := range table {
		if slices.Contains(methods, r.Method) { // Echo's own entries, for what is not found, have other ones
			routed[r.Method+" "+echoParam.ReplaceAllString(r.Path, "{$1}")] = true
		}
	}
	var differences []string
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if !routed[name] {
			differences = append(differences, name+" is in openapi.yaml and has no route")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(routed)) {
		if !documented[name] {
			differences = append(differences, name+" is a route and not in openapi.yaml")
		}
	}
	return differences
}
