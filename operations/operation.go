package operations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/instant"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// The states of an operation. The last three are final.
const (
	Pending   = "pending"
	Running   = "running"
	Succeeded = "succeeded"
	Failed    = "failed"
	Cancelled = "cancelled"
)

// ActionsKind is the kind of an action on many schedules. Package schedules begins it, and the history finds the ticks of its triggers.
const ActionsKind = "actions"

var states = []string{Pending, Running, Succeeded, Failed, Cancelled}

// Operation is long work of one tenant, as its step sees it: the request and the progress. A step changes Done, Total, Counts, Result and the
// Cursor; they are committed together with its other changes.
type Operation struct {
	Tenant tenants.ID
	ID     int64
	Kind   string
	By     string          // the subject that began it
	Params json.RawMessage // as passed to Begin
	Cursor json.RawMessage // the start of the next step; see Read and Keep
	Done   int64           // in the unit of its kind
	Total  *int64          // nil: not known
	Counts map[string]int64
	Result any       // the result so far, shown as a JSON object; nil: none
	Begun  time.Time // when Begin was called, by the database's clock
	Now    time.Time // the same clock at the beginning of the step

	// WaitUntil is the earliest time of the next step, which a step may set. Until then the operation uses no connection and no worker.
	// Zero means at once. The next step can be about a second late.
	WaitUntil time.Time
}

// Read decodes the params and the cursor; a nil pointer leaves one out. It reports false in the first step, which has no cursor.
func (op *Operation) Read(params, cursor any) (stepped bool, err error) {
	if params != nil {
		if err := json.Unmarshal(op.Params, params); err != nil {
			return false, fmt.Errorf("params of operation %d: %w", op.ID, err)
		}
	}
	if cursor == nil || op.Cursor == nil {
		return op.Cursor != nil, nil
	}
	if err := json.Unmarshal(op.Cursor, cursor); err != nil {
		return false, fmt.Errorf("cursor of operation %d: %w", op.ID, err)
	}
	return true, nil
}

// Keep stores the cursor that the next step reads.
func (op *Operation) Keep(cursor any) (err error) {
	if op.Cursor, err = json.Marshal(cursor); err != nil {
		return fmt.Errorf("cursor of operation %d: %w", op.ID, err)
	}
	return nil
}

// Count adds n to a count.
func (op *Operation) Count(what string, n int64) {
	if op.Counts == nil {
		op.Counts = map[string]int64{}
	}
	op.Counts[what] += n
}

// Step does the next bounded part of an operation in tx, and reports whether nothing is left. It takes a second at most, because others may
// wait for its locks. Its changes and its progress commit together, so no part is done twice. A fault.Error ends the operation as failed
// and is shown; after any other error the step is tried again later.
type Step func(ctx context.Context, tx pgx.Tx, op *Operation) (done bool, err error)

// Request describes an operation that Begin records.
type Request struct {
	Tenant  tenants.ID
	Kind    string
	Params  any    // a JSON object, shown to the tenant
	Subject string // the subject, the key or the prefix of keys that the params name, if any: the params are erased with a subject of that name
	Cursor  any    // for the first step; nil: none
	Total   *int64
	By      string
}

// Config has the dependencies of Operations. Only Queue may be nil: then operations wait until Look queues them.
type Config struct {
	Pool    postgres.DB   // of the API, for requests of clients
	Engine  *pgxpool.Pool // for steps
	IDs     ident.Codec
	Cursors *web.Cursor

	// Queue makes some process run operations soon after tx commits.
	Queue func(ctx context.Context, tx pgx.Tx, ids ...int64) error
}

// Operations is the long work of all tenants. A request begins an operation in its own transaction, any process runs its steps, and clients
// see it while it runs and for a week after.
type Operations struct {
	Config
	steps map[string]Step
	old   postgres.Oldest // of Clear
}

// New returns Operations on pools of a migrated database.
func New(c Config) *Operations {
	return &Operations{Config: c, steps: map[string]Step{}, old: postgres.Oldest{Delete: "DELETE FROM operation", Column: "ended_at", Kept: KeptFor}}
}

// Register sets the step of a kind. Call it before operations run. A process that does not know a kind leaves its operations to others.
func (o *Operations) Register(kind string, step Step) { o.steps[kind] = step }

// mostOperations is the most operations of a tenant that may be under way, so that no tenant fills the lane.
const mostOperations = 100

// Begin records an operation in tx, which runs after tx commits. It returns the fault 409 `too_many_operations` if too many of the tenant are
// under way.
func (o *Operations) Begin(ctx context.Context, tx pgx.Tx, b Request) (Answer, error) {
	var under int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM operation WHERE tenant_id = $1 AND state IN ('pending', 'running')`, b.Tenant).Scan(&under); err != nil {
		return Answer{}, fmt.Errorf("count operations: %w", err)
	}
	if under >= mostOperations {
		return Answer{}, fault.Conflict("too_many_operations", "%d operations are under way: wait until some have ended", under)
	}
	begun, err := o.BeginEach(ctx, tx, []tenants.ID{b.Tenant}, b)
	if err != nil {
		return Answer{}, err
	}
	return o.shown(begun[0]), nil
}

// BeginEach records the same operation for each of several tenants, however many they have under way. It sends as many statements as for one.
func (o *Operations) BeginEach(ctx context.Context, tx pgx.Tx, owners []tenants.ID, b Request) (begun []stored, err error) {
	params, err := web.Marshal(b.Params)
	if err != nil {
		return nil, fmt.Errorf("params of an operation: %w", err)
	}
	var cursor []byte
	if b.Cursor != nil {
		if cursor, err = json.Marshal(b.Cursor); err != nil {
			return nil, fmt.Errorf("cursor of an operation: %w", err)
		}
	}
	rows, _ := tx.Query(ctx, `
		INSERT INTO operation (tenant_id, kind, started_by, params, cursor, total, look_at, subject)
		SELECT tenant_id, $2::text, $3::text, $4::json, $5::json, $6::bigint, `+postgres.Now+` + CASE WHEN $7 THEN $8::interval ELSE '0' END, NULLIF($9::text, '')
		FROM unnest($1::int[]) AS n (tenant_id)
		RETURNING tenant_id, `+columns, owners, b.Kind, b.By, params, cursor, b.Total, o.Queue != nil, silentFor, b.Subject) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[owned])
	if err != nil {
		return nil, fmt.Errorf("begin an operation: %w", err)
	}
	ids := make([]int64, len(found))
	var audit pgx.Batch
	for i, op := range found {
		ids[i], begun = op.ID, append(begun, op.stored)
		c := tenants.Change{Action: "operation.begin", Target: "operations/" + o.shown(op.stored).ID, Subject: b.Subject, After: map[string]any{"kind": b.Kind, "params": json.RawMessage(params)}}
		if err := tenants.QueueAudit(ctx, &audit, op.TenantID, b.By, c); err != nil {
			return nil, err
		}
	}
	if o.Queue != nil {
		if err := o.Queue(ctx, tx, ids...); err != nil {
			return nil, fmt.Errorf("queue an operation: %w", err)
		}
	}
	if err := tx.SendBatch(ctx, &audit).Close(); err != nil {
		return nil, fmt.Errorf("write the audit: %w", err)
	}
	return begun, nil
}

// owned is a stored operation with its tenant.
type owned struct {
	TenantID tenants.ID
	stored
}

// Answer is an operation in the form that clients see.
type Answer struct {
	ID        string           `json:"id"`
	Kind      string           `json:"kind"`
	State     string           `json:"state"`
	Params    json.RawMessage  `json:"params"`
	Done      int64            `json:"done"`
	Total     *int64           `json:"total"`
	Counts    map[string]int64 `json:"counts"`
	Result    json.RawMessage  `json:"result"`
	Error     *string          `json:"error"`
	CreatedBy string           `json:"created_by"`
	CreatedAt time.Time        `json:"created_at"`
	StartedAt *time.Time       `json:"started_at"`
	EndedAt   *time.Time       `json:"ended_at"`
}

type stored struct {
	ID        int64
	Kind      string
	State     string
	StartedBy string
	Params    []byte
	Done      int64
	Total     *int64
	Counts    map[string]int64
	Result    []byte
	Error     *string
	CreatedAt time.Time
	StartedAt *time.Time
	EndedAt   *time.Time
}

const columns = `id, kind, state, started_by, params, done, total, counts, result, error, created_at, started_at, ended_at`

func (o *Operations) shown(op stored) Answer {
	return Answer{
		ID: o.IDs.Operation(op.ID), Kind: op.Kind, State: op.State, Params: op.Params, Done: op.Done, Total: op.Total,
		Counts: op.Counts, Result: op.Result, Error: op.Error, CreatedBy: op.StartedBy,
		CreatedAt: op.CreatedAt.UTC(), StartedAt: instant.UTC(op.StartedAt), EndedAt: instant.UTC(op.EndedAt),
	}
}

func notFound(id string) error { return fault.NotFound("no operation %q", id) }

// Get returns one operation of a tenant.
func (o *Operations) Get(ctx context.Context, tenant tenants.ID, id string) (Answer, error) {
	number, ok := o.IDs.ParseOperation(id)
	if !ok {
		return Answer{}, notFound(id)
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	rows, _ := o.Pool.Query(ctx, `SELECT `+columns+` FROM operation WHERE tenant_id = $1 AND id = $2`, tenant, number) // CollectExactlyOneRow reports the error
	op, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[stored])
	if errors.Is(err, pgx.ErrNoRows) {
		return Answer{}, notFound(id)
	}
	if err != nil {
		return Answer{}, fmt.Errorf("read operation: %w", err)
	}
	return o.shown(op), nil
}

// List returns a page of a tenant's operations, newest first, and the cursor of the next page, if there is one. A state filters them; "" means
// any state.
func (o *Operations) List(ctx context.Context, tenant tenants.ID, state string, limit int, cursor string) (page []Answer, next *string, err error) {
	if state != "" && !slices.Contains(states, state) {
		return nil, nil, fault.Invalid("/state", "%q is not one of %s", state, strings.Join(states, ", "))
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	name := "operations " + state
	before := int64(math.MaxInt64)
	paging, err := o.Cursors.Page(int32(tenant), name, limit, cursor, &before)
	if err != nil {
		return nil, nil, err
	}
	only, args := "", []any{tenant, before, paging.Rows()}
	if state != "" {
		only, args = "AND state = $4", append(args, state)
	}
	rows, _ := o.Pool.Query(ctx, `
		SELECT `+columns+`
		FROM operation
		WHERE tenant_id = $1 AND id < $2 `+only+`
		ORDER BY id DESC
		LIMIT $3`, args...) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[stored])
	if err != nil {
		return nil, nil, fmt.Errorf("list operations: %w", err)
	}
	found, next, err = web.Cut(paging, found, false, func(op stored) int64 { return op.ID })
	page = make([]Answer, 0, len(found))
	for _, op := range found {
		page = append(page, o.shown(op))
	}
	return page, next, err
}

// Cancel ends an operation: at once, or after the running step. The changes of its steps stay. It returns an operation that has ended
// unchanged.
func (o *Operations) Cancel(ctx context.Context, tenant tenants.ID, id string) (Answer, error) {
	number, ok := o.IDs.ParseOperation(id)
	if !ok {
		return Answer{}, notFound(id)
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err := pgx.BeginFunc(ctx, o.Pool, func(tx pgx.Tx) error {
		idle, err := lock(ctx, tx, number)
		if err != nil {
			return err
		}
		var kind string
		err = tx.QueryRow(ctx, `
			UPDATE operation
			SET cancel = true, look_at = `+postgres.Now+`,
				state = CASE WHEN $3 THEN 'cancelled' ELSE state END,
				cursor = CASE WHEN NOT $3 THEN cursor END,
				ended_at = CASE WHEN $3 THEN `+postgres.Now+` END
			WHERE tenant_id = $1 AND id = $2 AND ended_at IS NULL AND NOT cancel
			RETURNING kind`, tenant, number, idle).Scan(&kind)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if idle {
			if err := o.ended(ctx, tx, tenant, number, kind, Cancelled); err != nil {
				return err
			}
		}
		return tenants.Audit(ctx, tx, tenant, "", tenants.Change{Action: "operation.cancel", Target: "operations/" + id})
	})
	if err != nil {
		return Answer{}, fmt.Errorf("cancel operation: %w", err)
	}
	return o.Get(ctx, tenant, id)
}
