package tenants

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
)

// OwnIssuers reads and replaces the issuers that a tenant's operator sets. Those that the platform set stay.
type OwnIssuers struct {
	DB       postgres.DB // it shows only the tenant that a context names
	Issuer   string      // the platform's own issuer, which no tenant may use
	Outbound web.Outbound
	Tenants  *Directory // whose cache is out of date after a change; may be nil
}

// IssuersParams are the body of a PUT. Issuers with SetBy platform are ignored, so that an answer of GET can be sent back.
type IssuersParams struct {
	Issuers []SetIssuer `json:"issuers" validate:"required,max=20"`
}

// SetIssuer is an issuer, and who set it: platform or tenant.
type SetIssuer struct {
	Issuer
	SetBy string `json:"set_by,omitempty" validate:"omitempty,oneof=platform tenant"`
}

// IssuersAnswer are all issuers of a tenant, the platform's first.
type IssuersAnswer struct {
	Issuers []SetIssuer `json:"issuers"`
}

const (
	setByPlatform = "platform"
	setByTenant   = "tenant"
)

// setIssuers returns all issuers of a tenant, with who set them.
func (t Tenant) setIssuers() IssuersAnswer {
	all := []SetIssuer{}
	for _, i := range t.Issuers {
		all = append(all, SetIssuer{i, setByPlatform})
	}
	for _, i := range t.Own {
		all = append(all, SetIssuer{i, setByTenant})
	}
	return IssuersAnswer{all}
}

// get reads a tenant, and locks it if lock is FOR UPDATE.
func (o OwnIssuers) get(ctx context.Context, db postgres.DB, tenant ID, lock string) (Tenant, error) {
	rows, _ := db.Query(ctx, `SELECT `+columns+` FROM tenant WHERE id = $1 `+lock, tenant) // one reports the error
	t, err := one(rows)
	if err != nil {
		return t, fmt.Errorf("read the issuers of a tenant: %w", err)
	}
	return t, nil
}

// put replaces the issuers that the tenant's operator set, if the precondition holds.
func (o OwnIssuers) put(ctx context.Context, tenant ID, p IssuersParams, pre version.Precondition) (t Tenant, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, o.DB, func(tx pgx.Tx) error {
		was, err := o.get(ctx, tx, tenant, "FOR UPDATE")
		if err != nil {
			return err
		}
		if err := pre.Check(true, was.revision()); err != nil {
			return err
		}
		own, err := o.check(p, was)
		if err != nil {
			return err
		}
		stored, err := web.Marshal(own)
		if err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, `
			UPDATE tenant
			SET own_issuers = $2, updated_at = `+postgres.Now+`
			WHERE id = $1
			RETURNING `+columns, tenant, stored) // one reports the error
		if t, err = one(rows); err != nil {
			return fmt.Errorf("write the issuers of a tenant: %w", err)
		}
		return Audit(ctx, tx, tenant, "", Change{Action: "issuers.put", Target: "admin/issuers", Before: was.setIssuers(), After: t.setIssuers()})
	})
	if err == nil {
		o.Tenants.forget(t)
	}
	return t, err
}

// check returns the issuers of a request that the tenant's operator sets. The pointers of faults count all issuers of the request.
func (o OwnIssuers) check(p IssuersParams, was Tenant) ([]Issuer, error) {
	own, all := []Issuer{}, make([]Issuer, len(p.Issuers))
	var errs []error
	for n, i := range p.Issuers {
		all[n] = i.Issuer
		ofPlatform := slices.ContainsFunc(was.Issuers, func(set Issuer) bool { return set.Name == i.Name })
		switch {
		case i.SetBy == setByPlatform && ofPlatform:
		case ofPlatform:
			errs = append(errs, fault.Invalid("/issuers/"+strconv.Itoa(n)+"/issuer", "is set by the platform, and stays as it is"))
		case i.SetBy == setByPlatform:
			errs = append(errs, fault.Invalid("/issuers/"+strconv.Itoa(n)+"/set_by", "the platform has set no such issuer"))
		default:
			own = append(own, i.Issuer)
		}
	}
	return own, fault.Join(append(errs, checkIssuers(all, o.Issuer, o.Outbound))...)
}
