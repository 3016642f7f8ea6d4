package schedules

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// export streams a line a schedule. Once a part is out an error cuts the connection, so that no part is taken for the
// whole.
func (h handler) export(c echo.Context) error {
	q, err := web.Query(c, "workflow")
	if err != nil {
		return err
	}
	if err := web.NotEmpty(q, "workflow"); err != nil {
		return err
	}
	conn := http.NewResponseController(c.Response())
	err = h.Export(c.Request().Context(), tenants.From(c), Filter{Workflow: q.Get("workflow")}, func(lines [][]byte) error {
		if !c.Response().Committed {
			c.Response().Header().Set(echo.HeaderContentType, bulkMedia)
			c.Response().WriteHeader(http.StatusOK)
		}
		_ = conn.SetWriteDeadline(time.Now().Add(bulkPause)) // a recorder has none
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
