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

// Change is one entry of the audit. Before and After are the old and the new state as JSON objects, without payloads and secrets; nil
// means absent or not recorded. Subject is the subject that the change is about, or "": the entry is erased with
// that subject.
type Change struct {
	Action  string // a noun and a verb: schedule.put
	Target  string // the path of the changed thing, without /v1/
	Subject string
	Origin  *Origin // nil: the request in the context
	Before  any
	After   any
}

// Origin is the request that caused a change.
type Origin struct {
	Request string      // its id; "": there was no request
	Remote  *netip.Addr // the address of its client; nil: unknown
	Through *string     // "console"; nil: the client called the API itself
}

// OriginOf returns the request in a context.
func OriginOf(ctx context.Context) *Origin {
	o := &Origin{Request: web.RequestID(ctx)}
	text, _ := ctx.Value(addressKey{}).(string)
	if a, err := netip.ParseAddr(text); err == nil {
		o.Remote = new(a.Unmap().WithZone(""))
	}
	if by, ok := ctx.Value(throughKey{}).(string); ok {
		o.Through = &by
	}
	return o
}

type actorKey struct{}

type throughKey struct{}

// Through returns a context whose changes the audit shows as made through something other than a client of the API: "console".
func Through(ctx context.Context, what string) context.Context {
	return context.WithValue(ctx, throughKey{}, what)
}

// Actor returns the subject that sent the request in a context, or "carillon" without a request.
func Actor(ctx context.Context) string {
	if by, ok := ctx.Value(actorKey{}).(string); ok {
		return by
	}
	return "carillon"
}

// Audit records changes of a tenant in one statement. db is the transaction of the changes. by is the subject that made them; "" means
// the sender of the request.
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

// QueueAudit is Audit that adds its statement to a batch.
func QueueAudit(ctx context.Context, b *pgx.Batch, tenant ID, by string, changes ...Change) error {
	if by == "" {
		by = Actor(ctx)
	}
	n := len(changes)
	if n == 0 || sabotage.NoAudit.On() && changes[0].After == nil {
		return nil
	}
	actions, targets, requests, remotes := make([]string, n), make([]string, n), make([]string, n), make([]*netip.Addr, n)
	subjects, throughs := make([]*string, n), make([]*string, n)
	before, after := make([]*string, n), make([]*string, n)
	here := OriginOf(ctx)
	for i, c := range changes {
		origin := cmp.Or(c.Origin, here)
		actions[i], targets[i], requests[i], remotes[i], throughs[i] = c.Action, c.Target, origin.Request, origin.Remote, origin.Through
		if c.Subject != "" {
			subjects[i] = &c.Subject
		}
		var err error
		if before[i], err = auditJSON(c.Before); err != nil {
			return err
		}
		if after[i], err = auditJSON(c.After); err != nil {
			return err
		}
	}
	b.Queue(`
		INSERT INTO audit (tenant_id, actor, request, remote, through, action, target, subject, before, after)
		SELECT $1, $2, request, remote, through, action, target, subject, before::json, after::json
		FROM unnest($3::text[], $4::inet[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[])
			AS n (request, remote, through, action, target, subject, before, after)`,
		tenant, by, requests, remotes, throughs, actions, targets, subjects, before, after)
	return nil
}

// auditJSON returns a value as JSON for the audit, or nil. web.Marshal writes a client's JSON value unchanged.
func auditJSON(v any) (*string, error) {
	if v == nil {
		return nil, nil
	}
	text, err := web.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write the audit: %w", err)
	}
	return new(string(text)), nil
}

// AuditEntry is a change as the API returns it.
type AuditEntry struct {
	ID      int64           `json:"id"`
	At      time.Time       `json:"at"`
	Actor   string          `json:"actor"`
	Remote  *string         `json:"remote"`  // the address of the client
	Through *string         `json:"through"` // "console", or nil
	Action  string          `json:"action"`
	Target  string          `json:"target"`
	Request string          `json:"request"`
	Before  json.RawMessage `json:"before"`
	After   json.RawMessage `json:"after"`
}

func (e AuditEntry) held() int { return len(e.Before) + len(e.After) }

// AuditFilter selects changes that match all its fields. From is inclusive and To exclusive. Zero fields match every change.
type AuditFilter struct {
	Actor, Action, Target string
	From, To              time.Time
}

// auditScanned is the maximum number of entries that one page reads. If few of them match the filter, the page is short, and its cursor
// continues after them.
const auditScanned = 20_000

type auditPlace struct {
	At time.Time
	ID int64
}

// Audited reads the audit of tenants, and that of the platform.
type Audited struct {
	DB       postgres.DB
	Platform postgres.DB // sees the audit of the platform
	Cursors  *web.Cursor
}

// auditLog is a table of changes: the rows that match the condition on $1, a tenant.
type auditLog struct {
	db           postgres.DB
	tenant       ID
	table, whose string
}

// Log returns a page of a tenant's changes, newest first, and the cursor of the next page.
func (a Audited) Log(ctx context.Context, tenant ID, f AuditFilter, limit int, cursor string) (page []AuditEntry, next *string, err error) {
	return a.page(ctx, auditLog{a.DB, tenant, "audit", "tenant_id = $1"}, f, limit, cursor)
}

// PlatformLog is Log for the changes of tenants by the platform's operator. They stay when the tenant is erased.
func (a Audited) PlatformLog(ctx context.Context, f AuditFilter, limit int, cursor string) (page []AuditEntry, next *string, err error) {
	return a.page(ctx, auditLog{a.Platform, 0, "platform_audit", "$1::int = 0"}, f, limit, cursor)
}

func (a Audited) page(ctx context.Context, log auditLog, f AuditFilter, limit int, cursor string) (page []AuditEntry, next *string, err error) {
	name := fmt.Sprintf(log.table+" %q %q %q %d %d", f.Actor, f.Action, f.Target, f.From.UnixMicro(), f.To.UnixMicro())
	at := auditPlace{At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	if !f.To.IsZero() {
		at.At = f.To
	}
	paging, err := a.Cursors.Page(int32(log.tenant), name, limit, cursor, &at)
	if err != nil {
		return nil, nil, err
	}
	query := func() (pgx.Rows, error) {
		return log.db.Query(ctx, `
			WITH scanned AS (
				SELECT id, at, actor, remote, through, action, target, request, before, after
				FROM `+log.table+`
				WHERE `+log.whose+` AND (at, id) < ($2, $3) AND at >= $4
				ORDER BY at DESC, id DESC
				LIMIT $5
			)
			SELECT id, at, actor, host(remote) AS remote, through, action, target, request, before, after
			FROM scanned
			WHERE ($6 = '' OR actor = $6) AND ($7 = '' OR action = $7) AND ($8 = '' OR target = $8)
			ORDER BY at DESC, id DESC
			LIMIT $9`, log.tenant, at.At, at.ID, f.From, auditScanned, f.Actor, f.Action, f.Target, paging.Rows())
	}
	page, full, err := web.Collect(ctx, paging.Rows(), web.MostPage, query, pgx.RowToStructByName[AuditEntry], AuditEntry.held)
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
		rows, _ := log.db.Query(ctx, `
			SELECT at, id
			FROM `+log.table+`
			WHERE `+log.whose+` AND (at, id) < ($2, $3) AND at >= $4
			ORDER BY at DESC, id DESC
			OFFSET $5 LIMIT 1`, log.tenant, at.At, at.ID, f.From, auditScanned-1) // CollectRows reports the error
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

// readAuditTime parses a time of the query. An empty text is the zero time.
func readAuditTime(name, text string) (t time.Time, err error) {
	if text == "" {
		return t, nil
	}
	if err := t.UnmarshalText([]byte(text)); err != nil || t.Year() < 1970 || t.Year() > 9998 {
		return t, fault.Invalid("/"+name, "%q is not an RFC 3339 time", text)
	}
	return t.UTC(), nil
}
