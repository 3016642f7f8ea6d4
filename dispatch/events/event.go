package events

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// Event is the body of a request that tells an endpoint that something happened, once or several times. The request is signed like a
// tick's, with ID as its webhook-id. A retry has the same ID.
type Event struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"` // when it happened last
	FirstAt   time.Time       `json:"first_at"`  // when it first happened, since the last event of this cause
	Count     int64           `json:"count"`     // how often it happened since then
	Cause     string          `json:"cause"`     // what caused it; empty: one of the causes beyond mostCauses
	Data      json.RawMessage `json:"data"`
}

// event is a row of event.
type event struct {
	TenantID   tenants.ID
	Endpoint   string
	ID         string
	Event      string
	Cause      string
	N          int64
	FirstAt    time.Time
	LastAt     time.Time
	ScheduleID *int64
	NominalAt  *time.Time
	Seq        *int32
	Data       []byte
	MadeAt     time.Time
	Attempt    int16
}

const (
	eventEvery   = time.Second
	eventWait    = 30 * time.Second // while its endpoint is held
	eventClaim   = time.Minute      // until another process may send an event that one has claimed
	eventKept    = 24 * time.Hour   // after this time an event is dropped
	eventsAtOnce = 32               // sent at a time by this process, of one tenant one
)

// sendEvents sends due events until ctx ends, and returns when no request is in flight. It sends one event of a tenant at a time, so that
// a slow endpoint delays no other tenant.
func (es *Events) sendEvents(ctx context.Context) {
	var sending sync.WaitGroup
	defer sending.Wait()
	var mu sync.Mutex
	busy := map[tenants.ID]bool{}
	loop.Every(ctx, es.log, eventEvery, "send events", func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		found, err := es.ClaimEvents(ctx, busy, eventsAtOnce-len(busy))
		if err != nil {
			return err
		}
		for _, e := range found {
			busy[e.TenantID] = true
			sending.Go(func() {
				if err := es.sendEvent(ctx, e); err != nil && ctx.Err() == nil {
					es.log.Error("cannot send an event", "tenant", e.TenantID, "endpoint", e.Endpoint, "event", e.ID, "error", err)
				}
				mu.Lock()
				defer mu.Unlock()
				delete(busy, e.TenantID)
			})
		}
		return nil
	})
}

// ClaimEvents claims the oldest due event of each of up to n tenants, except the busy ones.
func (es *Events) ClaimEvents(ctx context.Context, busy map[tenants.ID]bool, n int) ([]*event, error) {
	if n <= 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	from, first, err := es.dueEvents.Look(ctx, es.pool, es.horizon)
	if err != nil || first.IsZero() {
		return nil, err
	}
	if began := time.Now(); es.putOffs.Due(began) {
		if err := es.putOffEvents(ctx, from); err != nil {
			return nil, err
		}
		es.putOffs.Ended(began, time.Now())
	}
	but := make([]int32, 0, len(busy))
	for id := range busy {
		but = append(but, int32(id))
	}
	rows, _ := es.pool.Query(ctx, `
		UPDATE event
		SET due_at = `+postgres.Now+` + $1::interval, attempt = attempt + 1
		WHERE (tenant_id, endpoint, id) IN (
			SELECT e.tenant_id, e.endpoint, e.id
			FROM (
				SELECT DISTINCT ON (o.tenant_id) o.tenant_id, o.endpoint, o.id, o.due_at
				FROM event o
				JOIN tenant t ON t.id = o.tenant_id AND t.status = 'active'
				WHERE o.due_at BETWEEN $4 AND (SELECT `+postgres.Now+`) AND o.tenant_id <> ALL ($2)
				ORDER BY o.tenant_id, o.due_at, o.endpoint, o.id
			) first
			JOIN event e USING (tenant_id, endpoint, id)
			WHERE e.due_at <= (SELECT `+postgres.Now+`)
			ORDER BY first.due_at
			LIMIT $3
			FOR UPDATE OF e SKIP LOCKED)
		RETURNING tenant_id, endpoint, id, event, cause, n, first_at, last_at, schedule_id, nominal_at, seq, data, made_at, attempt`,
		eventClaim, but, n, from) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[event])
	if err != nil {
		return nil, fmt.Errorf("claim events: %w", err)
	}
	return found, nil
}

const mostPutOff = 50 // events at once

// putOffEvents puts off the first due events of tenants that are not active, so that looks for due events do not read them each time.
func (es *Events) putOffEvents(ctx context.Context, from time.Time) error {
	for {
		done, err := es.pool.Exec(ctx, `
			WITH first AS MATERIALIZED (
				SELECT ctid AS place, tenant_id
				FROM event
				WHERE due_at BETWEEN $2 AND (SELECT `+postgres.Now+`)
				ORDER BY due_at
				LIMIT $3
			)
			UPDATE event
			SET due_at = `+postgres.Now+` + $1::interval
			WHERE ctid = ANY (ARRAY (SELECT place FROM first f WHERE (SELECT status FROM tenant WHERE id = f.tenant_id) <> 'active'))`,
			suspendedGap, from, mostPutOff)
		if err != nil {
			return fmt.Errorf("put off events: %w", err)
		}
		if done.RowsAffected() < mostPutOff {
			return nil
		}
	}
}

// sendEvent sends one event. It deletes an event that was sent or is dropped, and puts off the others.
func (es *Events) sendEvent(ctx context.Context, e *event) error {
	to, err := es.push.Endpoints.Pushable(ctx, e.TenantID, e.Endpoint)
	if fault.IsNotFound(err) {
		return es.endEvent(ctx, e, nil)
	}
	if err != nil {
		return err
	}
	now := time.Now()
	switch {
	case to.State == push.DisabledEndpoint || now.Sub(e.MadeAt) > eventKept:
		return es.endEvent(ctx, e, nil)
	case to.State == push.HeldEndpoint || len(to.Secrets) == 0:
		return es.putOff(ctx, e, eventWait)
	}
	body, err := es.eventBody(ctx, e)
	if err != nil {
		return err
	}
	sent, cancel := context.WithTimeout(ctx, push.LongestAnswer)
	defer cancel()
	r, err := es.push.Post(sent, to, e.ID, body, now)
	switch {
	case err != nil && ctx.Err() != nil: // this process stops: another one sends the event again
		return nil
	case err != nil:
		return es.putOff(ctx, e, finish.Backoff(e.Attempt, rand.Int64N))
	case r.Good():
		return es.endEvent(ctx, e, nil)
	case r.Gone():
		return es.endEvent(ctx, e, to)
	}
	return es.putOff(ctx, e, max(finish.Backoff(e.Attempt, rand.Int64N), r.Wait))
}

// endEvent deletes an event. gone is the endpoint if it answered that it wants no more requests; endEvent disables it.
func (es *Events) endEvent(ctx context.Context, e *event, gone *push.Target) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), postgres.QueryTimeout)
	defer cancel()
	var b pgx.Batch
	b.Queue(`DELETE FROM event WHERE tenant_id = $1 AND endpoint = $2 AND id = $3`, e.TenantID, e.Endpoint, e.ID)
	if gone != nil {
		push.QueueDisable(&b, gone)
	}
	if err := es.pool.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("end an event: %w", err)
	}
	return nil
}

// putOff makes an event due again after wait.
func (es *Events) putOff(ctx context.Context, e *event, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	_, err := es.pool.Exec(ctx, `UPDATE event SET due_at = `+postgres.Now+` + $4::interval WHERE tenant_id = $1 AND endpoint = $2 AND id = $3`,
		e.TenantID, e.Endpoint, e.ID, wait)
	if err != nil {
		return fmt.Errorf("put an event off: %w", err)
	}
	return nil
}

// eventBody returns the JSON of an event.
func (es *Events) eventBody(ctx context.Context, e *event) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	data := map[string]any{}
	if e.Data != nil {
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return nil, fmt.Errorf("data of event %s: %w", e.ID, err)
		}
	}
	if e.ScheduleID != nil {
		of, err := es.describe(ctx, e)
		if err != nil {
			return nil, err
		}
		data["schedule_id"], data["workflow"], data["key"] = es.ids.Schedule(*e.ScheduleID), of.Workflow, of.Key
		if e.NominalAt != nil && e.Seq != nil {
			at := e.NominalAt.UTC()
			data["tick_id"], data["timestamp"] = es.ids.Tick(ident.TickKey{Schedule: *e.ScheduleID, At: at, Seq: *e.Seq}), at
			data["attempt"], data["error"] = of.Attempt, of.Error
		}
	}
	text, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	cause := e.Cause
	if e.Event == tenants.WorkflowRecovered {
		cause, _, _ = strings.Cut(cause, "/") // what follows the workflow is the condition that has ended
	}
	return json.Marshal(Event{e.ID, e.Event, e.LastAt.UTC(), e.FirstAt.UTC(), e.N, cause, text})
}

// newDueEvents returns the low end of the index of events by their due time.
func newDueEvents() cluster.LowEnd {
	return cluster.LowEnd{
		Index:  "event_due",
		First:  `SELECT (SELECT due_at FROM event WHERE due_at <= (SELECT ` + postgres.Now + `) AND due_at >= $1 ORDER BY due_at LIMIT 1)`,
		Below:  `SELECT (SELECT due_at FROM event WHERE due_at >= $1 AND due_at < $2 ORDER BY due_at LIMIT 1)`,
		Search: cluster.Search{Every: cluster.SeldomSearch},
	}
}
