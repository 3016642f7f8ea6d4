package tenants

import (
	"context"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
)

// tellBefore is how long before its end a tenant is told that an API key expires. It is told of a key with a shorter life at once.
const tellBefore = 7 * 24 * time.Hour

// TellExpiring stores a happening for each API key that expires within a week, up to most keys of all tenants, and returns how many keys
// there were. Each key is told once, even if no endpoint receives the event at that time. db shows the rows of all tenants.
func TellExpiring(ctx context.Context, db postgres.DB, most int) (n int64, err error) {
	done, err := db.Exec(ctx, `
		WITH expiring AS (
			SELECT tenant_id, id
			FROM api_key
			WHERE expires_at < (SELECT `+postgres.Now+`) + $1::interval AND expires_at IS NOT NULL AND told_at IS NULL
			ORDER BY expires_at
			LIMIT $2
			FOR UPDATE SKIP LOCKED
		), told AS (
			UPDATE api_key k
			SET told_at = `+postgres.Now+`
			FROM expiring e
			WHERE k.tenant_id = e.tenant_id AND k.id = e.id
			RETURNING k.tenant_id, k.id, k.name, k.expires_at
		), happened AS (
			INSERT INTO notice_delta (tenant_id, event, cause, data)
			SELECT k.tenant_id, $3, k.id, json_build_object('api_key', k.id, 'name', k.name, 'expires_at', to_char(k.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
			FROM told k
			WHERE k.expires_at > (SELECT `+postgres.Now+`) AND `+Subscribed("k.tenant_id", "$3")+`
		)
		SELECT FROM told`, tellBefore, most, APIKeyExpiring)
	if err != nil {
		return 0, fmt.Errorf("tell tenants of API keys that expire: %w", err)
	}
	return done.RowsAffected(), nil
}
