package tenants

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
)

// Erasing is a tenant whose erasure is in progress.
type Erasing struct {
	Name      string    `json:"name"`
	Status    string    `json:"status"` // suspended
	ErasingAt time.Time `json:"erasing_at"`
}

// Erase suspends a tenant for good and marks it for the deletion of its rows. It does not change a tenant that is already marked.
func Erase(ctx context.Context, db postgres.DB, name string) (id ID, e Erasing, err error) {
	err = db.QueryRow(ctx, `
		UPDATE tenant
		SET status = 'suspended', erasing_at = COALESCE(erasing_at, `+postgres.Now+`), updated_at = `+postgres.Now+`
		WHERE name = $1
		RETURNING id, name, status, erasing_at`, name).Scan(&id, &e.Name, &e.Status, &e.ErasingAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return id, e, fault.NotFound("no tenant %q", name)
	}
	e.ErasingAt = e.ErasingAt.UTC()
	return id, e, err
}

func erased(name string) error {
	return fault.Conflict("tenant_erasing", "tenant %q is being erased: create it again after that", name)
}

// checkErasure locks a tenant and checks the precondition of its erasure. begun reports that the tenant is already being erased. Nothing
// is checked then, because the precondition of the first request held.
func checkErasure(ctx context.Context, tx pgx.Tx, name string, pre version.Precondition) (begun bool, err error) {
	var updated time.Time
	err = tx.QueryRow(ctx, `SELECT updated_at, erasing_at IS NOT NULL FROM tenant WHERE name = $1 FOR UPDATE`, name).Scan(&updated, &begun)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, fault.NotFound("no tenant %q", name)
	}
	if err != nil || begun {
		return begun, err
	}
	return false, pre.Check(true, Tenant{UpdatedAt: updated}.revision())
}

// erase erases a tenant if the precondition holds. gone reports that the tenant and all its rows are deleted.
func (p Platform) erase(ctx context.Context, name string, pre version.Precondition) (e Erasing, gone bool, err error) {
	var id ID
	err = pgx.BeginFunc(ctx, p.DB, func(tx pgx.Tx) error {
		begun, err := checkErasure(ctx, tx, name, pre)
		if err != nil {
			return err
		}
		if id, e, err = Erase(ctx, tx, name); err != nil || begun {
			return err
		}
		return auditPlatform(ctx, tx, Change{Action: "tenant.erase", Target: "platform/tenants/" + name, After: e})
	})
	if err != nil {
		return e, false, err
	}
	forget := Tenant{ID: id, Name: name}
	p.Tenants.forget(forget)
	gone, err = p.Empty(ctx, id)
	if err == nil && gone {
		p.Tenants.forget(forget)
	}
	return e, gone, err
}
