package bulk

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

// export streams a line a schedule. After the first part an error cuts the connection, so that no client takes a part for the whole.
func (h handler) export(c echo.Context) error {
	q, err := web.Query(c, "workflow")
	if err != nil {
		return err
	}
	if err := web.NotEmpty(q, "workflow"); err != nil {
		return err
	}
	return stream(c, func(write func([][]byte) error) error {
		return h.schedules.Export(c.Request().Context(), tenants.From(c), schedules.Filter{Workflow: q.Get("workflow")}, write)
	})
}

// stream answers with the lines that export writes.
func stream(c echo.Context, export func(write func(lines [][]byte) error) error) error {
	conn := http.NewResponseController(c.Response())
	err := export(func(lines [][]byte) error {
		if !c.Response().Committed {
			c.Response().Header().Set(echo.HeaderContentType, ndjsonType)
			c.Response().WriteHeader(http.StatusOK)
		}
		_ = conn.SetWriteDeadline(time.Now().Add(pause)) // the recorder of a test has none
		for _, line := range lines {
			if _, err := c.Response().Write(append(line, '\n')); err != nil {
				return fmt.Errorf("write the export: %w", err)
			}
		}
		c.Response().Flush()
		return nil
	})
	if err != nil && c.Response().Committed {
		web.Note(c, slog.String("cut", err.Error()))
		panic(http.ErrAbortHandler)
	}
	return err
}

// exportSubjects streams a line a profile.
func (h handler) exportSubjects(c echo.Context) error {
	return stream(c, func(write func([][]byte) error) error {
		return h.subjects.Export(c.Request().Context(), tenants.From(c), write)
	})
}
