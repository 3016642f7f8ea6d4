package push

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/message"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// Trial is the result of a test tick.
type Trial struct {
	WebhookID string  `json:"webhook_id"`
	Status    *int32  `json:"status"` // of the endpoint's answer; null where there was none
	TookMS    int64   `json:"took_ms"`
	Error     *string `json:"error"` // why a tick like this would have failed; null where it would have succeeded
}

// trialPrefix begins the tick_id of a test tick, and of no other.
const trialPrefix = "test_"

// TryEndpoint sends one signed test tick to an endpoint, whatever its state, and returns the result within LongestAnswer. The test
// tick is not retried. It changes neither the endpoint's state nor its circuit breaker.
func (es *Endpoints) TryEndpoint(ctx context.Context, tenant tenants.ID, name string) (Trial, error) {
	e, err := es.Pushable(ctx, tenant, name)
	if err != nil {
		return Trial{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, LongestAnswer)
	defer cancel()
	started := time.Now()
	one := &Delivery{Tenant: tenant, id: trialPrefix + rand.Text(), Timeout: LongestAnswer, Endpoint: e}
	sent := trialBody(one.id, e.Batch, started.UTC())
	trial := Trial{WebhookID: sent.id}
	r, err := es.requests.post(ctx, e, sent, started)
	if own, ours := errors.AsType[*ownError](err); ours && !errors.Is(err, errNoSecret) {
		return Trial{}, notSent(own.error)
	}
	if err == nil {
		o := judge([]*Delivery{one}, r, started)[0]
		trial.Status, trial.Error = o.Status, o.Err
	} else {
		trial.Error = new(trialError(err))
	}
	trial.TookMS = time.Since(started).Milliseconds()
	return trial, nil
}

// TryEndpointOnce does what TryEndpoint does, at most once for each Idempotency-Key. A process that dies holds the key for half a minute.
func (es *Endpoints) TryEndpointOnce(ctx context.Context, tenant tenants.ID, name string, request once.Request) (t Trial, replayed bool, err error) {
	return once.Apart(ctx, es.api, int32(tenant), request, 2*LongestAnswer, func() (Trial, error) {
		return es.TryEndpoint(ctx, tenant, name)
	})
}

// notSent returns the fault of a test tick that a failure of ours kept from being sent. The cause is only logged.
func notSent(cause error) error {
	f := fault.Unavailable("unavailable", "the test tick could not be sent just now; try again")
	f.RetryAfter = time.Second
	return fmt.Errorf("%w (%v)", f, cause)
}

func trialError(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("the endpoint did not answer within %s", LongestAnswer)
	}
	return *finish.ErrorText(err.Error())
}

// Pushable reads an endpoint for a push; a fault, 404, if there is none.
func (es *Endpoints) Pushable(ctx context.Context, tenant tenants.ID, name string) (*Target, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	e := Target{Tenant: tenant, Name: name}
	var headers []byte
	var secrets [][]byte
	err := es.of(ctx).QueryRow(ctx, `
		SELECT url, batch, headers, state, secrets
		FROM endpoint
		WHERE tenant_id = $1 AND name = $2`, tenant, name).Scan(&e.URL, &e.Batch, &headers, &e.State, &secrets)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, noEndpoint(name)
	}
	if err != nil {
		return nil, fmt.Errorf("read endpoint: %w", err)
	}
	return es.WithOpened(e, headers, secrets), nil
}

// trialBody returns the content of a request like any other, with a tick of a schedule that does not exist. An endpoint that takes batches
// gets a batch.
func trialBody(tickID string, batch int, now time.Time) envelope {
	at := now.Truncate(time.Second)
	when := message.AppendTime([]byte(`"timestamp":`), at)
	when = append(when, `,"local_time":`...)
	when = message.AppendTime(when, at)
	when = append(when, `,"timezone":"UTC","upcoming":[]`...)
	m := message.Message{
		Tick: &record.Tick{NominalAt: at, FiredAt: now, Version: 1, Attempt: 1, Cause: record.Manual, DST: calendar.DSTNone},
		ID:   tickID, Schedule: "test", Workflow: "test", Content: record.Content{Key: "test"}, MaxAttempts: 1, Timeout: LongestAnswer, Token: "test", When: when,
	}
	if batch == 1 {
		return envelope{tickID, m.AppendJSON(nil), m.Context()}
	}
	return envelope{"batch_" + rand.Text(), append(m.AppendJSON([]byte(`{"ticks":[`)), `]}`...), m.Context()}
}

// of returns where to query: the API's pool, which shows one tenant's rows, if ctx carries a tenant; else the engine's.
func (es *Endpoints) of(ctx context.Context) postgres.DB {
	if postgres.HasTenant(ctx) {
		return es.api
	}
	return es.pool
}
