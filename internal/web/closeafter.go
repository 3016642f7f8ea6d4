package web

import (
	"github.com/labstack/echo/v4"
)

// CloseAfter makes a request the last one of its connection. A handler calls it if it answers before it has read the whole body: net/http
// may use the connection again if a deadline cut the last read, and would read the rest of the body as another request (RFC 9112
// section 9.3). When the request has ended, the server closes its side and discards what the client still sends.
func CloseAfter(c echo.Context) {
	if !c.Response().Committed {
		c.Response().Header().Set("Connection", "close")
	}
	if w, ok := c.Request().Context().Value(wireKey).(*wire); ok {
		w.last.Store(true)
	}
}

// Close closes the connection. After CloseAfter it first waits for the client to read the answer, as CloseWrite does.
func (w *wire) Close() error {
	if w.last.Load() && !w.lingered.Swap(true) {
		_ = w.CloseWrite() // an error ends the connection as well
	}
	return w.Conn.Close()
}
