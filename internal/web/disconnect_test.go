package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
)

// If a process stands still for a while, the read deadlines of its connections pass. net/http then ends the contexts of the requests as if
// their clients had gone.
func TestALateReadIsNoDisconnect(t *testing.T) {
	t.Parallel()
	e := New(Options{Log: quiet()})
	late := func(c echo.Context) (request context.Context, err error) {
		client := c.Get(clientKey).(context.Context)
		if err := http.NewResponseController(c.Response()).SetReadDeadline(time.Now()); err != nil {
			return nil, err
		}
		<-client.Done()
		return c.Request().Context(), nil
	}
	e.GET("/work", func(c echo.Context) error {
		request, err := late(c)
		if err != nil {
			return err
		}
		return Answer(c, 200, request.Err() == nil)
	})
	e.GET("/late", func(c echo.Context) error {
		request, err := late(c)
		if err != nil {
			return err
		}
		<-request.Done()
		return request.Err()
	}, Timeout(50*time.Millisecond))
	addr, _ := serve(t, e)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, want := range map[string]string{"/work": "200 true", "/late": "503"} {
		r, err := client.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		if err := errors.Join(err, r.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(r.StatusCode, " ", string(body)); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

// A request whose client has closed the connection ends at once, although its timeout is long.
func TestADisconnectEndsTheRequest(t *testing.T) {
	t.Parallel()
	e := New(Options{Log: quiet()})
	entered, ended := make(chan struct{}), make(chan error, 1)
	e.GET("/wait", func(c echo.Context) error {
		close(entered)
		<-c.Request().Context().Done()
		ended <- c.Request().Context().Err()
		return c.Request().Context().Err()
	}, Timeout(time.Hour))
	addr, _ := serve(t, e)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-entered
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the request ended with %v", err)
	}
}
