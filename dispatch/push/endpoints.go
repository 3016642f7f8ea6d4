package push

import (
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/message"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/keyset"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
)

// Endpoints are the endpoints of all tenants: what their owners set, and what they show. It is safe for concurrent use.
type Endpoints struct {
	pool       *pgxpool.Pool
	api        postgres.DB
	quotas     record.Quotas
	cursors    *web.Cursor
	keyset     *keyset.Keyset
	outbound   web.Outbound
	messages   *message.Messages
	requests   *requester // makes test requests
	log        *slog.Logger
	unreadable sync.Map // by EndpointName: it was logged that a secret cannot be opened
}

func newEndpoints(c Config, r *requester) *Endpoints {
	return &Endpoints{
		pool: c.Pool, api: c.API, quotas: c.Quotas, cursors: c.Cursors, keyset: c.Keyset, outbound: c.Outbound, messages: c.Messages, requests: r, log: c.Log.Logger,
	}
}
