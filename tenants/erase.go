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
	return fault.Conflict("tenant_erasing", "tenant %q is being erased: make it again once it is gone", name)
}

// checkErasure compares what a request demands with the version of a tenant, which it locks. A repeated request goes on
// with an erasure whatever it demands: what it demanded at first held.
func checkErasure(ctx context.Context, tx pgx.Tx, name string, pre version.Precondition) error {
	var updated time.Time
	var erasing bool
	err := tx.QueryRow(ctx, `SELECT updated_at, erasing_at IS NOT NULL FROM tenant WHERE name = $1 FOR UPDATE`, name).Scan(&updated, &erasing)
	if errors.Is(err, pgx.ErrNoRows) {
		return fault.NotFound("no tenant %q", name)
	}
	if err != nil || erasing {
		return err
	}
	return pre.Check(true, Tenant{UpdatedAt: updated}.revision())
}

// erase erases a tenant if it is as the request demands. gone reports that all its rows are deleted, and the tenant with them.
func (p Platform) erase(ctx context.Context, name string, pre version.Precondition) (e Erasing, gone bool, err error) {
	var id ID
	err = pgx.BeginFunc(ctx, p.DB, func(tx pgx.Tx) error {
		if err := checkErasure(ctx, tx, name, pre); err != nil {
			return err
		}
		id, e, err = Erase(ctx, tx, name)
		return err
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
