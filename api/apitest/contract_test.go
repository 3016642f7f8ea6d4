package apitest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/api"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/labstack/echo/v4"
)

const schedule = `{"id":"sch_1","workflow":"w","key":"k","subject":"k","version":1,"status":"active",
	"spec":{"timezone":"Europe/Berlin","cron":["0 9 * * *"],"end_at":null,"intervals":[{"every":"1h30m"}]},
	"policy":{"overlap":"skip"},"delivery":{"retention":{"failed":"30d"}},"payload":{"n":1e999},"labels":{"plan":"pro"},
	"note":null,"next_at":"2026-11-23T08:00:00Z","upcoming":["2026-11-23T08:00:00Z"],"last_at":null,"last_tick_id":null,
	"stats":{"fired":0,"succeeded":0,"failed":0,"skipped":0,"missed":0},"inherited":["/policy/missed"],"warnings":[],
	"tzdata":"2026f","reading":"Daily","timezone_in_force":"UTC","next_local":null,"created_at":"2026-11-21T03:00:00.123456Z","updated_at":"2026-11-21T03:00:00Z","updated_by":"me"}`

const (
	requestID = "0123456789abcdef"
	notFound  = `{"type":"about:blank","title":"Not Found","status":404,"detail":"none","instance":"` + requestID + `","code":"not_found"}`
)

// exchange is a request and its answer.
type exchange struct {
	method, path, sent string
	status             int
	header             http.Header
	got                string
}

func (x exchange) check(t *testing.T) error {
	t.Helper()
	req := httptest.NewRequest(x.method, x.path, strings.NewReader(x.sent))
	if x.sent != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return New(t).check(req, []byte(x.sent), &http.Response{StatusCode: x.status, Header: x.header, Request: req}, []byte(x.got))
}

func headers(media string, more ...string) http.Header {
	h := http.Header{"Content-Type": {media}, "X-Request-Id": {requestID}}
	for i := 0; i < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	if media == "" {
		h.Del("Content-Type")
	}
	return h
}

const (
	jsonMedia    = "application/json"
	problemMedia = "application/problem+json"
	one          = "/v1/workflows/w/schedules/a%2Fb"
)

func TestAnswersThatTheDocumentAllowsPass(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]exchange{
		"a schedule":         {"GET", one, "", 200, headers(jsonMedia, "ETag", `"1"`), schedule},
		"a page":             {"GET", "/v1/schedules?limit=5", "", 200, headers(jsonMedia), `{"items":[` + schedule + `],"next_cursor":null}`},
		"made":               {"PUT", one, `{"spec":{"cron":"@daily","max_ticks":null},"payload":[null,1e999]}`, 201, headers(jsonMedia, "ETag", `"1"`), schedule},
		"no body":            {"DELETE", one, "", 204, headers(""), ""},
		"a problem":          {"GET", one, "", 404, headers(problemMedia), notFound},
		"no such path":       {"GET", "/v1/nothing", "", 404, headers(problemMedia), notFound},
		"a refused request":  {"PUT", one, `{"spcc":1}`, 400, headers(problemMedia), strings.NewReplacer("404", "400", "not_found", "unknown_field").Replace(notFound)},
		"a fixed segment":    {"POST", "/v1/ticks/finish", `{"ticks":[{"tick_id":"t","lease_token":"l","outcome":"complete","result":[1]}]}`, 200, headers(jsonMedia), `{"results":[{"tick_id":"t","status":204}]}`},
		"a page of ours":     {"GET", "/docs", "", 200, headers("text/html; charset=utf-8", "Content-Security-Policy", "default-src 'none'", "ETag", `"7"`, "Cache-Control", "public, max-age=60", "Vary", "Accept-Encoding"), "<p>"},
		"a body left out":    {"POST", one + "/pause", "", 200, headers(jsonMedia, "ETag", `"2"`), schedule},
		"prometheus' metric": {"GET", "/metrics", "", 200, headers("text/plain; version=0.0.4; charset=utf-8"), "up 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := x.check(t); err != nil {
				t.Errorf("got %v, want it allowed", err)
			}
		})
	}
}

func TestDeliberateMismatchesAreFound(t *testing.T) {
	t.Parallel()
	ok := exchange{"GET", one, "", 200, headers(jsonMedia, "ETag", `"1"`), schedule}
	changed := func(from, to string) exchange {
		x := ok
		x.got = strings.Replace(schedule, from, to, 1)
		if x.got == schedule {
			t.Fatalf("%q is not in the schedule", from)
		}
		return x
	}
	for name, x := range map[string]exchange{
		"a member too many":          changed(`"id"`, `"extra":1,"id"`),
		"a member missing":           changed(`"tzdata":"2026f",`, ``),
		"a nested member too many":   changed(`"every":"1h30m"`, `"every":"1h30m","evry":1`),
		"a nested member missing":    changed(`"every":"1h30m"`, `"mode":"aligned"`),
		"null where none may be":     changed(`"upcoming":["2026-11-23T08:00:00Z"]`, `"upcoming":null`),
		"an instant with an offset":  changed(`"next_at":"2026-11-23T08:00:00Z"`, `"next_at":"2026-11-23T09:00:00+01:00"`),
		"a word that is not one":     changed(`"status":"active"`, `"status":"ended"`),
		"a number for a text":        changed(`"updated_by":"me"`, `"updated_by":7`),
		"a fraction for an integer":  changed(`"version":1`, `"version":1.5`),
		"a label that is no text":    changed(`"plan":"pro"`, `"plan":1`),
		"no ETag":                    {"GET", one, "", 200, headers(jsonMedia), schedule},
		"an ETag without quotes":     {"GET", one, "", 200, headers(jsonMedia, "ETag", "1"), schedule},
		"no request id":              {"GET", one, "", 200, http.Header{"Content-Type": {jsonMedia}, "Etag": {`"1"`}}, schedule},
		"another media type":         {"GET", one, "", 200, headers("text/plain", "ETag", `"1"`), schedule},
		"no body":                    {"GET", one, "", 200, headers(jsonMedia, "ETag", `"1"`), ""},
		"a body where none may be":   {"DELETE", one, "", 204, headers(jsonMedia), "{}"},
		"a status that is not there": {"GET", one, "", 202, headers(jsonMedia), schedule},
		"a 500":                      {"GET", one, "", 500, headers(problemMedia), strings.ReplaceAll(notFound, "404", "500")},
		"a route that is not there":  {"GET", "/v1/nothing", "", 200, headers(jsonMedia), "{}"},
		"a request not in it":        {"PUT", one, `{"spec":{"crn":"@daily"}}`, 200, headers(jsonMedia, "ETag", `"1"`), schedule},
		"a parameter not in it":      {"GET", "/v1/schedules?limit=5000", "", 200, headers(jsonMedia), `{"items":[],"next_cursor":null}`},
		"a code that is not there":   {"GET", one, "", 404, headers(problemMedia), strings.Replace(notFound, "not_found", "absent", 1)},
		"another status inside":      {"GET", one, "", 404, headers(problemMedia), strings.Replace(notFound, "404", "410", 1)},
		"another request id inside":  {"GET", one, "", 404, headers(problemMedia), strings.Replace(notFound, requestID, "x", 1)},
		"a problem without a code":   {"GET", one, "", 404, headers(problemMedia), strings.Replace(notFound, `,"code":"not_found"`, "", 1)},
		"401 without a challenge":    {"GET", one, "", 401, headers(problemMedia), strings.NewReplacer("404", "401", "not_found", "unauthenticated").Replace(notFound)},
		"429 without Retry-After":    {"GET", one, "", 429, headers(problemMedia), strings.NewReplacer("404", "429", "not_found", "rate_limited").Replace(notFound)},
		"plain 404 of no route":      {"GET", "/v1/nothing", "", 404, headers("text/plain"), "404 page not found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if x.check(t) == nil {
				t.Error("got it allowed, want it found")
			}
		})
	}
}

// A request with an unknown member is refused, and its schema says so. An answer may get members in later versions. The schemas that both
// use are open.
func TestRequestsAreClosedAndAnswersAreOpen(t *testing.T) {
	t.Parallel()
	doc := New(t).doc
	closed := func(s *openapi3.Schema) bool {
		return s.UnevaluatedProperties.Has != nil && !*s.UnevaluatedProperties.Has || s.AdditionalProperties.Has != nil && !*s.AdditionalProperties.Has
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.RequestBody != nil {
				for media, content := range op.RequestBody.Value.Content {
					lines := strings.Contains(media, "ndjson") && content.Schema.Value.Type.Is("object")
					if media != "text/calendar" && !lines && len(content.Schema.Value.Properties) > 0 && !closed(content.Schema.Value) {
						t.Errorf("%s %s: the request in %s allows further members", method, path, media)
					}
				}
			}
			for status, answer := range op.Responses.Map() {
				for _, content := range answer.Value.Content {
					each(content.Schema, map[*openapi3.Schema]bool{}, func(s *openapi3.Schema) {
						if closed(s) {
							t.Errorf("%s %s %s: the answer is closed: %s", method, path, status, s.Description)
						}
					})
				}
			}
		}
	}
}

// each calls fn with a schema and with each schema inside it.
func each(ref *openapi3.SchemaRef, seen map[*openapi3.Schema]bool, fn func(*openapi3.Schema)) {
	if ref == nil || seen[ref.Value] {
		return
	}
	s := ref.Value
	seen[s] = true
	fn(s)
	for _, inner := range s.Properties {
		each(inner, seen, fn)
	}
	for _, inner := range slices.Concat(s.OneOf, s.AnyOf, s.AllOf) {
		each(inner, seen, fn)
	}
	each(s.Items, seen, fn)
	each(s.AdditionalProperties.Schema, seen, fn)
}

// Each integer says how large it may be, so that generated clients have a type that holds it.
func TestIntegersHaveAFormat(t *testing.T) {
	t.Parallel()
	seen := map[*openapi3.Schema]bool{}
	for name, schema := range New(t).doc.Components.Schemas {
		each(schema, seen, func(s *openapi3.Schema) {
			if s.Type.Includes("integer") && s.Format != "int32" && s.Format != "int64" {
				t.Errorf("%s: an integer has the format %q", name, s.Format)
			}
		})
	}
}

// Each answer with a body in JSON has an example, and the check of the document holds it to its schema.
func TestEachAnswerHasAnExample(t *testing.T) {
	t.Parallel()
	for _, item := range New(t).doc.Paths.Map() {
		for _, op := range item.Operations() {
			for status, answer := range op.Responses.Map() {
				for media, content := range answer.Value.Content {
					if strings.Contains(media, "json") && content.Example == nil && len(content.Examples) == 0 {
						t.Errorf("%s %s: %s has no example", op.OperationID, status, media)
					}
				}
			}
		}
	}
}

// The code of a problem is one of a list, and each code that an answer lists is in it.
func TestCodesAreListed(t *testing.T) {
	t.Parallel()
	doc := New(t).doc
	all := doc.Components.Schemas["Code"].Value.Enum
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			for status, answer := range op.Responses.Map() {
				codes, _ := answer.Value.Extensions["x-codes"].([]any)
				for _, code := range codes {
					if !slices.Contains(all, code) {
						t.Errorf("%s %s: the code %v is not listed", op.OperationID, status, code)
					}
				}
			}
		}
	}
}

// recorder is a test that only notes whether it failed.
type recorder struct {
	testing.TB
	failed int
}

func (r *recorder) Helper()               {}
func (r *recorder) Error(...any)          { r.failed++ }
func (r *recorder) Errorf(string, ...any) { r.failed++ }

func TestTransportChecksWhatItCarries(t *testing.T) {
	t.Parallel()
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Response().Header().Set("X-Request-Id", requestID)
			return next(c)
		}
	})
	api.Routes(e, web.Static, web.Conditional)
	api.PageRoutes(e, web.Static, web.Conditional)
	e.GET("/healthz", func(c echo.Context) error { return c.JSON(200, map[string]string{"status": "fine"}) })
	e.POST("/v1/ticks/:id/complete", func(c echo.Context) error {
		b, err := io.ReadAll(c.Request().Body)
		if err != nil || string(b) != `{"lease_token":"l"}` {
			t.Errorf("got body %q, %v", b, err)
		}
		return c.NoContent(204)
	})
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)

	found := &recorder{TB: t}
	client := &http.Client{Transport: Transport(found, server.Client().Transport)}
	for _, path := range []string{"/openapi.yaml", "/docs", "/docs/start.js", "/docs/scalar.js", "/docs/LICENSE.txt"} {
		resp, err := client.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || len(b) == 0 || resp.StatusCode != 200 {
			t.Errorf("%s: got %d bytes, status %d, %v", path, len(b), resp.StatusCode, err)
		}
	}
	resp, err := client.Post(server.URL+"/v1/ticks/t/complete", jsonMedia, strings.NewReader(`{"lease_token":"l"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if found.failed != 0 {
		t.Errorf("got %d mismatches, want none", found.failed)
	}
	resp, err = client.Get(server.URL + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if found.failed != 1 {
		t.Errorf("got %d mismatches, want the one of /healthz", found.failed)
	}
}

func TestRoutesComparesBothWays(t *testing.T) {
	t.Parallel()
	e := echo.New()
	for path, item := range New(t).doc.Paths.Map() {
		for method := range item.Operations() {
			e.Add(method, strings.NewReplacer("{", ":", "}", "").Replace(path), func(echo.Context) error { return nil })
		}
	}
	e.RouteNotFound("/*", func(echo.Context) error { return nil })
	if got := New(t).routes(e.Routes()); len(got) > 0 {
		t.Errorf("got %q, want no difference", got)
	}
	if got := New(t).routes(echo.New().Routes(), "GET /metrics"); slices.Contains(got, "GET /metrics is in openapi.yaml and has no route") {
		t.Error("got /metrics missed, want it elsewhere")
	}
	e.POST("/v1/schedules/:key/poke", func(echo.Context) error { return nil })
	if got := New(t).routes(e.Routes()); len(got) != 1 {
		t.Errorf("got %q, want the route that is not documented", got)
	}
	if got := New(t).routes(echo.New().Routes()); len(got) < 30 {
		t.Errorf("got %q, want every operation", got)
	}
}

type stats struct {
	Fired, Succeeded, Failed, Skipped int64
}

type goodStats struct {
	Fired     int64 `json:"fired"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Skipped   int64 `json:"skipped"`
	Missed    int64 `json:"missed"`
}

func TestStructComparesNamesAndOptionality(t *testing.T) {
	t.Parallel()
	type missing struct {
		Fired     int64 `json:"fired"`
		Succeeded int64 `json:"succeeded"`
		Failed    int64 `json:"failed"`
		Skipped   int64 `json:"skipped"`
	}
	type optional struct {
		missing
		Missed int64 `json:"missed,omitempty"`
	}
	type null struct {
		missing
		Missed *int64 `json:"missed"`
	}
	type kind struct {
		missing
		Missed string `json:"missed"`
	}
	type extra struct {
		goodStats
		More bool `json:"more"`
	}
	type page struct {
		Items []struct {
			Code string `json:"code"`
		} `json:"items"`
		NextCursor *string `json:"next_cursor"`
	}
	type instant struct {
		LeaseUntil time.Time `json:"lease_until"`
	}
	for name, c := range map[string]struct {
		schema string
		typ    reflect.Type
		want   int
	}{
		"the same":                  {"Stats", reflect.TypeFor[goodStats](), 0},
		"a type that writes itself": {"Heartbeat", reflect.TypeFor[instant](), 0},
		"a member missing":          {"Stats", reflect.TypeFor[missing](), 1},
		"a member too many":         {"Stats", reflect.TypeFor[extra](), 1},
		"optional in one":           {"Stats", reflect.TypeFor[optional](), 1},
		"null in one":               {"Stats", reflect.TypeFor[null](), 1},
		"another kind":              {"Stats", reflect.TypeFor[kind](), 1},
		"inside a list":             {"WorkflowPage", reflect.TypeFor[page](), 12},
		"no such schema":            {"Nothing", reflect.TypeFor[stats](), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := New(t).structure(c.schema, c.typ); len(got) != c.want {
				t.Errorf("got %d differences, want %d: %q", len(got), c.want, got)
			}
		})
	}
}

// withoutBody relies on this. Version 3.0 does not know the keyword "examples", which restricts no value.
func TestParametersAndHeadersUseNoKeywordThatOpenAPI30Lacks(t *testing.T) {
	t.Parallel()
	known := []string{"type", "format", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "items", "minItems", "maxItems", "uniqueItems", "default", "example", "examples", "description"}
	doc := New(t).doc
	count := 0
	plain := func(where string, schema *openapi3.SchemaRef) {
		count++
		text, err := schema.Value.MarshalJSON()
		var members map[string]any
		if err == nil {
			err = json.Unmarshal(text, &members)
		}
		if err != nil {
			t.Fatal(err)
		}
		for name := range members {
			if _, several := members["type"].([]any); several || !slices.Contains(known, name) {
				t.Errorf("the schema of %s: %s", where, text)
			}
		}
	}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for _, parameter := range append(slices.Clone(item.Parameters), operation.Parameters...) {
				plain(method+" "+path+" "+parameter.Value.Name, parameter.Value.Schema)
			}
			for status, response := range operation.Responses.Map() {
				for name, header := range response.Value.Headers {
					plain(method+" "+path+" "+status+" "+name, header.Value.Schema)
				}
			}
		}
	}
	if count < 100 {
		t.Errorf("only %d schemas were looked at", count)
	}
}
