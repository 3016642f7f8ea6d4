package once_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/once"
)

func TestWhatIsNoIdempotencyKeyIsRefused(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]string{{""}, {"é"}, {"a\x7f"}, {strings.Repeat("x", 256)}, {"a", "b"}} {
		sent := httptest.NewRequest("POST", "/a", nil)
		sent.Header["Idempotency-Key"] = keys
		if _, err := once.Of(echo.New().NewContext(sent, httptest.NewRecorder())); codeOf(err) != "invalid_idempotency_key" {
			t.Errorf("%q: got %v", keys, err)
		}
	}
	post("/a", strings.Repeat("x", 255), "")
	post("/a", " ~", "")
}

func TestAReplayedAnswerSaysSo(t *testing.T) {
	t.Parallel()
	for _, replayed := range []bool{false, true} {
		rec := httptest.NewRecorder()
		if err := once.Answer(echo.New().NewContext(httptest.NewRequest("POST", "/a", nil), rec), 201, made{N: 1}, replayed); err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: "true"}[replayed]
		if got := rec.Header().Get("Idempotency-Replayed"); got != want || rec.Code != 201 || rec.Body.String() != `{"n":1}` {
			t.Errorf("got %d %q %s", rec.Code, got, rec.Body)
		}
	}
}
