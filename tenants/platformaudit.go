package tenants

import (
	"context"
	"fmt"

	"github.com/carillonhq/carillon/internal/postgres"
)

// auditPlatform records a change by the operator of the platform, where it stays when the tenant is erased. db is the transaction of the
// change.
func auditPlatform(ctx context.Context, db postgres.DB, c Change) error {
	before, err := auditJSON(c.Before)
	if err != nil {
		return err
	}
	after, err := auditJSON(c.After)
	if err != nil {
		return err
	}
	origin := OriginOf(ctx)
	_, err = db.Exec(ctx, `
		INSERT INTO platform_audit (actor, request, remote, through, action, target, before, after)
		VALUES ($1, $2, $3, $4, $5, $6, $7::text::json, $8::text::json)`,
		Actor(ctx), origin.Request, origin.Remote, origin.Through, c.Action, c.Target, before, after)
	if err != nil {
		return fmt.Errorf("write the audit of the platform: %w", err)
	}
	return nil
}
