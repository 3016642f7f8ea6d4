package web

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
)

// raw sends a request with exactly this target. It returns the string that the answer quotes, or the status if that is not 200.
func raw(t *testing.T, addr, method, target string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method, target); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != 200 {
		return strconv.Itoa(answer.StatusCode)
	}
	s, err := strconv.Unquote(string(b))
	if err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return s
}

func TestQueryAndPage(t *testing.T) {
	t.Parallel()
	e := New(Options{Log: quiet()})
	e.GET("/", func(c echo.Context) error {
		q, err := Query(c, "limit", "cursor", "workflow")
		if err != nil {
			return err
		}
		limit, cursor, err := Page(c)
		if err != nil {
			return err
		}
		return Answer(c, 200, []any{limit, cursor, q.Get("workflow")})
	})
	for query, want := range map[string]string{
		"":                           `[100,"",""]`,
		"limit=1":                    `[1,"",""]`,
		"limit=1000&cursor=abc":      `[1000,"abc",""]`,
		"workflow=a%2Fb+c":           `[100,"","a/b c"]`,
		"limit=0":                    "422 /limit invalid",
		"limit=1001":                 "422 /limit invalid",
		"limit=-1":                   "422 /limit invalid",
		"limit=":                     "422 /limit invalid",
		"limit=1e2":                  "422 /limit invalid",
		"limit=99999999999999999999": "422 /limit invalid",
		"limit=1&limit=2":            "400 /limit duplicate_parameter",
		"Limit=1":                    "400 /Limit unknown_parameter",
		"x=1&a=2":                    "400 /a unknown_parameter /x unknown_parameter",
		"workflow=%00":               "422 /workflow invalid",
		"workflow=%FF":               "422 /workflow invalid",
		"workflow=%zz":               "400",
		"workflow=a;b":               "400",
	} {
		w, doc := send(e, "GET", "/?"+query)
		got := w.Body.String()
		if w.Code != 200 {
			got = strconv.Itoa(w.Code)
			fields, _ := doc["errors"].([]any)
			for _, f := range fields {
				m := f.(map[string]any)
				got += fmt.Sprintf(" %s %s", m["pointer"], m["code"])
			}
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
}

func TestCursorIsBoundToTenantAndFilter(t *testing.T) {
	t.Parallel()
	c, err := NewCursor([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewCursor([]byte(strings.Repeat("l", 32)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewCursor([]byte("short")); err == nil {
		t.Error("a short secret was taken")
	}
	type position struct{ Key string }
	sealed, err := c.Seal(7, "schedules w", position{"user_1"})
	if err != nil {
		t.Fatal(err)
	}
	var p position
	if err := c.Open(7, "schedules w", sealed, &p); err != nil || p.Key != "user_1" {
		t.Errorf("got %v, %v", p, err)
	}
	if strings.Contains(sealed, "user") {
		t.Error("a cursor that can be read")
	}
	changed := "A" + sealed[1:]
	if changed == sealed {
		changed = "B" + sealed[1:]
	}
	for name, err := range map[string]error{
		"tenant":  c.Open(8, "schedules w", sealed, &p),
		"filter":  c.Open(7, "schedules", sealed, &p),
		"key":     other.Open(7, "schedules w", sealed, &p),
		"changed": c.Open(7, "schedules w", changed, &p),
		"cut":     c.Open(7, "schedules w", sealed[:10], &p),
		"text":    c.Open(7, "schedules w", "né", &p),
		"padding": c.Open(7, "schedules w", sealed+"=", &p),
		"empty":   c.Open(7, "schedules w", "", &p),
	} {
		if err == nil || !strings.Contains(err.Error(), "/cursor") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestPreconditions(t *testing.T) {
	t.Parallel()
	cases := []struct {
		header, value string
		exists        bool
		want          string
	}{
		{"", "", true, ""}, {"", "", false, ""},
		{"If-Match", `"3"`, true, ""}, {"If-Match", `"1", "3"`, true, ""}, {"If-Match", `, "3" ,`, true, ""}, {"If-Match", `*`, true, ""},
		{"If-Match", `"4"`, true, "412"}, {"If-Match", `W/"3"`, true, "412"}, {"If-Match", `*`, false, "412"}, {"If-Match", `"3"`, false, "412"},
		{"If-Match", `"a,b", "3"`, true, ""},
		{"If-None-Match", `*`, false, ""}, {"If-None-Match", `*`, true, "412"}, {"If-None-Match", `"3"`, true, "412"},
		{"If-None-Match", `W/"3"`, true, "412"}, {"If-None-Match", `"4"`, true, ""},
		{"If-Match", `3`, true, "400"}, {"If-Match", `"3`, true, "400"}, {"If-Match", ``, true, "400"}, {"If-Match", `"3" "4"`, true, "400"},
		{"If-Match", `*, "3"`, true, "400"}, {"If-None-Match", `w/"3"`, true, "400"}, {"If-Match", `,`, true, "400"}, {"If-Match", `"`, true, "400"},
	}
	for _, c := range cases {
		e := New(Options{Log: quiet()})
		e.GET("/", func(ctx echo.Context) error {
			p, err := Preconditions(ctx)
			if err != nil {
				return err
			}
			if err := p.Check(c.exists, 3); err != nil {
				return err
			}
			return Answer(ctx, 200, nil)
		}, Conditional)
		var header []string
		if c.header != "" {
			header = []string{c.header, c.value}
		}
		w, _ := send(e, "GET", "/", header...)
		want := c.want
		if want == "" {
			want = "200"
		}
		if strconv.Itoa(w.Code) != want {
			t.Errorf("%s: %s (exists: %v): got %d, want %s", c.header, c.value, c.exists, w.Code, want)
		}
	}
}
