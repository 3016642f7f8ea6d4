package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// issuerEntry holds the names of the tenants that have an issuer.
type issuerEntry struct {
	tenants []string
	at      time.Time
}

// mostWithIssuer limits the tenants of one issuer that names its claims otherwise.
const mostWithIssuer = 1000

// withIssuer returns the names of the tenants that have the issuer of that name. Anyone can send a token with such a name, so the look-up
// of one that is not cached is rate limited, as that of a tenant's name is.
func (d *Directory) withIssuer(ctx context.Context, issuer string) (names []string, err error) {
	if len(issuer) > maxIssuerName {
		return nil, nil
	}
	now := d.now()
	if e, ok := d.names.byIssuer.Get(issuer); ok && now.Sub(e.at) < cacheFor {
		return e.tenants, nil
	}
	sought, err := json.Marshal([]Issuer{{Name: issuer}})
	if err != nil {
		return nil, err
	}
	err = d.lookups.run(ctx, nameRate, func() error {
		ctx, cancel := context.WithTimeout(ctx, d.patience)
		defer cancel()
		rows, _ := d.db.Query(ctx, `
			SELECT name
			FROM tenant
			WHERE issuers || own_issuers @> $1
			ORDER BY id
			LIMIT $2`, sought, mostWithIssuer) // CollectRows reports the error
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("look for the tenants of an issuer: %w", err)
		}
		return nil
	})
	if err == nil {
		d.names.byIssuer.Add(issuer, issuerEntry{names, now})
	}
	return names, err
}
