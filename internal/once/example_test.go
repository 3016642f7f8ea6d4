package once_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/once"
)

// A value that an earlier request with the same key stored is marked.
func ExampleAnswer() {
	answered := httptest.NewRecorder()
	c := echo.New().NewContext(httptest.NewRequest(http.MethodPost, "/v1/backfills", nil), answered)
	if err := once.Answer(c, http.StatusAccepted, map[string]int{"ticks": 3}, true); err != nil {
		fmt.Println(err)
	}
	fmt.Println(answered.Code, answered.Header().Get("Idempotency-Replayed"))
	// Output: 202 true
}
