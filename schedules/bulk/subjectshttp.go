package bulk

import (
	"errors"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

func (h handler) upsertSubjects(c echo.Context) error {
	a, err := begin(c)
	if err != nil {
		return err
	}
	_ = a.conn.EnableFullDuplex() // the recorder of a test cannot: it reads the body before it answers
	lines := &body{Context: c, conn: a.conn}
	sum, err := h.UpsertSubjects(c.Request().Context(), tenants.From(c), tenants.Caller(c).Subject, lines, func(all []SubjectResult) error {
		shown := make([]any, 0, len(all))
		for i := range all {
			if !a.errorsOnly || all[i].Result == schedules.Failed {
				shown = append(shown, &all[i])
			}
		}
		return a.write(shown...)
	})
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
