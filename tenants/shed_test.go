package tenants

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/web"
)

// As the number of concurrent requests rises, lists are shed first, then
// requests about one thing, then those of workers. Probes are never shed.
func TestLoadIsShedByClass(t *testing.T) {
	t.Parallel()
	e := web.New(web.Options{Log: slog.New(slog.DiscardHandler)})
	entered, release := make(chan struct{}), make(chan struct{})
	answer := func(c echo.Context) error { return web.Answer(c, 200, "here") }
	web.Probes(e, nil)
	known := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if c.Path() != TokenRoute {
				c.Set(callerKey, Identity{Tenant: 1})
			}
			return next(c)
		}
	}
	g := e.Group("", known, Shedding{AtATime: 2}.Shed())
	g.GET("/v1/schedules", answer)
	g.GET(oneSchedule, answer)
	g.PUT(oneSchedule, answer)
	g.POST("/v1/ticks/finish", answer)
	g.POST(TokenRoute, answer)
	slow := func(c echo.Context) error {
		entered <- struct{}{}
		<-release
		return answer(c)
	}
	g.GET("/slow", slow)
	g.POST("/v1/ticks/lease", slow)
	g.POST("/v1/ticks/heartbeat", slow)
	ended := make(chan struct{})
	flying := 0
	fly := func(method, path string) {
		flying++
		go func() {
			ask(e, method, path, "", "")
			ended <- struct{}{}
		}()
		<-entered
	}
	check := func(want map[string]int) {
		t.Helper()
		for path, status := range want {
			method, path, _ := strings.Cut(path, " ")
			rec := httptest.NewRecorder()
			e.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), method, path, nil))
			if rec.Code != status {
				t.Errorf("with %d under way, %s %s: got %d, want %d", flying, method, path, rec.Code, status)
			}
			if rec.Code == 503 && (rec.Header().Get("Retry-After") != "2" || !hasCode(rec, "overloaded")) {
				t.Errorf("%s %s: got %v %s", method, path, rec.Header(), rec.Body)
			}
		}
	}
	const list, get, put, finish, token, probe = "GET /v1/schedules", "GET /v1/workflows/w/schedules/k", "PUT /v1/workflows/w/schedules/k", "POST /v1/ticks/finish", "POST /v1/token", "GET /healthz"
	for range 5 {
		fly("POST", "/v1/ticks/lease") // requests that wait for ticks do not count
	}
	check(map[string]int{list: 200, get: 200, finish: 200, probe: 200})
	for range 2 {
		fly("GET", "/slow")
	}
	check(map[string]int{list: 503, get: 200, put: 200, finish: 200, token: 200, probe: 200})
	for range 2 {
		fly("GET", "/slow")
	}
	check(map[string]int{list: 503, get: 503, put: 503, finish: 200, token: 200, probe: 200})
	for range 4 {
		fly("POST", "/v1/ticks/heartbeat")
	}
	check(map[string]int{list: 503, get: 503, finish: 503, token: 200, probe: 200})
	close(release)
	for range flying {
		<-ended
	}
	flying = 0
	check(map[string]int{list: 200, get: 200, put: 200, finish: 200, token: 200, probe: 200})
}

// Load is also shed if requests wait long for a connection of the pool, or get none at all.
func TestAnExhaustedPoolShedsLoad(t *testing.T) {
	t.Parallel()
	at := time.Unix(0, 0)
	var use PoolUse
	waits := PoolWaits(func() PoolUse { return use }, func() time.Time { return at })
	s := Shedding{Waits: func(ID) time.Duration { return waits() }}
	shed := func() (n int) {
		for of := range classes {
			if s.over(of, 0, 1) {
				n++
			}
		}
		return n
	}
	step := func(after time.Duration, acquired int64, waited time.Duration, busy bool) int {
		at = at.Add(after)
		use.Acquired, use.Waited, use.Busy = use.Acquired+acquired, use.Waited+waited, busy
		return shed()
	}
	for n, one := range []struct {
		after    time.Duration
		acquired int64
		waited   time.Duration
		busy     bool
		want     int
	}{
		{0, 0, 0, false, 0},
		{100 * time.Millisecond, 100, time.Second, true, 0},     // 10 ms each
		{600 * time.Millisecond, 10, 6 * time.Second, true, 1},  // 600 ms each
		{600 * time.Millisecond, 10, 20 * time.Second, true, 2}, // 2 s each
		{600 * time.Millisecond, 10, 50 * time.Second, true, 3}, // 5 s each
		{600 * time.Millisecond, 100, 0, true, 0},               // and it is over
		{600 * time.Millisecond, 0, 0, true, 1},                 // nobody gets one
		{time.Second, 0, 0, true, 2},
		{3 * time.Second, 0, 0, true, 3},
		{time.Second, 0, 0, false, 0},
	} {
		if got := step(one.after, one.acquired, one.waited, one.busy); got != one.want {
			t.Errorf("step %d: %d classes are shed, want %d", n, got, one.want)
		}
	}
}

// While tenants wait to be looked up, exchanges of keys are shed first, with lists.
func TestLookUpsThatWaitShedLoad(t *testing.T) {
	t.Parallel()
	var wait time.Duration
	e := web.New(web.Options{Log: slog.New(slog.DiscardHandler)})
	g := e.Group("", Shedding{LookupWaits: func() time.Duration { return wait }}.ShedLookups)
	answer := func(c echo.Context) error { return web.Answer(c, 200, "here") }
	g.GET("/v1/schedules", answer)
	g.GET(oneSchedule, answer)
	g.POST("/v1/ticks/finish", answer)
	g.POST(TokenRoute, answer)
	for _, c := range []struct {
		wait                      time.Duration
		token, list, read, finish int
	}{
		{0, 200, 200, 200, 200},
		{600 * time.Millisecond, 503, 503, 200, 200},
		{2 * time.Second, 503, 503, 503, 200},
		{5 * time.Second, 503, 503, 503, 503},
	} {
		wait = c.wait
		for path, want := range map[string]int{"POST /v1/token": c.token, "GET /v1/schedules": c.list, "GET /v1/workflows/w/schedules/k": c.read, "POST /v1/ticks/finish": c.finish} {
			method, path, _ := strings.Cut(path, " ")
			if rec, _ := ask(e, method, path, "", ""); rec.Code != want {
				t.Errorf("after %s, %s %s: got %d, want %d", c.wait, method, path, rec.Code, want)
			}
		}
	}
}

func TestEachRouteHasItsClass(t *testing.T) {
	t.Parallel()
	for route, want := range map[string]class{
		"GET /v1/schedules":                                   bulkClass,
		"POST /v1/schedules/bulk":                             bulkClass,
		"GET /v1/schedules/export":                            bulkClass,
		"GET /v1/workflows/:workflow/schedules/:key/ticks":    bulkClass,
		"GET /v1/workflows/:workflow/schedules/:key":          singleClass,
		"PUT /v1/workflows/:workflow/schedules/:key":          singleClass,
		"POST /v1/workflows/:workflow/schedules/:key/trigger": singleClass,
		"POST /v1/admin/halt":                                 singleClass,
		"GET /v1/admin/overview":                              singleClass,
		"POST /v1/ticks/lease":                                workClass,
		"POST /v1/ticks/:id/heartbeat":                        workClass,
		"POST /v1/ticks/:id/complete":                         workClass,
	} {
		method, path, _ := strings.Cut(route, " ")
		if got := classOf(method, path); got != want {
			t.Errorf("%s: got %d, want %d", route, got, want)
		}
	}
}

func hasCode(rec *httptest.ResponseRecorder, code string) bool {
	var doc struct{ Code string }
	return json.Unmarshal(rec.Body.Bytes(), &doc) == nil && doc.Code == code
}
