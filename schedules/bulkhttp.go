package schedules

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

const (
	bulkMedia = "application/x-ndjson"
	bulkTime  = 6 * time.Hour    // of a whole call
	bulkPause = 30 * time.Second // how long a client may neither send nor take anything
)

// BulkEnd is the last line of the answer to a bulk upsert: an answer without it was cut.
type BulkEnd struct {
	Summary  BulkSummary        `json:"summary"`
	Warnings []calendar.Warning `json:"warnings"`
}

func (h handler) bulk(c echo.Context) error {
	q, err := web.Query(c, "results")
	if err != nil {
		return err
	}
	if q.Has("results") && q.Get("results") != "errors" && q.Get("results") != "all" {
		return fault.Invalid("/results", "%q is neither all nor errors", q.Get("results"))
	}
	if err := ndjson(c); err != nil {
		return err
	}
	a := bulkAnswer{Context: c, conn: http.NewResponseController(c.Response()), errorsOnly: q.Get("results") == "errors"}
	_ = a.conn.EnableFullDuplex() // what cannot, a recorder, reads the body before it answers
	sum, err := h.Bulk(c.Request().Context(), tenants.From(c), tenants.Caller(c).Subject, &bulkBody{Context: c, conn: a.conn}, a.results)
	if f, ok := errors.AsType[*fault.Error](err); ok && c.Response().Committed {
		web.Note(c, slog.String("cut", f.Code)) // the client's doing, and it sees that the summary is missing
		return nil
	}
	if err != nil {
		return err
	}
	warnings, err := h.crowded(c.Request().Context(), tenants.From(c))
	if err != nil {
		return err
	}
	return a.write(BulkEnd{sum, warnings})
}

// ndjson refuses a body that is not lines of JSON in UTF-8.
func ndjson(c echo.Context) error {
	sent := strings.Join(c.Request().Header.Values(echo.HeaderContentType), ", ")
	media, params, err := mime.ParseMediaType(sent)
	charset := strings.ToLower(params["charset"])
	if err != nil || media != bulkMedia || charset != "" && charset != "utf-8" {
		return fault.New(http.StatusUnsupportedMediaType, "unsupported_media_type", "the body must be %s in UTF-8", bulkMedia)
	}
	return nil
}

// bulkAnswer writes lines while the body is still being read.
type bulkAnswer struct {
	echo.Context
	conn       *http.ResponseController
	errorsOnly bool
}

func (a *bulkAnswer) results(all []BulkResult) error {
	lines := make([]any, 0, len(all))
	for i := range all {
		if !a.errorsOnly || all[i].Result == Failed {
			lines = append(lines, &all[i])
		}
	}
	return a.write(lines...)
}

func (a *bulkAnswer) write(lines ...any) error {
	if !a.Response().Committed {
		a.Response().Header().Set(echo.HeaderContentType, bulkMedia)
		a.Response().WriteHeader(http.StatusOK)
	}
	_ = a.conn.SetWriteDeadline(time.Now().Add(bulkPause)) // a recorder has none
	for _, line := range lines {
		text, err := web.Marshal(line)
		if err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
		if _, err := a.Response().Write(append(text, '\n')); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
	}
	a.Response().Flush()
	return nil
}

// bulkBody is a request's body, read for as long as something comes.
type bulkBody struct {
	echo.Context
	conn   *http.ResponseController
	closed atomic.Bool
}

// Read gives the client a while to send more. Once the server stops, nothing more is read.
func (b *bulkBody) Read(p []byte) (int, error) {
	select {
	case <-web.Stopping(b.Request().Context()):
		return 0, fault.New(http.StatusServiceUnavailable, "unavailable", "the server stops; send it again")
	default:
	}
	_ = b.conn.SetReadDeadline(time.Now().Add(bulkPause)) // a recorder has none
	if b.closed.Load() {
		return 0, context.Canceled
	}
	return b.Request().Body.Read(p)
}

// Close ends a Read that is under way.
func (b *bulkBody) Close() error {
	b.closed.Store(true)
	return b.conn.SetReadDeadline(time.Now())
}

var _ io.ReadCloser = (*bulkBody)(nil)
