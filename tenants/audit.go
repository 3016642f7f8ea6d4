package tenants

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/internal/web"
)

// Change is one change as the audit tells it. Before and After are what was and is there, as JSON objects without
// payloads and secrets; nil where there was or is nothing, or nothing is told. Key is the key that it tells of, if any.
type Change struct {
	Action string // a noun and a verb: schedule.put
	Target string // the path of what was changed, without /v1/
	Key    string
	Origin *Origin // nil: the context's
	Before any
	After  any
}

// Origin is the request that asked for a change.
type Origin struct {
	Request string      // its id; empty: there was none
	Remote  *netip.Addr // the address of its client; nil: not known
}

// OriginOf returns the request that a context is of.
func OriginOf(ctx context.Context) *Origin {
	o := &Origin{Request: web.RequestID(ctx)}
	text, _ := ctx.Value(addressKey{}).(string)
	if a, err := netip.ParseAddr(text); err == nil {
		o.Remote = new(a.Unmap().WithZone(""))
	}
	return o
}

type actorKey struct{}

// Actor is who sent the request of a context; carillon itself where there is none.
func Actor(ctx context.Context) string {
	if by, ok := ctx.Value(actorKey{}).(string); ok {
		return by
	}
	return "carillon"
}

// Audit records changes of a tenant's in the transaction that makes them, in one statement. By is who made them; empty:
// whoever sent the request.
func Audit(ctx context.Context, db postgres.DB, tenant ID, by string, changes ...Change) error {
	var b pgx.Batch
	if err := QueueAudit(ctx, &b, tenant, by, changes...); err != nil {
		return err
	}
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("write the audit: %w", err)
	}
	return nil
}

// QueueAudit is Audit as a statement of a batch.
func QueueAudit(ctx context.Context, b *pgx.Batch, tenant ID, by string, changes ...Change) error {
	if by == "" {
		by = Actor(ctx)
	}
	n := len(changes)
	if n == 0 || sabotage.NoAudit.On() && changes[0].After == nil {
		return nil
	}
	actions, targets, requests, remotes, keys := make([]string, n), make([]string, n), make([]string, n), make([]*netip.Addr, n), make([]*string, n)
	before, after := make([]*string, n), make([]*string, n)
	here := OriginOf(ctx)
	for i, c := range changes {
		origin := cmp.Or(c.Origin, here)
		actions[i], targets[i], requests[i], remotes[i] = c.Action, c.Target, origin.Request, origin.Remote
		if c.Key != "" {
			keys[i] = &c.Key
		}
		var err error
		if before[i], err = told(c.Before); err != nil {
			return err
		}
		if after[i], err = told(c.After); err != nil {
			return err
		}
	}
	b.Queue(`
		INSERT INTO audit (tenant_id, actor, request, remote, action, target, key, before, after)
		SELECT $1, $2, request, remote, action, target, key, before::json, after::json
		FROM unnest($3::text[], $4::inet[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])
			AS n (request, remote, action, target, key, before, after)`,
		tenant, by, requests, remotes, actions, targets, keys, before, after)
	return nil
}

// told returns what the audit keeps of a value. web.Marshal writes a JSON value of the client as it came.
func told(v any) (*string, error) {
	if v == nil {
		return nil, nil
	}
	text, err := web.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write the audit: %w", err)
	}
	return new(string(text)), nil
}

// AuditEntry is a change as the API shows it.
type AuditEntry struct {
	ID      int64           `json:"id"`
	At      time.Time       `json:"at"`
	Actor   string          `json:"actor"`
	Remote  *string         `json:"remote"` // the address of the client
	Action  string          `json:"action"`
	Target  string          `json:"target"`
	Request string          `json:"request"`
	Before  json.RawMessage `json:"before"`
	After   json.RawMessage `json:"after"`
}

func (e AuditEntry) held() int { return len(e.Before) + len(e.After) }

// AuditFilter picks changes: those that are all it says. From is the first moment, and To the first that is too late.
type AuditFilter struct {
	Actor, Action, Target string
	From, To              time.Time
}

// auditScanned is how many entries one page looks at: where few of many are picked it is short, and its cursor goes on.
const auditScanned = 20_000

type auditPlace struct {
	At time.Time
	ID int64
}

// Audited tells who changed what of a tenant.
type Audited struct {
	DB      postgres.DB
	Cursors *web.Cursor
}

// Log returns a page of a tenant's changes, newest first, and the cursor of the next.
func (a Audited) Log(ctx context.Context, tenant ID, f AuditFilter, limit int, cursor string) (page []AuditEntry, next *string, err error) {
	name := fmt.Sprintf("audit %q %q %q %d %d", f.Actor, f.Action, f.Target, f.From.UnixMicro(), f.To.UnixMicro())
	at := auditPlace{At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	if !f.To.IsZero() {
		at.At = f.To
	}
	paging, err := a.Cursors.Page(int32(tenant), name, limit, cursor, &at)
	if err != nil {
		return nil, nil, err
	}
	rows, _ := a.DB.Query(ctx, `
		WITH scanned AS (
			SELECT id, at, actor, remote, action, target, request, before, after
			FROM audit
			WHERE tenant_id = $1 AND (at, id) < ($2, $3) AND at >= $4
			ORDER BY at DESC, id DESC
			LIMIT $5
		)
		SELECT id, at, actor, host(remote) AS remote, action, target, request, before, after
		FROM scanned
		WHERE ($6 = '' OR actor = $6) AND ($7 = '' OR action = $7) AND ($8 = '' OR target = $8)
		ORDER BY at DESC, id DESC
		LIMIT $9`, tenant, at.At, at.ID, f.From, auditScanned, f.Actor, f.Action, f.Target, paging.Rows()) // Collect reports the error
	page, full, err := web.Collect(ctx, rows, web.MostPage, pgx.RowToStructByName[AuditEntry], AuditEntry.held)
	if err != nil {
		return nil, nil, fmt.Errorf("read the audit: %w", err)
	}
	for i := range page {
		page[i].At = page[i].At.UTC()
	}
	page, more := web.Trim(page, limit, full)
	if more {
		at = auditPlace{page[len(page)-1].At, page[len(page)-1].ID}
	} else {
		rows, _ := a.DB.Query(ctx, `
			SELECT at, id
			FROM audit
			WHERE tenant_id = $1 AND (at, id) < ($2, $3) AND at >= $4
			ORDER BY at DESC, id DESC
			OFFSET $5 LIMIT 1`, tenant, at.At, at.ID, f.From, auditScanned-1) // CollectRows reports the error
		last, err := pgx.CollectRows(rows, pgx.RowToStructByPos[auditPlace])
		if err != nil {
			return nil, nil, fmt.Errorf("read the audit: %w", err)
		}
		if len(last) == 0 {
			return page, nil, nil
		}
		at = last[0]
	}
	next, err = paging.Next(at)
	return page, next, err
}

// readAuditTime reads an instant of a query; where it is not there it is zero.
func readAuditTime(name, text string) (t time.Time, err error) {
	if text == "" {
		return t, nil
	}
	if err := t.UnmarshalText([]byte(text)); err != nil || t.Year() < 1970 || t.Year() > 9998 {
		return t, fault.Invalid("/"+name, "%q is not an RFC 3339 instant", text)
	}
	return t.UTC(), nil
}
