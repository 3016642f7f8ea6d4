package explain

import (
	"net/http"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
	"github.com/labstack/echo/v4"
)

type explainHandler struct{ *Explainer }

// Routes adds the route of explanations to g, whose requests are authenticated.
func (e *Explainer) Routes(g *echo.Group) {
	h := explainHandler{e}
	read := tenants.Require(tenants.SchedulesRead)
	g.GET("/v1/workflows/:workflow/schedules/:key/explain", h.explain, read)
}

func (h explainHandler) explain(c echo.Context) error {
	workflow, key, err := web.ScheduleName(c)
	if err != nil {
		return err
	}
	q, err := web.Query(c, "at")
	if err != nil {
		return err
	}
	if !q.Has("at") {
		return fault.Fields(fault.Field{Pointer: "/at", Code: "required", Detail: "at is required: an instant, or a wall time in the schedule's zone"})
	}
	e, err := h.Explain(c.Request().Context(), tenants.From(c), workflow, key, q.Get("at"))
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, e)
}
