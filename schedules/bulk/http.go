package bulk

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
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

const (
	ndjsonType = "application/x-ndjson"
	callTime   = 6 * time.Hour    // of a whole call
	pause      = 30 * time.Second // how long a client may neither send nor take anything
)

// End is the last line of the answer to a bulk upsert: an answer without it was cut.
type End struct {
	Summary  Summary            `json:"summary"`
	Warnings []calendar.Warning `json:"warnings"`
}

// Cut is the last line of an answer that was cut, and says why. Nothing more of the body is stored.
type Cut struct {
	Error Fault `json:"error"`
}

// Routes serves the calls of many lines under g, whose requests are authenticated.
func Routes(g *echo.Group, b *Bulk) {
	h := handler{b}
	read, write := tenants.Require(tenants.SchedulesRead), tenants.Require(tenants.SchedulesWrite)
	g.GET("/v1/schedules/export", h.export, read, web.Timeout(callTime))
	g.POST("/v1/schedules/bulk", h.upsert, write, web.BodyLimit(-1), web.Timeout(callTime))
	g.POST("/v1/schedules/sync", h.sync, write, web.BodyLimit(-1), web.Timeout(callTime))
	g.GET("/v1/subjects/export", h.exportSubjects, read, web.NoQuery, web.Timeout(callTime))
	g.POST("/v1/subjects/bulk", h.upsertSubjects, write, web.BodyLimit(-1), web.Timeout(callTime))
}

type handler struct{ *Bulk }

func (h handler) upsert(c echo.Context) error {
	a, err := begin(c, "dry_run")
	if err != nil {
		return err
	}
	dryRun, err := web.Flag(c.QueryParams(), "dry_run")
	if err != nil {
		return err
	}
	store := h.Upsert
	if dryRun {
		store = h.TryUpsert
	}
	_ = a.conn.EnableFullDuplex() // the recorder of a test cannot: it reads the body before it answers
	lines := &body{Context: c, conn: a.conn}
	sum, err := store(c.Request().Context(), tenants.From(c), tenants.Caller(c).Subject, lines, a.results)
	err = lines.end(err)
	if f, ok := errors.AsType[*fault.Error](err); ok && c.Response().Committed {
		return a.cut(f)
	}
	if err != nil {
		return err
	}
	warnings, err := h.forecasts.Warnings(c.Request().Context(), tenants.From(c))
	if err != nil {
		return err
	}
	return a.write(End{sum, warnings})
}

// begin reads the query and the media type of a bulk upsert. more names its other parameters.
func begin(c echo.Context, more ...string) (a *answer, err error) {
	q, err := web.Query(c, append(more, "results")...)
	if err != nil {
		return nil, err
	}
	if q.Has("results") && q.Get("results") != "errors" && q.Get("results") != "all" {
		return nil, fault.Invalid("/results", "%q is neither all nor errors", q.Get("results"))
	}
	return &answer{Context: c, conn: http.NewResponseController(c.Response()), errorsOnly: q.Get("results") == "errors"}, ndjson(c)
}

// ndjson refuses a body that is not lines of JSON in UTF-8.
func ndjson(c echo.Context) error {
	sent := strings.Join(c.Request().Header.Values(echo.HeaderContentType), ", ")
	media, params, err := mime.ParseMediaType(sent)
	charset := strings.ToLower(params["charset"])
	if err != nil || media != ndjsonType || charset != "" && charset != "utf-8" {
		return fault.New(http.StatusUnsupportedMediaType, "unsupported_media_type", "the body must be %s in UTF-8", ndjsonType)
	}
	return nil
}

// answer writes lines while the body is still being read.
type answer struct {
	echo.Context
	conn       *http.ResponseController
	errorsOnly bool
}

func (a *answer) results(all []Result) error {
	lines := make([]any, 0, len(all))
	for i := range all {
		if !a.errorsOnly || all[i].Result == schedules.Failed {
			lines = append(lines, &all[i])
		}
	}
	return a.write(lines...)
}

func (a *answer) write(lines ...any) error {
	if !a.Response().Committed {
		a.Response().Header().Set(echo.HeaderContentType, ndjsonType)
		a.Response().WriteHeader(http.StatusOK)
	}
	_ = a.conn.SetWriteDeadline(time.Now().Add(pause)) // the recorder of a test has none
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
func (a *answer) cut(f *fault.Error) error {
	web.Note(a.Context, slog.String("cut", f.Code))
	return a.write(Cut{*faultOf(f)})
}

// body is a request's body. It can be read while the client sends and its token counts.
type body struct {
	echo.Context
	conn    *http.ResponseController
	closed  atomic.Bool
	whole   atomic.Bool           // it is read to its end
	checked time.Time             // when the token was last checked
	refusal atomic.Pointer[error] // of the token, once a check has failed
}

// check checks the request's token, and keeps the refusal.
func (b *body) check() error {
	err := tenants.CheckAuthority(b.Request().Context())
	if err != nil && b.Request().Context().Err() == nil {
		b.refusal.CompareAndSwap(nil, &err)
	}
	return err
}

// end is called after the last Read. It returns the refusal of the token if that ended the request, else err: a read that is cut cancels the
// context of the request, so another part of the request may fail first. If a part of the body is not read, the connection ends with the
// request.
func (b *body) end(err error) error {
	if !b.whole.Load() {
		web.CloseAfter(b.Context)
	}
	if refusal := b.refusal.Load(); err != nil && refusal != nil {
		return *refusal
	}
	return err
}

// checkEvery is how often a body that is being read checks the request's token.
const checkEvery = time.Second

// Read waits up to pause for the client to send more. It fails once the server stops or the token no longer counts.
func (b *body) Read(p []byte) (int, error) {
	if now := time.Now(); now.Sub(b.checked) > checkEvery {
		b.checked = now
		if err := b.check(); err != nil {
			return 0, err
		}
	}
	select {
	case <-web.Stopping(b.Request().Context()):
		return 0, fault.Unavailable("unavailable", "the server is shutting down: send the request again")
	default:
	}
	_ = b.conn.SetReadDeadline(time.Now().Add(pause)) // the recorder of a test has none
	if b.closed.Load() {
		return 0, context.Canceled
	}
	ended, refused := make(chan struct{}), make(chan error, 1)
	watch := time.AfterFunc(tenants.AuthorityEvery, func() { refused <- b.watch(ended) })
	n, err := b.Request().Body.Read(p)
	if errors.Is(err, io.EOF) {
		b.whole.Store(true)
	}
	if !watch.Stop() {
		close(ended)
		if err := <-refused; err != nil {
			return n, err
		}
	}
	return n, err
}

// watch checks the request's credential until ended is closed. When it is refused, watch ends the Read that is under way, and returns
// the refusal.
func (b *body) watch(ended <-chan struct{}) error {
	check := time.NewTicker(tenants.AuthorityEvery)
	defer check.Stop()
	for {
		if err := b.check(); err != nil {
			_ = b.conn.SetReadDeadline(time.Now())
			return err
		}
		select {
		case <-ended:
			return nil
		case <-check.C:
		}
	}
}

// Close ends a Read that is under way.
func (b *body) Close() error {
	b.closed.Store(true)
	return b.conn.SetReadDeadline(time.Now())
}

var _ io.ReadCloser = (*body)(nil)
