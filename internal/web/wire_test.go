package web

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
)

// The wire finds the end of a request, however the request states its length. So a later request with two lengths is refused, and a body
// that looks like such a request is not.
func TestTheWireIsFollowedHoweverALengthIsWritten(t *testing.T) {
	t.Parallel()
	router := New(Options{Log: slog.New(slog.DiscardHandler)})
	router.POST("/x", func(c echo.Context) error {
		_, err := io.Copy(io.Discard, c.Request().Body)
		if err != nil {
			return err
		}
		return c.NoContent(http.StatusNoContent)
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- Serve(t.Context(), ln, router, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	const hidden = "POST /x HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, length := range map[string]string{
		"plain":             "Content-Length: %d\r\n",
		"many blanks":       "Content-Length:" + strings.Repeat(" ", 70) + "%d\r\n",
		"many tabs":         "Content-Length:" + strings.Repeat("\t", 5000) + "%d\r\n",
		"blanks after it":   "Content-Length: %d" + strings.Repeat(" ", 70) + "\r\n",
		"folded":            "Content-Length:\r\n %d\r\n",
		"folded twice":      "Content-Length:\r\n \t\r\n\t%d\r\n",
		"after a long line": "X-Long: " + strings.Repeat("y", 8000) + "\r\nContent-Length: %d\r\n",
		"another is folded": "X-Long: a\r\n Content-Length: 3\r\nContent-Length: %d\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			in := bufio.NewReader(conn)
			ask := func(head, body string) int {
				fmt.Fprintf(conn, "POST /x HTTP/1.1\r\nHost: a\r\n%s\r\n%s", head, body)
				a, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, a.Body)
				return a.StatusCode
			}
			if got := ask(fmt.Sprintf(length, len(hidden)), hidden); got != http.StatusNoContent {
				t.Errorf("a body that looks like a request: got %d", got)
			}
			if got := ask("Content-Length: 0\r\n", ""); got != http.StatusNoContent {
				t.Errorf("the request after it: got %d", got)
			}
			if got := ask(fmt.Sprintf(length, 5)+"Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"); got != http.StatusBadRequest {
				t.Errorf("a request of two lengths: got %d", got)
			}
		})
	}
}
