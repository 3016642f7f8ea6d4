package main

import (
	"cmp"
	"log/slog"
	"net/netip"
	"time"

	"github.com/carillonhq/carillon/api"
	"github.com/carillonhq/carillon/dispatch/open"
	"github.com/carillonhq/carillon/internal/keyset"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
	"github.com/labstack/echo/v4"
)

// options are the resolved settings of a process.
type options struct {
	databaseURL string
	apiURL      string // logs in as the database user of tenants' requests; empty: databaseURL
	connections int
	role        role
	issuer      string
	audience    string // of tokens; empty: tenants.DefaultAudience
	keys        []tenants.Key
	minter      *tenants.Minter // nil: this process does not exchange API keys
	outbound    web.Outbound
	proxies     []netip.Prefix // trusted proxies in front of the API
	onFired     func([]open.Fired)
	tzdata      string         // a file; empty: the built-in data
	keyset      *keyset.Keyset // nil: endpoints' secrets are stored in the clear
	traces      traceSettings
	log         *slog.Logger
	memory      int64 // bytes that the process may use; 0: no limit
	noDocs      bool
	noConsole   bool
	version     string // in the header Carillon-Version; empty: the version of this program

	shed func(db *pools) tenants.Shedding // nil: no load is shed
}

// requestsPerConnection times the connections of the API is the number of concurrent requests from which load is shed.
const requestsPerConnection = 16

// shedByPool sheds a tenant's requests while they wait for connections of the API, and all requests while lookups of tenants wait.
func shedByPool(db *pools) tenants.Shedding {
	return tenants.Shedding{
		AtATime: requestsPerConnection * db.api.Connections(),
		Waits:   func(tenant tenants.ID) time.Duration { return db.api.Waited(int32(tenant)) },
		LookupWaits: tenants.PoolWaits(func() tenants.PoolUse {
			is := db.platform.Stat()
			return tenants.PoolUse{Acquired: is.AcquireCount(), Waited: is.EmptyAcquireWaitTime(), Busy: is.AcquiredConns() >= is.MaxConns()}
		}, time.Now),
	}
}

// bytesInFlight returns how many bytes requests may hold in memory at a time: an eighth of the memory limit, but at most
// web.DefaultBudget. Requests to endpoints may hold half as much in addition.
func (o options) bytesInFlight() int64 {
	if o.memory <= 0 || o.memory/8 > web.DefaultBudget {
		return web.DefaultBudget
	}
	return o.memory / 8
}

// pages serves the OpenAPI document, and its page unless it is turned off.
func (o options) pages(e *echo.Echo) {
	api.Routes(e, web.Static, web.Conditional)
	if !o.noDocs {
		api.PageRoutes(e, web.Static, web.Conditional)
	}
}

// answering returns the version for the header Carillon-Version of answers.
func (o options) answering() string { return cmp.Or(o.version, thisEdition().Version) }
