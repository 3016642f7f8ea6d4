package web

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"pgregory.net/rapid"
)

func paramRouter() *echo.Echo {
	e := New(Options{Log: quiet()})
	show := func(suffix string) echo.HandlerFunc {
		return func(c echo.Context) error {
			workflow, err := Param(c, "workflow")
			if err != nil {
				return err
			}
			key, err := Param(c, "key")
			if err != nil {
				return err
			}
			return Answer(c, 200, Raw(fmt.Sprintf("%q", workflow+"|"+key+suffix)))
		}
	}
	e.GET("/v1/workflows/:workflow/schedules/:key", show(""))
	e.POST("/v1/workflows/:workflow/schedules/:key/pause", show("|pause"))
	return e
}

func TestParamDecodesOnce(t *testing.T) {
	t.Parallel()
	e := paramRouter()
	addr, _ := serve(t, e)
	cases := []struct{ sent, want string }{ // want: the key, or a status
		{"user_123", "user_123"}, {"a%2Fb", "a/b"}, {"a%2fb", "a/b"}, {"a%252Fb", "a%2Fb"}, {"%25", "%"}, {"%2525", "%25"},
		{"a+b", "a+b"}, {"a%20b", "a b"}, {"a%2Bb", "a+b"}, {"a;b", "a;b"}, {"a%3Bb", "a;b"}, {"a%3Fb", "a?b"}, {"a%23b", "a#b"},
		{".", "."}, {"..", ".."}, {"%2E%2E", ".."}, {"%2e", "."}, {"..%2F..", "../.."}, {"%2F", "/"}, {"%2F%2F", "//"}, {"pause", "pause"},
		{"caf%C3%A9", "café"}, {"%F0%9F%98%80", "😀"}, {"%2525%2F", "%25/"}, {":key", ":key"}, {"*", "*"}, {"a=b&c", "a=b&c"}, {"@subject", "@subject"},
		{"%C3%A9%2Fx%20y", "é/x y"}, {"x%7Ey~", "x~y~"}, {"%41", "A"}, {"a\\b", `a\b`}, {"%22%27", `"'`},
		{"%00", "422"}, {"%FF", "422"}, {"%1F", "422"}, {"%7F", "422"}, {"%C2%85", "422"}, {"a%0Ab", "422"}, {"%ED%A0%80", "422"}, {"%C0%AF", "422"},
		{"", "404"}, {"a/b", "404"}, {"a/", "404"}, {"/a", "404"}, {"a//", "404"}, {"../x", "404"},
		{"%", "400"}, {"%2", "400"}, {"%GG", "400"},
	}
	for _, c := range cases {
		path := "/v1/workflows/daily/schedules/" + c.sent
		if w := raw(t, addr, "GET", path); w != c.want && w != "daily|"+c.want {
			t.Errorf("GET %s: got %s, want %s", path, w, c.want)
		}
		if len(c.want) == 3 && strings.Trim(c.want, "024") == "" {
			continue
		}
		path += "/pause"
		if w := raw(t, addr, "POST", path); w != "daily|"+c.want+"|pause" {
			t.Errorf("POST %s: got %s, want %s|pause", path, w, c.want)
		}
	}
	for sent, want := range map[string]string{
		"/v1/workflows/a%2Fb/schedules/c%2Fd":  "a/b|c/d",
		"/v1/workflows//schedules/x":           "404",
		"/v1/workflows/a/b/schedules/x":        "404",
		"/v1/workflows/a/schedules%2Fx":        "404",
		"/v1/workflows%2Fa/schedules/x":        "404",
		"//v1/workflows/a/schedules/x":         "404",
		"/v1/workflows/%FF/schedules/x":        "422",
		"/v1/workflows/a/schedules/x?key=y":    "a|x",
		"/v1/workflows/a/schedules/%E2%80%A8?": "a|\u2028",
	} {
		if w := raw(t, addr, "GET", sent); w != want {
			t.Errorf("GET %s: got %s, want %s", sent, w, want)
		}
	}
}

// TestParamRoundTrip holds that any key reaches the handler as it was, however a client may encode it.
func TestParamRoundTrip(t *testing.T) {
	t.Parallel()
	e := paramRouter()
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringMatching(`[a-zA-Z%/?#+;:.~ é€😀&=@*\\"']{1,30}`).Draw(t, "key")
		every := ""
		for _, b := range []byte(key) {
			every += fmt.Sprintf("%%%02x", b)
		}
		for _, sent := range []string{url.PathEscape(key), every} {
			w, _ := send(e, "GET", "/v1/workflows/w/schedules/"+sent)
			if want := fmt.Sprintf("%q", "w|"+key); w.Body.String() != want {
				t.Fatalf("%s: got %s, want %s", sent, w.Body, want)
			}
		}
	})
}
