package schedules

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/tenants"
)

// SettingsParams are the settings that a tenant's operator sets. A null zone is none.
type SettingsParams struct {
	FallbackTimezone *string `json:"fallback_timezone,omitempty" null:"yes"`
}

// Settings are what a tenant's operator has set, and the operation that a change began, if any.
type Settings struct {
	FallbackTimezone *string            `json:"fallback_timezone"` // the zone of subjects without a profile; null: none
	Operation        *operations.Answer `json:"operation,omitempty"`

	Revision int64 `json:"-"` // of the entity tag
}

func shownSettings(stored tenants.Settings) Settings {
	return Settings{FallbackTimezone: stored.FallbackTimezone, Revision: stored.Revision()}
}

// Settings returns the settings of a tenant.
func (s *Schedules) Settings(ctx context.Context, tenant tenants.ID) (Settings, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	stored, err := tenants.ReadSettings(ctx, s.Pool, tenant)
	return shownSettings(stored), err
}

// PatchSettings applies a merge patch (RFC 7396) to the settings of a tenant. Another fallback zone begins an operation that retimes the
// schedules that need it. Without any fallback zone they keep the zone that they have.
func (s *Schedules) PatchSettings(ctx context.Context, tenant tenants.ID, patch []byte, pre version.Precondition) (out Settings, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		was, err := tenants.LockSettings(ctx, tx, tenant)
		if err != nil {
			return err
		}
		if err := pre.Check(true, was.Revision()); err != nil {
			return err
		}
		p, err := web.Merged[SettingsParams, SettingsParams](SettingsParams{FallbackTimezone: was.FallbackTimezone}, patch)
		if err != nil {
			return err
		}
		if p.FallbackTimezone != nil {
			if err := CheckZone("/fallback_timezone", *p.FallbackTimezone); err != nil {
				return err
			}
		}
		if text(p.FallbackTimezone) == text(was.FallbackTimezone) {
			out = shownSettings(was)
			return nil
		}
		is, err := tenants.WriteSettings(ctx, tx, tenant, tenants.Settings{FallbackTimezone: p.FallbackTimezone})
		if err != nil {
			return err
		}
		out = shownSettings(is)
		change := tenants.Change{Action: "settings.patch", Target: "admin/settings", Before: shownSettings(was), After: out}
		if err := tenants.Audit(ctx, tx, tenant, "", change); err != nil {
			return err
		}
		zone := text(is.FallbackTimezone)
		if zone == "" {
			return nil
		}
		op, err := s.Operations.Begin(ctx, tx, operations.Request{Tenant: tenant, Kind: fallbackKind, Params: fallbackChange{Timezone: zone}, By: tenants.Actor(ctx)})
		out.Operation = &op
		return err
	})
	return out, err
}
