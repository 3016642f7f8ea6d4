package record

import (
	"context"

	"github.com/carillonhq/carillon/tenants"
)

// Quotas returns the quotas of a tenant, or an error after a second at most: each push asks it.
type Quotas func(ctx context.Context, tenant tenants.ID) (tenants.Quotas, error)
