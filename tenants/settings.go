package tenants

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
)

// Settings are what a tenant's own operator sets for its schedules.
type Settings struct {
	FallbackTimezone *string // the zone of subjects without a profile; nil: none
	UpdatedAt        time.Time
}

// Revision returns the version that the entity tag of the settings names.
func (s Settings) Revision() int64 { return s.UpdatedAt.UnixMicro() }

const settingsColumns = `fallback_timezone, updated_at`

// ReadSettings returns the settings of a tenant.
func ReadSettings(ctx context.Context, db postgres.DB, tenant ID) (Settings, error) {
	return settings(db.Query(ctx, `SELECT `+settingsColumns+` FROM tenant WHERE id = $1`, tenant))
}

// LockSettings is ReadSettings, and keeps the settings as they are until the transaction ends.
func LockSettings(ctx context.Context, tx pgx.Tx, tenant ID) (Settings, error) {
	return settings(tx.Query(ctx, `SELECT `+settingsColumns+` FROM tenant WHERE id = $1 FOR UPDATE`, tenant))
}

// WriteSettings stores the settings of a tenant.
func WriteSettings(ctx context.Context, tx pgx.Tx, tenant ID, s Settings) (Settings, error) {
	return settings(tx.Query(ctx, `
		UPDATE tenant
		SET fallback_timezone = $2, updated_at = `+postgres.Now+`
		WHERE id = $1
		RETURNING `+settingsColumns, tenant, s.FallbackTimezone))
}

func settings(rows pgx.Rows, _ error) (Settings, error) { // CollectExactlyOneRow reports the error
	s, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Settings])
	if err != nil {
		return s, fmt.Errorf("settings of a tenant: %w", err)
	}
	return s, nil
}

// FallbackZone returns the zone of a tenant's subjects without a profile; empty: none.
func FallbackZone(ctx context.Context, db postgres.DB, tenant ID) (string, error) {
	s, err := ReadSettings(ctx, db, tenant)
	if err != nil || s.FallbackTimezone == nil {
		return "", err
	}
	return *s.FallbackTimezone, nil
}
