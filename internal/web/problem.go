package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
)

// errPanicked is the error of a panic that recovered has already logged.
var errPanicked = errors.New("a handler panicked")

// problems returns the only handler of errors. It writes a fault to the client. It logs any other error, and answers without its text.
func problems(log *slog.Logger) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		ctx := c.Request().Context()
		id := RequestID(ctx)
		if c.Response().Committed {
			log.ErrorContext(ctx, "an answer ended early", "request_id", id, "route", c.Path(), "error", err)
			return
		}
		f := faultOf(err, c)
		if f.Status >= 500 && !errors.Is(err, errPanicked) {
			log.ErrorContext(ctx, "a request failed", "request_id", id, "route", c.Path(), "status", f.Status, "error", err)
		}
		if err := writeProblem(c, f); err != nil {
			log.DebugContext(ctx, "cannot write a problem document", "request_id", id, "error", err)
		}
	}
}

// clientClosed is the status of a request whose client has disconnected. It appears only in logs.
const clientClosed = 499

// faultOf returns the fault to answer for an error.
func faultOf(err error, c echo.Context) *fault.Error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if he, ok := errors.AsType[*echo.HTTPError](err); ok && he.Code < 500 {
		return routing(he.Code, c)
	}
	if client, ok := c.Get(clientKey).(context.Context); ok && disconnected(client) {
		return fault.New(clientClosed, "client_closed", "the client has disconnected")
	}
	late := errors.Is(err, context.DeadlineExceeded)
	if outcome, ok := c.Get(outcomeKey).(*postgres.Outcome); ok && outcome.MayHaveChanged() && (late || overloaded(err)) {
		return outcomeUnknown()
	}
	if late {
		return unavailable("the request took too long")
	}
	if errors.Is(err, postgres.ErrBusy) {
		return busy()
	}
	if overloaded(err) {
		return unavailable("the service cannot answer now")
	}
	return fault.New(http.StatusInternalServerError, "internal", "the service had an error; its log has the details under this request's id")
}

// withCause returns a fault with a cause. The log shows the cause; the answer does not.
func withCause(f *fault.Error, cause error) error {
	return fmt.Errorf("%w (%w)", f, cause)
}

func unavailable(detail string) *fault.Error {
	f := fault.New(http.StatusServiceUnavailable, "unavailable", "%s; try again", detail)
	f.RetryAfter = time.Second
	return f
}

// busy returns the fault of a request that got no database connection in time.
func busy() *fault.Error {
	f := fault.New(http.StatusServiceUnavailable, "overloaded", "too many requests wait for the database; try again")
	f.RetryAfter = 2 * time.Second
	return f
}

// outcomeUnknown returns the fault of a change that may or may not have been made: the database connection broke during its commit,
// or after the commit of a part. Every other 503 means that nothing was changed.
func outcomeUnknown() *fault.Error {
	return fault.New(http.StatusServiceUnavailable, "outcome_unknown", "the change may or may not have been made: check, or repeat it if making it twice is safe")
}

func routing(status int, c echo.Context) *fault.Error {
	if status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
		methods := allowedMethods(c)
		if len(methods) == 0 || slices.Contains(methods, c.Request().Method) { // the route exists, and its handler returned 404
			return fault.NotFound("there is nothing at this path")
		}
		f := fault.New(http.StatusMethodNotAllowed, "method_not_allowed", "this path does not take %s", c.Request().Method)
		f.Header = map[string]string{echo.HeaderAllow: strings.Join(methods, ", ")}
		return f
	}
	return fault.New(status, strings.ReplaceAll(strings.ToLower(http.StatusText(status)), " ", "_"), "%s", http.StatusText(status))
}

// overloaded reports whether the database is unreachable or asks for a retry, so that the same request may succeed later.
func overloaded(err error) bool {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pgErr.Code[:2] {
		case "08", "40", "53", "57": // connection, deadlock or serialization failure, resources, operator intervention
			return true
		}
		return pgErr.Code == "55P03" || pgErr.Code == "25006" // lock timeout; the server became a standby
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, postgres.ErrBusy) || pgconn.SafeToRetry(err)
}

// allowedMethods returns the methods of the routes at the request's path. Echo's own list is wrong for a router with groups: the
// group's catch-all route hides that the path exists with other methods.
func allowedMethods(c echo.Context) []string {
	var methods []string
	probe := c.Echo().AcquireContext()
	defer c.Echo().ReleaseContext(probe)
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		probe.Reset(c.Request(), nil)
		c.Echo().Router().Find(method, echo.GetPath(c.Request()), probe)
		if probe.Path() != "" && exact(probe) && !strings.HasSuffix(probe.Path(), "*") && probe.Get(echo.ContextKeyHeaderAllow) == nil {
			methods = append(methods, method)
		}
		if method == http.MethodGet && len(methods) > 0 && !isEndless(c) {
			methods = append(methods, http.MethodHead) // see heads
		}
	}
	return methods
}

func writeProblem(c echo.Context, f *fault.Error) error {
	title := http.StatusText(f.Status)
	if title == "" {
		title = "Client Closed Request"
	}
	doc := map[string]any{}
	maps.Copy(doc, f.Extra)
	maps.Copy(doc, map[string]any{
		"type": "about:blank", "title": title, "status": f.Status, "detail": f.Detail,
		"instance": RequestID(c.Request().Context()), "code": f.Code,
	})
	if len(f.Fields) > 0 {
		doc["errors"] = f.Fields
	}
	h := c.Response().Header()
	for name, value := range f.Header {
		h.Set(name, value)
	}
	if f.RetryAfter > 0 {
		h.Set(echo.HeaderRetryAfter, strconv.FormatFloat(math.Ceil(f.RetryAfter.Seconds()), 'f', 0, 64))
	}
	b, err := Marshal(doc)
	if err != nil {
		return fmt.Errorf("write the problem: %w", err)
	}
	return c.Blob(f.Status, "application/problem+json", b)
}
