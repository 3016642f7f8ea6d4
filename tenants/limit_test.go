package tenants

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/web"
)

// limited is a router with routes that count apart; those below /slow/ wait until they are let go.
func (w *world) limited(t *testing.T) (e *echo.Echo, entered, release chan struct{}) {
	t.Helper()
	e = web.New(web.Options{Log: slog.New(slog.DiscardHandler)})
	clock := postgrestest.StoppedClock(t, time.Now()) // so that no token comes back while a test runs
	limits := NewLimits(NewBuckets(clock.Pool), w.verifier.Tenants)
	g := e.Group("", Authenticate(w.verifier), limits.Limit)
	entered, release = make(chan struct{}), make(chan struct{})
	answer := func(c echo.Context) error { return web.Answer(c, 200, "here") }
	slow := func(c echo.Context) error {
		entered <- struct{}{}
		<-release
		return answer(c)
	}
	g.GET("/v1/schedules", answer)
	g.PUT(oneSchedule, answer)
	g.GET("/slow", slow)
	g.POST("/v1/ticks/lease", slow)
	return e, entered, release
}

func (w *world) quotas(t *testing.T, quotas string) {
	t.Helper()
	tenant, _, err := Put(t.Context(), w.pool, "other", Params{Quotas: Overrides(quotas)})
	if err != nil {
		t.Fatal(err)
	}
	w.verifier.Tenants.forget(tenant)
}

func TestRequestsAreHeldToTheirRate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.quotas(t, `{"requests_per_second": 1}`)
	e, _, _ := w.limited(t)
	token := w.token(t, "other", SchedulesRead)
	for n, want := range []int{200, 200, 429} {
		rec, doc := ask(e, "GET", "/v1/schedules", token, "")
		h := rec.Header()
		if rec.Code != want || h.Get("RateLimit-Policy") != `"requests_per_second";q=1;w=1` || !strings.HasPrefix(h.Get("RateLimit"), `"requests_per_second";r=`) {
			t.Errorf("request %d: got %d %v", n, rec.Code, h)
		}
		if want == 429 && (doc["code"] != "rate_limited" || doc["quota"] != "requests_per_second" || doc["limit"] != 1.0 || h.Get("Retry-After") != "1") {
			t.Errorf("request %d: got %v %v", n, doc, h)
		}
	}
	if rec, _ := ask(e, "GET", "/v1/schedules", w.token(t, "acme", SchedulesRead), ""); rec.Code != 200 {
		t.Errorf("another tenant: got %d", rec.Code)
	}
	w.quotas(t, `{"requests_per_second": 100}`)
	if rec, _ := ask(e, "GET", "/v1/schedules", token, ""); rec.Code != 200 && rec.Code != 429 {
		t.Errorf("with another quota: got %d", rec.Code)
	}
}

func TestUpsertsHaveARateOfTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.quotas(t, `{"requests_per_second": 1000, "upserts_per_second": 1}`)
	e, _, _ := w.limited(t)
	token := w.token(t, "other", SchedulesWrite)
	for n := range 21 {
		want := 200
		if n == 20 {
			want = 429
		}
		rec, doc := ask(e, "PUT", fmt.Sprintf("/v1/workflows/w/schedules/%d", n), token, "")
		if rec.Code != want || want == 429 && doc["quota"] != "upserts_per_second" {
			t.Errorf("upsert %d: got %d %v", n, rec.Code, doc)
		}
		if policy, limit := rec.Header().Get("RateLimit-Policy"), rec.Header().Get("RateLimit"); policy != `"requests_per_second";q=1000;w=1, "upserts_per_second";q=1;w=1` ||
			!strings.HasPrefix(limit, `"requests_per_second";r=1000;t=1, "upserts_per_second";r=`+map[bool]string{true: "1", false: "0"}[n < 19]) {
			t.Errorf("upsert %d: got %s of %s", n, limit, policy)
		}
	}
	if rec, _ := ask(e, "GET", "/v1/schedules", token, ""); rec.Code != 200 {
		t.Errorf("a read: got %d", rec.Code)
	}
}

func TestRequestsAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.quotas(t, `{"concurrent_requests": 1, "concurrent_polls": 5}`)
	e, entered, release := w.limited(t)
	token := w.token(t, "other", TenantAdmin)
	done := make(chan int, 2)
	start := func(method, path string) {
		go func() {
			rec, _ := ask(e, method, path, token, "")
			done <- rec.Code
		}()
		<-entered
	}
	start("GET", "/slow")
	if rec, doc := ask(e, "GET", "/v1/schedules", token, ""); rec.Code != 429 || doc["quota"] != "concurrent_requests" || rec.Header().Get("Retry-After") == "" {
		t.Errorf("a second at a time: got %d %v", rec.Code, doc)
	}
	start("POST", "/v1/ticks/lease") // counts apart
	close(release)
	for range 2 {
		if got := <-done; got != 200 {
			t.Errorf("got %d", got)
		}
	}
	if rec, _ := ask(e, "GET", "/v1/schedules", token, ""); rec.Code != 200 {
		t.Errorf("afterwards: got %d", rec.Code)
	}
}
