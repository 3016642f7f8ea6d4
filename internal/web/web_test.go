package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/trace"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// send sends one request to a router. It returns the answer, and its problem document if it is one.
func send(e http.Handler, method, target string, header ...string) (*httptest.ResponseRecorder, map[string]any) {
	r := httptest.NewRequest(method, "/", nil)
	before, query, _ := strings.Cut(target, "?")
	u, err := url.ParseRequestURI(before) // as the server does: dots stay
	if err != nil {
		panic(err)
	}
	u.RawQuery = query
	r.URL = u
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	var doc map[string]any
	_ = json.Unmarshal(w.Body.Bytes(), &doc)
	return w, doc
}

func TestProblems(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	o := Options{Log: slog.New(slog.NewJSONHandler(&log, nil))}
	e := New(o)
	answers := map[string]error{
		"fault": fault.Invalid("/spec/timezone", "%q is not a time zone", "Mars"),
		"wrapped": fmt.Errorf("put it: %w", &fault.Error{Status: 403, Code: "quota_exceeded", Detail: "no more",
			Extra: map[string]any{"limit": 10, "status": 1}, RetryAfter: 1500 * time.Millisecond, Header: map[string]string{"X-A": "b"}}),
		"ours": errors.New("the secret of the database"),
	}
	e.GET("/error/:which", func(c echo.Context) error { return answers[c.Param("which")] })
	untilItEnds := func(c echo.Context) error {
		<-c.Request().Context().Done()
		return c.Request().Context().Err()
	}
	e.GET("/client", untilItEnds)
	e.GET("/panic", func(c echo.Context) error { panic("the secret of a panic") })
	o.Timeout = time.Millisecond // a router of its own, because any error after the timeout is answered with 503
	hasty := New(o)
	hasty.GET("/slow", untilItEnds)

	w, doc := send(e, "GET", "/error/fault")
	if w.Code != 422 || w.Header().Get("Content-Type") != "application/problem+json" || doc["title"] != "Unprocessable Entity" ||
		doc["type"] != "about:blank" || doc["code"] != "invalid" || doc["instance"] != w.Header().Get("X-Request-Id") || doc["instance"] == "" ||
		fmt.Sprint(doc["errors"]) != `[map[code:invalid detail:"Mars" is not a time zone pointer:/spec/timezone]]` {
		t.Errorf("got %d %v", w.Code, doc)
	}
	if h := w.Header(); h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("got headers %v", h)
	}
	w, doc = send(e, "GET", "/error/wrapped")
	if w.Code != 403 || doc["limit"] != 10. || doc["status"] != 403. || w.Header().Get("Retry-After") != "2" || w.Header().Get("X-A") != "b" {
		t.Errorf("got %d %v %v", w.Code, doc, w.Header())
	}
	for path, want := range map[string]struct {
		of     http.Handler
		status int
	}{"/error/ours": {e, 500}, "/panic": {e, 500}, "/slow": {hasty, 503}} {
		w, doc = send(want.of, "GET", path)
		if w.Code != want.status || strings.Contains(w.Body.String(), "secret") || !strings.Contains(log.String(), doc["instance"].(string)) {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
		if want.status == 503 && w.Header().Get("Retry-After") == "" {
			t.Error("a 503 without Retry-After")
		}
	}
	if !strings.Contains(log.String(), "the secret of the database") || !strings.Contains(log.String(), "the secret of a panic") {
		t.Error("what went wrong is not in the log")
	}
	w, doc = send(e, "GET", "/nothing")
	if w.Code != 404 || doc["code"] != "not_found" {
		t.Errorf("got %d %v", w.Code, doc)
	}
	w, doc = send(e, "PUT", "/client")
	if w.Code != 405 || doc["code"] != "method_not_allowed" || !strings.Contains(w.Header().Get("Allow"), "GET") {
		t.Errorf("got %d %v %v", w.Code, doc, w.Header())
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	rec := httptest.NewRecorder()
	e.ServeHTTP(rec, httptest.NewRequest("GET", "/client", nil).WithContext(gone))
	if rec.Code != 499 {
		t.Errorf("got %d for a client that went away", rec.Code)
	}
}

func TestMethodNotAllowedBesideAGroup(t *testing.T) {
	t.Parallel()
	e := New(Options{Log: quiet()})
	refuse := func(echo.HandlerFunc) echo.HandlerFunc {
		return func(echo.Context) error { return fault.New(401, "unauthenticated", "no") }
	}
	g := e.Group("", refuse)
	e.RouteNotFound("/*", echo.NotFoundHandler)
	g.GET("/v1/things/:thing", func(c echo.Context) error { return nil })
	g.PUT("/v1/things/:thing", func(c echo.Context) error { return nil })
	g.POST("/v1/things/get", func(c echo.Context) error { return nil })
	e.GET("/v1/none/:file", func(echo.Context) error { return echo.ErrNotFound })
	for request, want := range map[string]string{
		"GET /v1/none/a":        "404",
		"PUT /v1/none/a":        "405 GET, HEAD",
		"GET /v1/things/a":      "401",
		"POST /v1/things/a":     "405 GET, HEAD, PUT",
		"DELETE /v1/things/a":   "405 GET, HEAD, PUT",
		"POST /v1/things/a/b":   "404",
		"GET /v1/things/a/b":    "404",
		"POST /v1/things/a%2Fb": "405 GET, HEAD, PUT",
		"POST /v1/things/get":   "401",
		"DELETE /v1/things/get": "405 GET, HEAD, PUT, POST",
		"GET /v1/nothing":       "404",
	} {
		method, path, _ := strings.Cut(request, " ")
		w, _ := send(e, method, path)
		if got := strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Header().Get("Allow"))); got != want {
			t.Errorf("%s: got %s, want %s", request, got, want)
		}
	}
}

func TestRequestIDAndTraceparent(t *testing.T) {
	t.Parallel()
	e := New(Options{Log: quiet()})
	e.GET("/", func(c echo.Context) error {
		ctx := c.Request().Context()
		got := ""
		if t := trace.From(ctx); t.Valid() {
			got = t.String()
		}
		return Answer(c, 200, []string{RequestID(ctx), got})
	})
	const sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	w, _ := send(e, "GET", "/", "X-Request-Id", "client-1234", "traceparent", sent)
	if want := `["client-1234","` + sent + `"]`; w.Body.String() != want || w.Header().Get("X-Request-Id") != "client-1234" {
		t.Errorf("got %s, want %s", w.Body, want)
	}
	for _, id := range []string{"", "short", "has space", "new\tline-123", strings.Repeat("x", 129), `"quoted-id"`} {
		w, _ := send(e, "GET", "/", "X-Request-Id", id)
		if got := w.Header().Get("X-Request-Id"); got == id || len(got) < 20 {
			t.Errorf("sent the id %q, got %q", id, got)
		}
	}
	for _, bad := range []string{"", "x", strings.ToUpper(sent), "ff" + sent[2:], sent + "-x", strings.Replace(sent, "4bf92f3577b34da6a3ce929d0e0e4736", strings.Repeat("0", 32), 1)} {
		w, _ := send(e, "GET", "/", "traceparent", bad)
		if !strings.HasSuffix(w.Body.String(), `,""]`) {
			t.Errorf("traceparent %q was taken: %s", bad, w.Body)
		}
	}
}

func TestTimeoutLengthensAndKeepsTheClient(t *testing.T) {
	t.Parallel()
	e := New(Options{Log: quiet(), Timeout: time.Second})
	left := func(c echo.Context) error {
		until, _ := c.Request().Context().Deadline()
		return Answer(c, 200, time.Until(until) > 10*time.Second)
	}
	e.GET("/short", left)
	e.GET("/long", left, Timeout(time.Minute))
	e.GET("/wait", func(c echo.Context) error {
		<-c.Request().Context().Done()
		return c.Request().Context().Err()
	}, Timeout(time.Minute))
	if w, _ := send(e, "GET", "/short"); w.Body.String() != "false" {
		t.Errorf("got %s", w.Body)
	}
	if w, _ := send(e, "GET", "/long"); w.Body.String() != "true" {
		t.Errorf("got %s", w.Body)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest("GET", "/wait", nil).WithContext(gone))
	if w.Code != 499 {
		t.Errorf("got %d", w.Code)
	}
}

func TestTimeoutOfTheRouteIsTheOneThatCounts(t *testing.T) {
	t.Parallel()
	e := New(Options{Log: quiet(), Timeout: time.Nanosecond})
	broken := func(echo.Context) error { return errors.New("broken") }
	e.GET("/short", broken)
	e.GET("/long", broken, Timeout(time.Minute))
	for path, want := range map[string]int{"/short": 503, "/long": 500} {
		if w, _ := send(e, "GET", path); w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
	}
}

// serve runs a real server until the test ends. It returns the address, and a function that stops the server.
func serve(t *testing.T, h http.Handler) (addr string, stop func()) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, ln, h, quiet()) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	}
	t.Cleanup(stop)
	return ln.Addr().String(), stop
}

// dial sends the text unchanged, and returns the status of each answer until the connection ends.
func dial(t *testing.T, addr, text string) []int {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	var got []int
	for in := bufio.NewReader(conn); ; {
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			return got
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		got = append(got, answer.StatusCode)
	}
}

func TestServeBrokenRequests(t *testing.T) {
	t.Parallel()
	e := bodyRouter(t)
	addr, _ := serve(t, e)
	const head = "POST /strict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	cases := map[string]struct {
		text string
		want []int
	}{
		"good":                    {head + "Connection: close\r\nContent-Length: 2\r\n\r\n{}", []int{200}},
		"chunked":                 {head + "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", []int{200}},
		"malformed chunk":         {head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", []int{400}},
		"cut chunk":               {head + "Transfer-Encoding: chunked\r\n\r\n5\r\n{", []int{400}},
		"length beyond the limit": {head + "Content-Length: 4611686018427387904\r\n\r\n{", []int{413}},
		"cut body":                {head + "Content-Length: 20\r\n\r\n{}", []int{400}},
		"two lengths":             {head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", []int{400}},
		"length and chunked":      {head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", []int{400}},
		"no such transfer":        {head + "Transfer-Encoding: gzip\r\n\r\n", []int{400}},
		"no such version":         {"GET / HTTP/3.0\r\nHost: x\r\n\r\n", []int{400}},
		"length, then chunked":    {head + "Content-Length: 2\r\n\r\n{}" + head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + "GET / HTTP/1.1\r\nHost: x\r\n\r\n", []int{200, 200, 404}},
		"chunked, then length":    {head + "Transfer-Encoding: chunked\r\n\r\n1;x=y\r\n{\r\n1\r\n}\r\n0\r\nContent-Length: 7\r\n\r\n" + head + "Content-Length: 2\r\n\r\n{}", []int{200, 200}},
		"header of a megabyte":    {"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<18) + "\r\n\r\n", []int{431}},
		"bad escape in a path":    {"GET /%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", []int{400}},
		"asterisk":                {"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", []int{404}},
		"connect":                 {"CONNECT x:80 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", []int{404}},
		"a url with everything":   {"GET http://x/strict HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", []int{405}},
	}
	for name, c := range cases {
		if got := dial(t, addr, c.text); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestServeStopsGracefully(t *testing.T) {
	t.Parallel()
	e := New(Options{Log: quiet()})
	entered := make(chan struct{})
	e.GET("/poll", func(c echo.Context) error {
		close(entered)
		<-Stopping(c.Request().Context())
		return Answer(c, 200, "stopped")
	}, Timeout(time.Minute))
	addr, stop := serve(t, e)
	got := make(chan string, 1)
	go func() {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := client.Get("http://" + addr + "/poll")
		if err != nil {
			got <- err.Error()
			return
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		got <- string(b)
	}()
	<-entered
	stop()
	if s := <-got; s != `"stopped"` {
		t.Errorf("got %s", s)
	}
}

func TestPanicCutsAnAnswerBegun(t *testing.T) {
	t.Parallel()
	e := New(Options{Log: quiet()})
	e.GET("/", func(c echo.Context) error {
		c.Response().WriteHeader(200)
		if _, err := c.Response().Write([]byte("a part")); err != nil {
			return err
		}
		c.Response().Flush()
		panic("in the middle")
	})
	addr, _ := serve(t, e)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if _, err := io.ReadAll(r.Body); err == nil {
		t.Error("the answer ended as if it were whole")
	}
}
