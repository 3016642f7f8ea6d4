package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
)

func TestThePageRunsUnderItsPolicy(t *testing.T) {
	t.Parallel()
	e := echo.New()
	Routes(e)
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/console", nil))
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Errorf("got %d %s", w.Code, w.Header().Get("Content-Type"))
	}
	policy := w.Header().Get("Content-Security-Policy")
	for _, element := range []string{"script", "style"} {
		if strings.Count(page, "<"+element) != 1 || !strings.Contains(policy, element+"-src "+hashOf(element)) {
			t.Errorf("the policy does not name the one %s of the page: %s", element, policy)
		}
	}
	for _, unsafe := range []string{"style=", "onclick", "http://", "https://", "innerHTML"} {
		if strings.Contains(page, unsafe) {
			t.Errorf("the page has %s in it", unsafe)
		}
	}
}
