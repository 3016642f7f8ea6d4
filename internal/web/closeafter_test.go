package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// A handler answers before it has read the whole body, and its last read was cut by a deadline. What the client sends afterwards belongs to
// the body. If the server read it as another request, that request could get an answer which a proxy gives to somebody else.
func TestTheRestOfABodyIsNoRequest(t *testing.T) {
	t.Parallel()
	for name, answered := range map[string]bool{"no part of the answer was sent": false, "a part of the answer was sent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var hidden atomic.Bool
			e := New(Options{Log: quiet()})
			e.GET("/hidden", func(c echo.Context) error {
				hidden.Store(true)
				return c.NoContent(http.StatusNoContent)
			})
			e.POST("/lines", func(c echo.Context) error {
				conn := http.NewResponseController(c.Response())
				if err := conn.EnableFullDuplex(); err != nil {
					return err
				}
				if _, err := c.Request().Body.Read(make([]byte, 5)); err != nil {
					return err
				}
				if err := conn.SetReadDeadline(time.Now()); err != nil {
					return err
				}
				defer CloseAfter(c)
				if answered {
					return c.String(http.StatusOK, "a line")
				}
				return fault.New(http.StatusUnauthorized, "invalid_token", "the token has ended")
			})
			c, err := net.Dial("tcp", raised(t, e))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			const rest = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
			if _, err := io.WriteString(c, "POST /lines HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1000000\r\nbegin"); err != nil {
				t.Fatal(err)
			}
			answers := bufio.NewReader(c)
			first, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(first.Body); err != nil || len(body) == 0 {
				t.Errorf("the answer is cut: %q, %v", body, err)
			}
			for range 100 { // all of it belongs to the chunk
				if _, err := io.WriteString(c, strings.Repeat(rest, 100)); err != nil {
					t.Fatalf("the connection was reset while the client sent its body: %v", err)
				}
			}
			if more, err := io.ReadAll(answers); err != nil || len(more) > 0 || hidden.Load() {
				t.Errorf("after the answer came %q, %v", more, err)
			}
		})
	}
}
