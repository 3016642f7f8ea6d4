package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillonhq/carillon/dispatch/rate"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Target is an endpoint to push to, with its opened headers and secrets.
type Target struct {
	Tenant  tenants.ID
	Name    string
	URL     string
	Batch   int
	Rate    rate.Rate // of 0 a second: no limit
	headers map[string]string
	State   string
	Secrets [][]byte // those that can be opened, the newest first; without one nothing can be sent
}

// WithOpened returns the endpoint e with its stored headers and secrets opened. If a header cannot be opened, the endpoint gets no
// secrets, so that nothing is sent to it.
func (es *Endpoints) WithOpened(e Target, headers []byte, secrets [][]byte) *Target {
	e.Secrets = es.openSecrets(e.Tenant, e.Name, secrets)
	var err error
	if e.headers, err = openValues(es.keyset, e.Tenant, e.Name, headers); err != nil {
		e.Secrets = nil
		es.logUnreadable(e.Tenant, e.Name, err)
	}
	return &e
}

// EndpointParams are the body of a PUT of an endpoint.
type EndpointParams struct {
	URL     string            `json:"url"`
	Batch   *int16            `json:"batch,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Rate    *policy.Rate      `json:"rate,omitempty" null:"yes"`
	Events  []string          `json:"events,omitempty"`
	State   string            `json:"state,omitempty"`

	Pre version.Precondition `json:"-"`
}

// Endpoint is a signed webhook to which ticks are pushed. Secret is set only in the answers to its creation and to a rotation.
type Endpoint struct {
	Name      string            `json:"name"`
	URL       string            `json:"url"`
	Batch     int16             `json:"batch"`
	Headers   map[string]string `json:"headers"`
	Rate      *policy.Rate      `json:"rate,omitempty"` // nil: no limit
	Events    []string          `json:"events"`
	State     string            `json:"state"`
	Secret    string            `json:"secret,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// revision returns the version in the endpoint's entity tag: the microsecond of its last change.
func (e Endpoint) revision() int64 { return e.UpdatedAt.UnixMicro() }

const (
	enabledEndpoint  = "enabled"
	HeldEndpoint     = "held"
	DisabledEndpoint = "disabled"
	endpointColumns  = `name, url, batch, headers, events, rate, ramp_s, state, created_at, updated_at`
)

// scanEndpoint reads a row of endpointColumns, without the values of headers.
func scanEndpoint(row pgx.CollectableRow) (e Endpoint, err error) {
	var headers []byte
	var perSecond, ramp *int32
	if err := row.Scan(&e.Name, &e.URL, &e.Batch, &headers, &e.Events, &perSecond, &ramp, &e.State, &e.CreatedAt, &e.UpdatedAt); err != nil {
		return e, err
	}
	e.Rate = policy.RateOf(perSecond, ramp)
	e.CreatedAt, e.UpdatedAt = e.CreatedAt.UTC(), e.UpdatedAt.UTC()
	if err := json.Unmarshal(headers, &e.Headers); err != nil {
		return e, err
	}
	e.Headers = masked(e.Headers)
	return e, nil
}

// check returns the params with their defaults, or all their faults.
func (es *Endpoints) check(name string, asked EndpointParams) (EndpointParams, error) {
	errs := []error{policy.CheckName("/name", "endpoint", name)}
	if err := es.outbound.Check(asked.URL); err != nil { // the addresses of a name are checked when a connection is made
		errs = append(errs, fault.Invalid("/url", "%s", err))
	}
	if asked.Batch == nil {
		asked.Batch = new(int16(1))
	}
	if *asked.Batch < 1 || *asked.Batch > 500 {
		errs = append(errs, fault.Invalid("/batch", "%d is not between 1 and 500", *asked.Batch))
	}
	if asked.Headers == nil {
		asked.Headers = map[string]string{}
	}
	errs = append(errs, checkHeaders(asked.Headers), asked.Rate.Check("/rate"))
	if asked.Events == nil {
		asked.Events = []string{}
	}
	for i, name := range asked.Events {
		pointer := fmt.Sprintf("/events/%d", i)
		if !slices.Contains(tenants.Events(), name) {
			errs = append(errs, fault.Invalid(pointer, "%q is not one of %s", name, strings.Join(tenants.Events(), ", ")))
		} else if slices.Contains(asked.Events[:i], name) {
			errs = append(errs, fault.Invalid(pointer, "%s is listed twice", name))
		}
	}
	switch asked.State {
	case "", enabledEndpoint, HeldEndpoint, DisabledEndpoint:
	default:
		errs = append(errs, fault.Invalid("/state", "%q is not one of enabled, held, disabled", asked.State))
	}
	return asked, fault.Join(errs...)
}

// PutEndpoint creates or replaces an endpoint. made reports that it is new: then e contains its secret.
func (es *Endpoints) PutEndpoint(ctx context.Context, tenant tenants.ID, name string, asked EndpointParams) (e Endpoint, made bool, err error) {
	if asked, err = es.check(name, asked); err != nil {
		return e, false, err
	}
	quotas, err := es.quotas(ctx, tenant)
	if err != nil {
		return e, false, err
	}
	secret := newSecret()
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, es.api, func(tx pgx.Tx) error {
		if err := checkRoom(ctx, tx, tenant, name, quotas.Endpoints); err != nil {
			return err
		}
		before, exists, err := lockEndpoint(ctx, tx, tenant, name)
		if err != nil {
			return err
		}
		of := stored{tenant: tenant, name: name, secret: secret}
		if exists {
			of.before = &before
		}
		e, err = es.store(ctx, tx, of, asked)
		return err
	})
	if err != nil {
		return e, false, err
	}
	if made = e.CreatedAt.Equal(e.UpdatedAt); made {
		e.Secret = shownSecret(secret)
	}
	return e, made, nil
}

// PatchEndpoint applies a merge patch to the params of an endpoint. Headers that the patch does not name keep their values.
func (es *Endpoints) PatchEndpoint(ctx context.Context, tenant tenants.ID, name string, patch []byte, pre version.Precondition) (e Endpoint, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, es.api, func(tx pgx.Tx) error {
		before, exists, err := lockEndpoint(ctx, tx, tenant, name)
		if err == nil && !exists {
			err = noEndpoint(name)
		}
		if err != nil {
			return err
		}
		now := EndpointParams{URL: before.URL, Batch: &before.Batch, Headers: before.Headers, Rate: before.Rate, Events: before.Events, State: before.State}
		asked, err := web.Merged[EndpointParams, EndpointParams](now, patch)
		if err != nil {
			return err
		}
		if asked, err = es.check(name, asked); err != nil {
			return err
		}
		asked.Pre = pre
		e, err = es.store(ctx, tx, stored{tenant: tenant, name: name, before: &before}, asked)
		return err
	})
	return e, err
}

// stored is an endpoint before a change.
type stored struct {
	tenant tenants.ID
	name   string
	before *Endpoint // locked; nil: there is none
	secret []byte    // that a new one gets
}

// store writes an endpoint and the audit of the change, if the precondition holds.
func (es *Endpoints) store(ctx context.Context, tx pgx.Tx, of stored, asked EndpointParams) (e Endpoint, err error) {
	change := tenants.Change{Action: "endpoint.put", Target: "endpoints/" + of.name}
	var revision int64
	if of.before != nil {
		change.Before, revision = of.before.audited(), of.before.revision()
	}
	if err := asked.Pre.Check(of.before != nil, revision); err != nil {
		return e, err
	}
	secrets, values, err := es.storedSecrets(ctx, tx, of.tenant, of.name)
	if err != nil {
		return e, err
	}
	headers, err := newValues(es.keyset, of.tenant, of.name, asked.Headers, values)
	if err != nil {
		return e, err
	}
	if secrets == nil {
		sealed, err := sealSecret(es.keyset, of.tenant, of.name, of.secret)
		if err != nil {
			return e, err
		}
		secrets = [][]byte{sealed}
	}
	if e, err = asked.write(ctx, tx, of.tenant, of.name, storedValues{headers, secrets}); err != nil {
		return e, err
	}
	change.After = e.audited()
	return e, tenants.Audit(ctx, tx, of.tenant, "", change)
}

// checkRoom locks the tenant's row, and returns a fault if an endpoint of that name would be one more than the quota allows. The
// lock keeps two requests from both being the last within the quota. It is a statement of its own, because a statement that waited
// for the lock would count what was there before.
func checkRoom(ctx context.Context, tx pgx.Tx, tenant tenants.ID, name string, quota int) error {
	if _, err := tx.Exec(ctx, `SELECT FROM tenant WHERE id = $1 FOR UPDATE`, tenant); err != nil {
		return fmt.Errorf("lock tenant: %w", err)
	}
	var others int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM endpoint WHERE tenant_id = $1 AND name <> $2`, tenant, name).Scan(&others); err != nil {
		return fmt.Errorf("count endpoints: %w", err)
	}
	if others >= quota {
		return tenants.Exceeded("endpoints", quota, others)
	}
	return nil
}

// storedValues are an endpoint's sealed headers and secrets.
type storedValues struct {
	headers map[string]string
	secrets [][]byte
}

// write stores the endpoint and returns it. Without a state in p, an existing endpoint keeps its state.
func (p EndpointParams) write(ctx context.Context, tx pgx.Tx, tenant tenants.ID, name string, sealed storedValues) (Endpoint, error) {
	perSecond, ramp := p.Rate.Stored()
	rows, _ := tx.Query(ctx, `
		INSERT INTO endpoint (tenant_id, name, url, batch, headers, events, state, secrets, rate, ramp_s)
		VALUES ($1, $2, $3, $4, $5, $6, COALESCE(NULLIF($7, ''), '`+enabledEndpoint+`'), $8, $9, $10)
		ON CONFLICT (tenant_id, name) DO UPDATE
		SET url = excluded.url, batch = excluded.batch, headers = excluded.headers, events = excluded.events, rate = excluded.rate, ramp_s = excluded.ramp_s,
			state = COALESCE(NULLIF($7, ''), endpoint.state), secrets = excluded.secrets, updated_at = `+postgres.Now+`
		RETURNING `+endpointColumns, tenant, name, p.URL, *p.Batch, sealed.headers, p.Events, p.State, sealed.secrets, perSecond, ramp) // CollectExactlyOneRow reports the error
	return pgx.CollectExactlyOneRow(rows, scanEndpoint)
}

// Endpoint returns one endpoint; a fault, 404, if there is none.
func (es *Endpoints) Endpoint(ctx context.Context, tenant tenants.ID, name string) (Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	rows, _ := es.api.Query(ctx, `SELECT `+endpointColumns+` FROM endpoint WHERE tenant_id = $1 AND name = $2`, tenant, name) // CollectExactlyOneRow reports the error
	e, err := pgx.CollectExactlyOneRow(rows, scanEndpoint)
	if errors.Is(err, pgx.ErrNoRows) {
		return e, noEndpoint(name)
	}
	return e, err
}

func noEndpoint(name string) error { return fault.NotFound("no endpoint %q", name) }

// List returns a page of a tenant's endpoints by name, and the cursor of the next page, if there is one.
func (es *Endpoints) List(ctx context.Context, tenant tenants.ID, limit int, cursor string) (page []Endpoint, next *string, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	after := ""
	paging, err := es.cursors.Page(int32(tenant), "endpoints", limit, cursor, &after)
	if err != nil {
		return nil, nil, err
	}
	rows, _ := es.api.Query(ctx, `
		SELECT `+endpointColumns+`
		FROM endpoint
		WHERE tenant_id = $1 AND name > $2
		ORDER BY name
		LIMIT $3`, tenant, after, paging.Rows()) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, scanEndpoint)
	if err != nil {
		return nil, nil, err
	}
	return web.Cut(paging, found, false, func(one Endpoint) string { return one.Name })
}

// DeleteEndpoint deletes an endpoint that no workflow names.
func (es *Endpoints) DeleteEndpoint(ctx context.Context, tenant tenants.ID, name string, pre version.Precondition) error {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err := pgx.BeginFunc(ctx, es.api, func(tx pgx.Tx) error {
		before, exists, err := lockEndpoint(ctx, tx, tenant, name)
		if err != nil {
			return err
		}
		if !exists {
			return noEndpoint(name)
		}
		if err := pre.Check(true, before.revision()); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM endpoint WHERE tenant_id = $1 AND name = $2`, tenant, name); err != nil {
			return err
		}
		return tenants.Audit(ctx, tx, tenant, "", tenants.Change{Action: "endpoint.delete", Target: "endpoints/" + name, Before: before.audited()})
	})
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.ConstraintName == "workflow_endpoint" {
		return fault.Conflict("endpoint_in_use", "a workflow is delivered to endpoint %q", name)
	}
	return err
}

// lockEndpoint locks an endpoint and returns it as it is before a change. exists is false if there is none.
func lockEndpoint(ctx context.Context, tx pgx.Tx, tenant tenants.ID, name string) (e Endpoint, exists bool, err error) {
	rows, _ := tx.Query(ctx, `SELECT `+endpointColumns+` FROM endpoint WHERE tenant_id = $1 AND name = $2 FOR UPDATE`, tenant, name) // CollectExactlyOneRow reports the error
	e, err = pgx.CollectExactlyOneRow(rows, scanEndpoint)
	if errors.Is(err, pgx.ErrNoRows) {
		return e, false, nil
	}
	return e, err == nil, err
}

// audited returns the endpoint as the audit shows it: without anything that may be a credential.
func (e Endpoint) audited() Endpoint {
	e.Headers, e.URL = nil, bareURL(e.URL)
	return e
}

// Shut reports whether nothing can be sent to the endpoint until somebody changes it.
func (e *Target) Shut() bool { return e.State != enabledEndpoint || len(e.Secrets) == 0 }

// StillShut reports whether nothing can be sent to the endpoint that ticks are parked for, given its stored columns.
func (es *Endpoints) StillShut(of record.ParkedFor, state string, headers []byte, secrets [][]byte) bool {
	return es.WithOpened(Target{Tenant: of.Tenant, Name: of.For, Batch: 1, State: state}, headers, secrets).Shut()
}

// QueueDisable disables an endpoint that answered 410, unless its URL was changed meanwhile, and notes an event for the tenant.
func QueueDisable(b *pgx.Batch, e *Target) {
	b.Queue(`
		WITH gone AS (
			UPDATE endpoint
			SET state = $3::text, updated_at = `+postgres.Now+`
			WHERE tenant_id = $1 AND name = $2 AND url = $4 AND state <> $3
			RETURNING name
		), audited AS (
			INSERT INTO audit (tenant_id, actor, action, target, request, after)
			SELECT $1, 'carillon', 'endpoint.disable', 'endpoints/' || name, '', json_build_object('state', $3::text, 'status', 410)
			FROM gone
		)
		INSERT INTO notice_delta (tenant_id, event, cause, data)
		SELECT $1, $5::text, name, json_build_object('endpoint', name, 'status', 410)
		FROM gone
		WHERE `+tenants.Subscribed("$1", "$5"), e.Tenant, e.Name, DisabledEndpoint, e.URL, tenants.EndpointDisabled)
}
