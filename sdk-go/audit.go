package carillon

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"time"
)

// AuditEntry is one change of the tenant, or of a tenant by the platform.
type AuditEntry struct {
	ID      int64           `json:"id"`
	At      time.Time       `json:"at"`
	Actor   string          `json:"actor"`   // as in Self; "carillon": the server itself
	Remote  string          `json:"remote"`  // the IP address of the client or of a proxy; empty: none is told
	Through string          `json:"through"` // "console": a person who signed in there with the key; empty: the API itself
	Action  string          `json:"action"`  // such as "schedule.put"
	Target  string          `json:"target"`  // the path of the changed thing, without "/v1/"
	Request string          `json:"request"` // the request's id; empty: there was none
	Before  json.RawMessage `json:"before"`  // null: it did not exist, or is not told
	After   json.RawMessage `json:"after"`   // null: it exists no more, or is not told
}

// AuditFilter selects entries of an audit; the zero value selects all.
type AuditFilter struct {
	Actor, Action, Target string
	From, To              time.Time // To is not included
	PageSize              int       // entries per request, up to 1,000; zero is the server's default
}

func (f AuditFilter) query() url.Values {
	q := query{}
	q.text("actor", f.Actor)
	q.text("action", f.Action)
	q.text("target", f.Target)
	q.time("from", f.From)
	q.time("to", f.To)
	q.number("limit", f.PageSize)
	return url.Values(q)
}

// Audit iterates over the changes of the tenant, newest first. An error comes once and ends the loop.
func (a Admin) Audit(ctx context.Context, f AuditFilter) iter.Seq2[AuditEntry, error] {
	return pages[AuditEntry](ctx, a.c, path("admin", "audit"), f.query())
}
