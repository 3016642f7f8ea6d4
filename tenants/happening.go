package tenants

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
)

// The events that a tenant's endpoints can receive.
const (
	TickFailed          = "tick.failed"          // a tick failed for good; the cause is the workflow
	ScheduleQuarantined = "schedule.quarantined" // a schedule cannot be computed any more; the cause is the workflow
	ScheduleCompleted   = "schedule.completed"   // schedules have no nominal time left; the cause is the workflow
	ScheduleAutoPaused  = "schedule.auto_paused" // a schedule was paused after several failures; the cause is the workflow
	EndpointDisabled    = "endpoint.disabled"    // an endpoint answered 410; the cause is the endpoint
	QuotaSoft           = "quota.soft"           // four fifths of a quota are used; the cause is the quota
	TZDataRetimed       = "tzdata.retimed"       // a newer tz database moved schedules; the cause is its version
	OperationEnded      = "operation.ended"      // an operation has ended; the cause is its id
	WorkflowLate        = "workflow.late"        // ticks are handed out or end later than expected; the cause is the workflow
	WorkflowSilent      = "workflow.silent"      // ticks became due and none succeeded; the cause is the workflow
	WorkflowNoWorkers   = "workflow.no_workers"  // ticks wait and no worker polls for them; the cause is the workflow
	WorkflowRecovered   = "workflow.recovered"   // one of these three is over; the cause is the workflow
	APIKeyExpiring      = "api_key.expiring"     // an API key expires within a week; the cause is the id of the key
)

// Events returns the names of all events.
func Events() []string {
	return []string{
		TickFailed, ScheduleQuarantined, ScheduleAutoPaused, ScheduleCompleted, EndpointDisabled, QuotaSoft, TZDataRetimed, OperationEnded,
		WorkflowLate, WorkflowSilent, WorkflowNoWorkers, WorkflowRecovered, APIKeyExpiring,
	}
}

// Happening is one occurrence of an event. The occurrences of an hour with the same cause become one event with a count.
type Happening struct {
	Event    string
	Cause    string
	Schedule int64 // the schedule concerned; 0: none
	Data     any   // further data of the event, as a JSON object without schedule keys; nil: none
}

// Happened stores a happening in the transaction that causes it. It stores nothing if no endpoint of the tenant receives the event.
func Happened(ctx context.Context, db postgres.DB, tenant ID, h Happening) error {
	var b pgx.Batch
	if err := QueueHappened(&b, tenant, h); err != nil {
		return err
	}
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("store a happening: %w", err)
	}
	return nil
}

// QueueHappened is Happened that adds its statement to a batch.
func QueueHappened(b *pgx.Batch, tenant ID, h Happening) error {
	var data []byte
	if h.Data != nil {
		var err error
		if data, err = json.Marshal(h.Data); err != nil {
			return fmt.Errorf("store a happening: %w", err)
		}
	}
	b.Queue(`
		INSERT INTO notice_delta (tenant_id, event, cause, schedule_id, data)
		SELECT $1, $2, $3, NULLIF($4::bigint, 0), $5
		WHERE `+Subscribed("$1", "$2"), tenant, h.Event, h.Cause, h.Schedule, data)
	return nil
}

// Subscribed returns an SQL condition: an enabled endpoint of the tenant receives the event. Both arguments are SQL expressions.
func Subscribed(tenant, event string) string {
	return `EXISTS (SELECT FROM endpoint WHERE tenant_id = ` + tenant + ` AND ` + event + ` = ANY (events) AND state <> 'disabled')`
}

// SubscribedEach is Subscribed for a statement about many tenants: it looks at the endpoints of each. A semi-join would read those of all.
func SubscribedEach(tenant, event string) string {
	return `(SELECT true FROM endpoint WHERE tenant_id = ` + tenant + ` AND ` + event + ` = ANY (events) AND state <> 'disabled' LIMIT 1)`
}
