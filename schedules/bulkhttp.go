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

// BulkCut is the last line of an answer that was cut, and says why. Nothing more of the body is stored.
type BulkCut struct {
	Error BulkFault `json:"error"`
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
		return a.cut(f)
	}
	if err != nil {
		return err
	}
	warnings, err := h.Forecasts.Warnings(c.Request().Context(), tenants.From(c))
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

// cut ends an answer of which a part is written: no summary follows.
func (a *bulkAnswer) cut(f *fault.Error) error {
	web.Note(a.Context, slog.String("cut", f.Code))
	return a.write(BulkCut{*bulkFault(f)})
}

// bulkBody is a request's body. It can be read while the client sends and its token counts.
type bulkBody struct {
	echo.Context
	conn    *http.ResponseController
	closed  atomic.Bool
	checked time.Time // when the token was last checked
}

// checkEvery is how often a body that is being read checks the request's token.
const checkEvery = time.Second

// Read waits up to bulkPause for the client to send more. It fails once the server stops or the token no longer counts.
func (b *bulkBody) Read(p []byte) (int, error) {
	if now := time.Now(); now.Sub(b.checked) > checkEvery {
		b.checked = now
		if err := tenants.CheckAuthority(b.Request().Context()); err != nil {
			return 0, err
		}
	}
	select {
	case <-web.Stopping(b.Request().Context()):
		return 0, fault.Unavailable("unavailable", "the server stops; send it again")
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
