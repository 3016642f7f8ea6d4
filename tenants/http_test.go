package tenants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/web"
)

func (w *world) router(t *testing.T) *echo.Echo {
	t.Helper()
	cursors, err := web.NewCursor([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	e := web.New(web.Options{Log: slog.New(slog.DiscardHandler)})
	e.Use(Authenticate(w.verifier, "/healthz"))
	web.Probes(e, w.pool.Ping)
	who := func(c echo.Context) error {
		return web.Answer(c, 200, fmt.Sprint(From(c) == w.acme.ID, " ", Caller(c).Subject))
	}
	for _, scope := range append(TenantScopes(), PlatformAdmin) {
		e.GET("/need/"+strings.Replace(scope, ":", "-", 1), who, Require(scope)) // a colon begins a parameter
	}
	Platform{DB: w.pool, Cursors: cursors, Issuer: w.minter.Name(), Tenants: w.verifier.Tenants}.Routes(e.Group(""))
	return e
}

func ask(e *echo.Echo, method, path, token, body string) (*httptest.ResponseRecorder, map[string]any) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	var doc map[string]any
	_ = json.Unmarshal(w.Body.Bytes(), &doc)
	return w, doc
}

func (w *world) token(t *testing.T, tenant string, scopes ...string) string {
	t.Helper()
	s, err := w.minter.Mint(Claims{Subject: "ann", Tenant: tenant, Scopes: scopes, TTL: time.Minute}, w.now)
	if err != nil {
		t.Fatal(err)
	}
	return "Bearer " + s
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.router(t)
	good := w.token(t, "acme", SchedulesRead)
	for name, c := range map[string]struct {
		path, header string
		status       int
		challenge    string
	}{
		"none":                 {"/need/schedules-read", "", 401, "Bearer"},
		"none, no such path":   {"/nothing", "", 401, "Bearer"},
		"another scheme":       {"/need/schedules-read", "Basic YTpi", 401, "Bearer"},
		"empty":                {"/need/schedules-read", "Bearer ", 401, `Bearer error="invalid_token"`},
		"broken":               {"/need/schedules-read", "Bearer abc", 401, `Bearer error="invalid_token"`},
		"in the query":         {"/need/schedules-read?access_token=" + good[7:], "", 401, "Bearer"},
		"good":                 {"/need/schedules-read", good, 200, ""},
		"scheme in lower case": {"/need/schedules-read", "bearer" + good[6:], 200, ""},
		"good, no such path":   {"/nothing", good, 404, ""},
		"a public route":       {"/healthz", "", 200, ""},
		"ready is not public":  {"/readyz", "", 401, "Bearer"},
	} {
		rec, doc := ask(e, "GET", c.path, c.header, "")
		challenge := rec.Header().Get("WWW-Authenticate")
		if before, _, found := strings.Cut(challenge, ", error_description"); found {
			challenge = before
		}
		challenge = strings.TrimSuffix(challenge, ",")
		if rec.Code != c.status || challenge != c.challenge || rec.Code == 401 && doc["code"] == "" {
			t.Errorf("%s: got %d %q %v", name, rec.Code, rec.Header().Get("WWW-Authenticate"), doc)
		}
	}
	if rec, doc := ask(e, "POST", "/need/schedules-read", good, ""); rec.Code != 405 || doc["code"] != "method_not_allowed" {
		t.Errorf("got %d %v", rec.Code, doc)
	}
	two := httptest.NewRequest("GET", "/need/schedules-read", nil)
	two.Header["Authorization"] = []string{good, good}
	rec := httptest.NewRecorder()
	e.ServeHTTP(rec, two)
	if rec.Code != 401 {
		t.Errorf("two tokens: got %d", rec.Code)
	}
}

func TestRequire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.router(t)
	all := append(TenantScopes(), PlatformAdmin)
	for name, c := range map[string]struct {
		token string
		may   []string
	}{
		"reader":                     {w.token(t, "acme", SchedulesRead), []string{SchedulesRead}},
		"writer":                     {w.token(t, "acme", SchedulesWrite), []string{SchedulesWrite}},
		"eraser":                     {w.token(t, "acme", SubjectsErase), []string{SubjectsErase}},
		"worker":                     {w.token(t, "acme", TicksWork, SchedulesRead), []string{SchedulesRead, TicksWork}},
		"operator":                   {w.token(t, "acme", TenantAdmin), TenantScopes()},
		"nobody":                     {w.token(t, "acme"), nil},
		"platform":                   {w.token(t, "", PlatformAdmin), []string{PlatformAdmin}},
		"platform with tenant":       {w.token(t, "acme", PlatformAdmin), nil},
		"operator of nothing":        {w.token(t, "", TenantAdmin, SchedulesRead), nil},
		"operator and platform both": {w.token(t, "acme", TenantAdmin, PlatformAdmin), TenantScopes()},
	} {
		var may []string
		for _, scope := range all {
			rec, doc := ask(e, "GET", "/need/"+strings.Replace(scope, ":", "-", 1), c.token, "")
			switch rec.Code {
			case 200:
				may = append(may, scope)
			case 403:
				if doc["code"] != "insufficient_scope" || !strings.Contains(rec.Header().Get("WWW-Authenticate"), `scope="`+scope+`"`) {
					t.Errorf("%s: got %v %v", name, doc, rec.Header())
				}
			default:
				t.Errorf("%s: %s: got %d", name, scope, rec.Code)
			}
		}
		if diff := cmp.Diff(c.may, may); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestPlatformTenants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.router(t)
	root := w.token(t, "", PlatformAdmin)
	const path = "/v1/platform/tenants/"
	key := string(jwkOf(t, "k", w.ed.Public()))

	anonymous := string(jwkOf(t, "", w.ed.Public()))

	rec, doc := ask(e, "PUT", path+"new", root, `{}`)
	if rec.Code != 201 || doc["name"] != "new" || doc["status"] != "active" || fmt.Sprint(doc["issuers"]) != "[]" || doc["quotas"].(map[string]any)["schedules"] != 1e6 {
		t.Errorf("got %d %s", rec.Code, rec.Body)
	}
	body := `{"name":"new","status":"suspended","quotas":{"ticks_per_second":7,"schedules":5},"issuers":[{"issuer":"https://a.example","keys":[` + key + `],"algorithms":["EdDSA"]},{"issuer":"b","jwks_uri":"https://b.example/keys"}]}`
	rec, doc = ask(e, "PUT", path+"new", root, body)
	quotas, _ := doc["quotas"].(map[string]any)
	if rec.Code != 200 || doc["status"] != "suspended" || quotas["schedules"] != 5. || quotas["projected_ticks_per_day"] != 7*86400. || quotas["leased"] != 10000. || !strings.Contains(rec.Body.String(), `"kid": "k"`) {
		t.Errorf("got %d %s", rec.Code, rec.Body)
	}
	var kept string // the audit has the keys as they were sent
	if err := w.pool.QueryRow(t.Context(), `SELECT after::text FROM audit WHERE action = 'tenant.put' ORDER BY id DESC LIMIT 1`).Scan(&kept); err != nil || !strings.Contains(kept, `"kid": "k"`) {
		t.Errorf("got %s, %v: want the key k", kept, err)
	}
	again, _ := ask(e, "GET", path+"new", root, "")
	if again.Code != 200 || again.Body.String() != rec.Body.String() {
		t.Errorf("got %d %s, want %s", again.Code, again.Body, rec.Body)
	}
	if rec, doc = ask(e, "PUT", path+"new", root, `{}`); rec.Code != 200 || doc["quotas"].(map[string]any)["schedules"] != 1e6 || doc["status"] != "suspended" {
		t.Errorf("got %d %s: what is left out is the default, but the status stays", rec.Code, rec.Body)
	}

	for body, want := range map[string]string{
		`{"x":1}`:                    "400 /x",
		`{"quotas":{"schedule":1}}`:  "400 /quotas/schedule",
		`{"quotas":{"running":0}}`:   "422 /quotas/running",
		`{"quotas":{"running":"1"}}`: "422 /quotas/running",
		`{"quotas":[]}`:              "422 /quotas",
		`{"status":"halted"}`:        "422 /status",
		`{"name":"other"}`:           "422 /name",
		`{"issuers":[{}]}`:           "422 /issuers/0/issuer /issuers/0",
		`{"issuers":[{"issuer":"a","keys":[` + key + `],"jwks_uri":"https://b.example"}]}`:           "422 /issuers/0",
		`{"issuers":[{"issuer":"a","jwks_uri":"http://b.example"}]}`:                                 "422 /issuers/0/jwks_uri",
		`{"issuers":[{"issuer":"a","jwks_uri":"https://169.254.169.254/"}]}`:                         "422 /issuers/0/jwks_uri",
		`{"issuers":[{"issuer":"a","keys":[{"kty":"oct","k":"AAAA"}]}]}`:                             "422 /issuers/0/keys/0",
		`{"issuers":[{"issuer":"a","keys":[` + key + `,` + key + `]}]}`:                              "422 /issuers/0/keys/1",
		`{"issuers":[{"issuer":"a","keys":[` + strings.Repeat(anonymous+",", 3) + anonymous + `]}]}`: "422 /issuers/0/keys/3",
		`{"issuers":[{"issuer":"carillon-test","keys":[` + key + `]}]}`:                              "422 /issuers/0/issuer",
		`{"issuers":[{"issuer":"a","keys":[` + key + `]},{"issuer":"a","keys":[` + key + `]}]}`:      "422 /issuers/1/issuer",
		`{"issuers":[{"issuer":"a","keys":[` + key + `],"algorithms":["HS256"]}]}`:                   "422 /issuers/0/algorithms/0",
		`{"issuers":[{"issuer":"a\u0000","keys":[` + key + `]}]}`:                                    "422 /issuers/0/issuer",
	} {
		rec, doc := ask(e, "PUT", path+"bad", root, body)
		got := fmt.Sprint(rec.Code)
		fields, _ := doc["errors"].([]any)
		for _, f := range fields {
			got += " " + f.(map[string]any)["pointer"].(string)
		}
		if got != want {
			t.Errorf("%s: got %s, want %s (%s)", body, got, want, rec.Body)
		}
	}
	for target, status := range map[string]int{"bad": 404, "nobody": 404, "a%2Fb": 404, "%00": 422} {
		if rec, _ := ask(e, "GET", path+target, root, ""); rec.Code != status {
			t.Errorf("%s: got %d %s", target, rec.Code, rec.Body)
		}
	}
	if rec, _ := ask(e, "PUT", path+"a%20b", root, `{}`); rec.Code != 422 {
		t.Errorf("got %d", rec.Code)
	}

	soon := w.token(t, "soon", SchedulesRead)
	if rec, _ := ask(e, "GET", "/need/schedules-read", soon, ""); rec.Code != 401 {
		t.Errorf("got %d for a tenant that is not there", rec.Code)
	}
	for status, want := range map[string]int{"suspended": 401, "active": 200} {
		if rec, _ := ask(e, "PUT", path+"soon", root, `{"status":"`+status+`"}`); rec.Code/100 != 2 {
			t.Errorf("got %d %s", rec.Code, rec.Body)
		}
		if rec, _ := ask(e, "GET", "/need/schedules-read", soon, ""); rec.Code != want {
			t.Errorf("%s: got %d", status, rec.Code)
		}
	}

	var names []string
	for cursor := ""; ; {
		rec, doc := ask(e, "GET", path[:len(path)-1]+"?limit=2"+cursor, root, "")
		if rec.Code != 200 {
			t.Fatalf("got %d %s", rec.Code, rec.Body)
		}
		for _, item := range doc["items"].([]any) {
			names = append(names, item.(map[string]any)["name"].(string))
		}
		next, more := doc["next_cursor"].(string)
		if !more {
			break
		}
		cursor = "&cursor=" + next
	}
	if diff := cmp.Diff([]string{"acme", "new", "other", "soon"}, names); diff != "" {
		t.Error(diff)
	}
	if rec, _ := ask(e, "GET", path[:len(path)-1]+"?cursor=abc", root, ""); rec.Code != 422 {
		t.Errorf("got %d", rec.Code)
	}
	for _, token := range []string{w.token(t, "acme", TenantAdmin), w.token(t, "acme", PlatformAdmin)} {
		for _, method := range []string{"GET", "PUT"} {
			if rec, _ := ask(e, method, path+"acme", token, `{}`); rec.Code != 403 {
				t.Errorf("%s: got %d", method, rec.Code)
			}
		}
	}
}

func TestQuotasAreRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := patientDirectory(w.pool)
	now := time.Now()
	d.now = func() time.Time { return now }
	q, err := d.Quotas(t.Context(), w.acme.ID)
	if err != nil || q != Defaults() {
		t.Errorf("got %+v, %v", q, err)
	}
	if _, _, err := Put(t.Context(), w.pool, "acme", Params{Quotas: Overrides(`{"schedules": 3}`)}); err != nil {
		t.Fatal(err)
	}
	if q, err = d.Quotas(t.Context(), w.acme.ID); err != nil || q.Schedules != 1_000_000 {
		t.Errorf("got %+v, %v: it is not remembered", q, err)
	}
	now = now.Add(cacheFor)
	if q, err = d.Quotas(t.Context(), w.acme.ID); err != nil || q.Schedules != 3 {
		t.Errorf("got %+v, %v: it is remembered too long", q, err)
	}
	if _, err := d.Quotas(t.Context(), 12345); err == nil {
		t.Error("a tenant that is not there has quotas")
	}
	wide, err := Ensure(t.Context(), w.pool, "demo", Wide())
	if err != nil || wide.Quotas != Wide() {
		t.Errorf("got %+v, %v", wide.Quotas, err)
	}
	if kept, err := Ensure(t.Context(), w.pool, "demo", Defaults()); err != nil || kept.Quotas != Wide() || kept.ID != wide.ID {
		t.Errorf("got %+v, %v: one that exists stays as it is", kept, err)
	}
}

// While the database does not answer, the last known quotas hold; a tenant that was not known before waits a second at most.
func TestTheLastKnownQuotasHoldWhileTheDatabaseIsSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := patientDirectory(w.pool)
	now := time.Now()
	d.now = func() time.Time { return now }
	if _, err := d.Quotas(t.Context(), w.acme.ID); err != nil {
		t.Fatal(err)
	}
	d.patience = quotasTimeout
	silent, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Exec(t.Context(), `LOCK TABLE tenant IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	now = now.Add(cacheFor)
	for range 2 {
		if q, err := d.Quotas(t.Context(), w.acme.ID); err != nil || q != Defaults() {
			t.Errorf("got %+v, %v, want the last known ones", q, err)
		}
	}
	if _, err := NewDirectory(w.pool).Quotas(t.Context(), w.acme.ID); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the end of the wait", err)
	}
	if err := silent.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestSecretIsMadeOnce(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	for _, c := range []struct{ name, fresh, want string }{{"cursor", "a", "a"}, {"cursor", "b", "a"}, {"lease", "c", "c"}} {
		got, err := Secret(t.Context(), pool, c.name, []byte(c.fresh))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.name, got, err, c.want)
		}
	}
}
