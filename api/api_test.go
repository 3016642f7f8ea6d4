package api_test

import (
	"compress/gzip"
	"io"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/api"
	"github.com/carillonhq/carillon/internal/web"
)

func get(t *testing.T, path string) *httptest.ResponseRecorder {
	t.Helper()
	e := echo.New()
	api.Routes(e, web.Static, web.Conditional)
	api.PageRoutes(e, web.Static, web.Conditional)
	rec := httptest.NewRecorder()
	e.ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
	return rec
}

func TestTheDocumentIsServedAsItIs(t *testing.T) {
	t.Parallel()
	rec := get(t, "/openapi.yaml")
	if rec.Code != 200 || rec.Body.String() != string(api.Document) || rec.Header().Get("Content-Type") != "application/yaml" {
		t.Errorf("got %d, %q, %d bytes", rec.Code, rec.Header().Get("Content-Type"), rec.Body.Len())
	}
}

func TestTheReferenceNamesNoOtherHost(t *testing.T) {
	t.Parallel()
	page := get(t, "/docs")
	for _, body := range []string{page.Body.String(), get(t, "/docs/start.js").Body.String()} {
		if found := regexp.MustCompile(`(https?:)?//[a-z]`).FindString(body); found != "" {
			t.Errorf("got %q in the page", found)
		}
	}
	policy := page.Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self';") || strings.Contains(policy, "http") || strings.Contains(policy, "*") {
		t.Errorf("got policy %q", policy)
	}
	for _, src := range regexp.MustCompile(`src="([^"]+)"`).FindAllStringSubmatch(page.Body.String(), -1) {
		if rec := get(t, src[1]); rec.Code != 200 {
			t.Errorf("%s: got %d", src[1], rec.Code)
		}
	}
}

func TestTheScriptIsPacked(t *testing.T) {
	t.Parallel()
	rec := get(t, "/docs/scalar.js")
	if rec.Header().Get("Content-Encoding") != "gzip" {
		t.Fatalf("got encoding %q", rec.Header().Get("Content-Encoding"))
	}
	z, err := gzip.NewReader(rec.Body)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, z); err != nil || n < 1<<20 {
		t.Errorf("got %d bytes, %v", n, err)
	}
}

func TestOtherFilesAreNotServed(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/docs/openapi.yaml", "/docs/scalar.js.gz", "/docs/..%2Fopenapi.yaml", "/docs/"} {
		if rec := get(t, path); rec.Code != 404 {
			t.Errorf("%s: got %d, want 404", path, rec.Code)
		}
	}
}
