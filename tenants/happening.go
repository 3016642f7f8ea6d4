package tenants

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
)

// What a tenant's endpoints can be told of.
const (
	TickFailed          = "tick.failed"          // a tick failed for good; its cause is the workflow
	ScheduleQuarantined = "schedule.quarantined" // a schedule can no longer be computed; the workflow
	ScheduleAutoPaused  = "schedule.auto_paused" // a schedule was paused after failures in a row; the workflow
	EndpointDisabled    = "endpoint.disabled"    // an endpoint answered 410; the endpoint
	QuotaSoft           = "quota.soft"           // four fifths of a quota are used; the quota
	TZDataRetimed       = "tzdata.retimed"       // a newer tz database moved schedules; its version
)

// Events are the names of all of them.
func Events() []string {
	return []string{TickFailed, ScheduleQuarantined, ScheduleAutoPaused, EndpointDisabled, QuotaSoft, TZDataRetimed}
}

// Happening is something that a tenant is to be told of: one event a cause and hour, with how often it happened.
type Happening struct {
	Event    string
	Cause    string
	Schedule int64 // of which it tells; 0: of none
	Data     any   // what else the event says, as a JSON object that names no key; nil: nothing
}

// Happened notes a happening in the transaction in which it happens. A tenant of whom no endpoint wants to know is told
// nothing, and costs nothing.
func Happened(ctx context.Context, db postgres.DB, tenant ID, h Happening) error {
	var b pgx.Batch
	if err := QueueHappened(&b, tenant, h); err != nil {
		return err
	}
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("note what happened: %w", err)
	}
	return nil
}

// QueueHappened is Happened as a statement of a batch.
func QueueHappened(b *pgx.Batch, tenant ID, h Happening) error {
	var data []byte
	if h.Data != nil {
		var err error
		if data, err = json.Marshal(h.Data); err != nil {
			return fmt.Errorf("note what happened: %w", err)
		}
	}
	b.Queue(`
		INSERT INTO happening (tenant_id, event, cause, schedule_id, data)
		SELECT $1, $2, $3, NULLIF($4::bigint, 0), $5
		WHERE `+WantsToKnow("$1", "$2"), tenant, h.Event, h.Cause, h.Schedule, data)
	return nil
}

// WantsToKnow is the condition that an endpoint of a tenant is sent events of that name; both are SQL.
func WantsToKnow(tenant, event string) string {
	return `EXISTS (SELECT FROM endpoint WHERE tenant_id = ` + tenant + ` AND ` + event + ` = ANY (events) AND state <> 'disabled')`
}
