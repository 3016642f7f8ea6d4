package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/web"
)

// server returns a router with the console and one route of the API, which answers what Authorization it got.
func server(t *testing.T, identify Identify) (*echo.Echo, *Sessions) {
	t.Helper()
	cursors, err := web.NewCursor([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	s := NewSessions(cursors, identify)
	e := echo.New()
	Routes(e, s)
	e.Group("", s.Authorize).Any("/v1/self", func(c echo.Context) error { return c.String(http.StatusOK, c.Request().Header.Get("Authorization")) })
	return e, s
}

func get(t *testing.T, e *echo.Echo, path, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

func TestEveryPageIsTheShell(t *testing.T) {
	t.Parallel()
	e, _ := server(t, nil)
	for _, path := range []string{"/console", "/console/", "/console/acme/schedules/w/a%2Fb", "/console/sign-in"} {
		w := get(t, e, path, "text/html,*/*")
		if w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "no-cache" || w.Header().Get("ETag") == "" || !strings.Contains(w.Body.String(), `id="app"`) {
			t.Errorf("%s: got %d %v", path, w.Code, w.Header())
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "Cross-Origin-Opener-Policy": "same-origin", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
	}
	for path, accept := range map[string]string{"/console/acme/data": "application/json", "/console/assets/none.js": "*/*", "/console/assets/none.html": "text/html"} {
		if w := get(t, e, path, accept); w.Code != http.StatusNotFound {
			t.Errorf("%s: got %d", path, w.Code)
		}
	}
}

func TestAssetsAreKeptForEver(t *testing.T) {
	t.Parallel()
	e, _ := server(t, nil)
	for _, name := range assets() {
		w := get(t, e, "/console/assets/"+name, "*/*")
		if w.Code != http.StatusOK || w.Header().Get("Cache-Control") != assetCaching || w.Header().Get("Content-Security-Policy") != policy {
			t.Errorf("%s: got %d %v", name, w.Code, w.Header())
		}
	}
}

// The shell allows no script and no style in itself, because the policy would refuse them.
func TestTheShellRunsUnderItsPolicy(t *testing.T) {
	t.Parallel()
	shell, err := dist.ReadFile("dist/index.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, unsafe := range []string{"<style", " style=", " on", "http://", "https://"} {
		if strings.Contains(string(shell), unsafe) {
			t.Errorf("the shell has %s in it", unsafe)
		}
	}
	for _, tag := range regexp.MustCompile(`<script[^>]*>`).FindAllString(string(shell), -1) {
		if !strings.Contains(tag, `src="/console/assets/`) {
			t.Errorf("the shell has a script of its own: %s", tag)
		}
	}
}

// The maximum sizes of the console's files, in bytes after gzip.
const (
	mostFirst  = 60 << 10 // of the scripts that load before the first page appears
	mostScript = 150 << 10
	mostStyle  = 15 << 10
)

func TestTheConsoleIsSmall(t *testing.T) {
	t.Parallel()
	shell, err := dist.ReadFile("dist/index.html")
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]int{}
	for _, name := range assets() {
		content, err := dist.ReadFile("dist/assets/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var packed bytes.Buffer
		z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		_, _ = z.Write(content)
		_ = z.Close()
		sizes[filepath.Ext(name)] += packed.Len()
		if filepath.Ext(name) == ".js" && strings.Contains(string(shell), name) {
			sizes["first"] += packed.Len()
		}
	}
	for what, most := range map[string]int{"first": mostFirst, ".js": mostScript, ".css": mostStyle} {
		if sizes[what] == 0 || sizes[what] > most {
			t.Errorf("%s: %d bytes of gzip, and at most %d are allowed", what, sizes[what], most)
		}
	}
	t.Logf("first %d, script %d, style %d", sizes["first"], sizes[".js"], sizes[".css"])
}

// The built files belong to these sources. It needs no Node: web/sources.ts writes the same sum with each build.
func TestTheBuildIsNotStale(t *testing.T) {
	t.Parallel()
	var names []string
	for _, root := range []string{"index.html", "package-lock.json", "sources.ts", "src", "vite.config.ts"} {
		err := filepath.WalkDir(filepath.Join("web", root), func(path string, d fs.DirEntry, err error) error {
			if name, _ := filepath.Rel("web", path); err == nil && !d.IsDir() && filepath.ToSlash(name) != "src/api.gen.d.ts" {
				names = append(names, filepath.ToSlash(name))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	var lines strings.Builder
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join("web", name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, "%s %x\n", name, sha256.Sum256(content))
	}
	stored, err := os.ReadFile("SOURCES")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x\n", sha256.Sum256([]byte(lines.String()))); got != string(stored) {
		t.Error("console/dist was built from other sources: run npm ci && npm run build in console/web, and commit dist and SOURCES")
	}
}
