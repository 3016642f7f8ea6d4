package tenants

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
)

// Erasing is a tenant that is being erased and is not gone yet.
type Erasing struct {
	Name      string    `json:"name"`
	Status    string    `json:"status"` // suspended
	ErasingAt time.Time `json:"erasing_at"`
}

// Erase suspends a tenant for good, and marks it as one whose rows are to be deleted. One that is marked stays as it is.
func Erase(ctx context.Context, db postgres.DB, name string) (id ID, e Erasing, err error) {
	err = db.QueryRow(ctx, `
		UPDATE tenant
		SET status = 'suspended', erasing_at = COALESCE(erasing_at, clock_timestamp()), updated_at = now()
		WHERE name = $1
		RETURNING id, name, status, erasing_at`, name).Scan(&id, &e.Name, &e.Status, &e.ErasingAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return id, e, fault.NotFound("no tenant %q", name)
	}
	e.ErasingAt = e.ErasingAt.UTC()
	return id, e, err
}

func erased(name string) error {
	return fault.Conflict("tenant_erasing", "tenant %q is being erased: make it again once it is gone", name)
}

func (p Platform) delete(c echo.Context) error {
	name, err := web.Param(c, "tenant")
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	id, e, err := Erase(ctx, p.DB, name)
	if err != nil {
		return err
	}
	forget := Tenant{ID: id, Name: name}
	p.Tenants.forget(forget)
	done, err := p.Empty(ctx, id)
	if err != nil {
		return err
	}
	if !done {
		return web.Answer(c, http.StatusAccepted, e)
	}
	p.Tenants.forget(forget)
	return web.Answer(c, http.StatusNoContent, nil)
}
