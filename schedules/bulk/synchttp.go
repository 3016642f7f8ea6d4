package bulk

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// SyncEnd is the last line of the answer to a sync: an answer without it was cut.
type SyncEnd struct {
	Summary  SyncSummary        `json:"summary"`
	Warnings []calendar.Warning `json:"warnings"`
}

// bareShare matches a share whose percent sign is not encoded, as people write it: it can mean nothing else.
var bareShare = regexp.MustCompile(`((?:^|&)max_change=[0-9.]+)%(&|$)`)

func (h handler) sync(c echo.Context) error {
	url := c.Request().URL
	url.RawQuery = bareShare.ReplaceAllString(url.RawQuery, "${1}%25${2}")
	q, err := web.Query(c, "workflow", "key_prefix", "label", "claim", "unlisted", "dry_run", "max_change", "results")
	if err != nil {
		return err
	}
	p, err := syncParams(q)
	if err != nil {
		return err
	}
	if err := ndjson(c); err != nil {
		return err
	}
	a := answer{Context: c, conn: http.NewResponseController(c.Response()), errorsOnly: q.Get("results") == "errors"}
	lines := &body{Context: c, conn: a.conn}
	sum, warnings, err := h.Sync(c.Request().Context(), tenants.From(c), tenants.Caller(c).Subject, p, lines, a.results)
	err = lines.end(err)
	if f, ok := errors.AsType[*fault.Error](err); ok && c.Response().Committed {
		return a.cut(f)
	}
	if err != nil {
		return err
	}
	return a.write(SyncEnd{sum, warnings})
}

func syncParams(q url.Values) (p SyncParams, err error) {
	errs := []error{web.NotEmpty(q, "workflow", "key_prefix", "label", "claim", "unlisted", "dry_run", "max_change", "results")}
	p = SyncParams{Workflow: q.Get("workflow"), KeyPrefix: q.Get("key_prefix"), Label: q.Get("label"), Claim: q.Get("claim"), Unlisted: q.Get("unlisted"), DryRun: q.Get("dry_run") == "true"}
	if !p.DryRun && q.Get("dry_run") != "" && q.Get("dry_run") != "false" {
		errs = append(errs, fault.Invalid("/dry_run", "%q is neither true nor false", q.Get("dry_run")))
	}
	if results := q.Get("results"); results != "" && results != "errors" && results != "all" {
		errs = append(errs, fault.Invalid("/results", "%q is neither all nor errors", results))
	}
	if q.Get("max_change") != "" {
		var limitErr error
		p.MaxChange, limitErr = ParseChangeLimit(q.Get("max_change"))
		errs = append(errs, limitErr)
	}
	return p, fault.Join(append(errs, p.check())...)
}
