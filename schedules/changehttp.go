package schedules

import (
	"bytes"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

func (h handler) put(c echo.Context) error {
	workflow, key, err := web.ScheduleName(c)
	if err != nil {
		return err
	}
	if _, err := web.Query(c); err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	p, err := web.Body[Params](c)
	if err != nil {
		return err
	}
	if raw, err := web.Bytes(c); err == nil && p.Note == nil && bytes.Contains(raw, []byte(`"note"`)) {
		p.Noteless = Patch(raw).removes("note")
	}
	s, made, err := h.Put(c.Request().Context(), policy.Name{Tenant: tenants.From(c), Workflow: workflow, Key: key}, p, tenants.Caller(c).Subject, pre)
	if err != nil {
		return err
	}
	tag(c, s)
	return web.Answer(c, web.PutStatus(made), s)
}

func (h handler) patch(c echo.Context) error {
	workflow, key, by, err := changer(c)
	if err != nil {
		return err
	}
	body, err := web.RawBody(c)
	if err != nil {
		return err
	}
	patch, err := ReadPatch(body)
	if err != nil {
		return err
	}
	s, err := h.Patch(c.Request().Context(), policy.Name{Tenant: tenants.From(c), Workflow: workflow, Key: key}, patch, by.By, by.Pre)
	if err != nil {
		return err
	}
	tag(c, s)
	return web.Answer(c, http.StatusOK, s)
}

func tag(c echo.Context, s Schedule) { web.Tag(c, int64(s.Version)) }

func (h handler) delete(c echo.Context) error {
	workflow, key, by, err := changer(c)
	if err != nil {
		return err
	}
	if err := h.Delete(c.Request().Context(), tenants.From(c), workflow, key, by); err != nil {
		return err
	}
	return web.Answer(c, http.StatusNoContent, nil)
}

func changer(c echo.Context) (workflow, key string, by Changer, err error) {
	if workflow, key, err = web.ScheduleName(c); err != nil {
		return
	}
	if _, err = web.Query(c); err != nil {
		return
	}
	if by.Pre, err = web.Preconditions(c); err != nil {
		return
	}
	by.By = tenants.Caller(c).Subject
	return
}

func (h handler) pause(c echo.Context) error {
	workflow, key, by, err := changer(c)
	if err != nil {
		return err
	}
	p, _, err := web.OptionalBody[PauseParams](c)
	if err != nil {
		return err
	}
	if by.Once, err = once.Of(c); err != nil {
		return err
	}
	s, replayed, err := h.Pause(c.Request().Context(), tenants.From(c), workflow, key, p, by)
	if err != nil {
		return err
	}
	return answer(c, s, replayed)
}

// answer writes a whole schedule under its ETag.
func answer(c echo.Context, s Schedule, replayed bool) error {
	tag(c, s)
	return once.Answer(c, http.StatusOK, s, replayed)
}

func (h handler) resume(c echo.Context) error {
	workflow, key, by, err := changer(c)
	if err != nil {
		return err
	}
	p, _, err := web.OptionalBody[ResumeParams](c)
	if err != nil {
		return err
	}
	if by.Once, err = once.Of(c); err != nil {
		return err
	}
	s, replayed, err := h.Resume(c.Request().Context(), tenants.From(c), workflow, key, p, by)
	if err != nil {
		return err
	}
	return answer(c, s, replayed)
}

func (h handler) skip(c echo.Context) error {
	workflow, key, by, err := changer(c)
	if err != nil {
		return err
	}
	p, err := web.Body[SkipParams](c)
	if err != nil {
		return err
	}
	if by.Once, err = once.Of(c); err != nil {
		return err
	}
	s, replayed, err := h.Skip(c.Request().Context(), tenants.From(c), workflow, key, p, by)
	if err != nil {
		return err
	}
	return answer(c, s, replayed)
}

func (h handler) unskip(c echo.Context) error {
	workflow, key, by, err := changer(c)
	if err != nil {
		return err
	}
	s, replayed, err := h.Unskip(c.Request().Context(), tenants.From(c), workflow, key, by)
	if err != nil {
		return err
	}
	return answer(c, s, replayed)
}

func (h handler) reschedule(c echo.Context) error {
	workflow, key, by, err := changer(c)
	if err != nil {
		return err
	}
	p, err := web.Body[RescheduleParams](c)
	if err != nil {
		return err
	}
	if by.Once, err = once.Of(c); err != nil {
		return err
	}
	s, replayed, err := h.Reschedule(c.Request().Context(), tenants.From(c), workflow, key, p, by)
	if err != nil {
		return err
	}
	return answer(c, s, replayed)
}
