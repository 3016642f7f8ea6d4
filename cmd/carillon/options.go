package main

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/carillonhq/carillon/api"
	"github.com/carillonhq/carillon/console"
	"github.com/carillonhq/carillon/dispatch/open"
	"github.com/carillonhq/carillon/internal/keyset"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
	"github.com/labstack/echo/v4"
)

// options are what a process is told.
type options struct {
	databaseURL string
	apiURL      string // logs in as the database user of tenants' requests; empty: databaseURL
	connections int
	role        role
	issuer      string
	audience    string // of tokens; empty: tenants.DefaultAudience
	keys        []tenants.Key
	minter      *tenants.Minter // nil: API keys are not exchanged here
	outbound    web.Outbound
	proxies     []netip.Prefix // trusted ones before the API
	onFired     func([]open.Fired)
	tzdata      string         // a file; empty: what the program carries
	keyset      *keyset.Keyset // nil: endpoints' secrets are stored in the clear
	log         *slog.Logger
	memory      int64 // that the process may use; 0: any amount
	noDocs      bool
	noConsole   bool

	shed func(db *pools) tenants.Shedding // nil: no load is shed
}

// requestsPerConnection are worked on at a time until load is shed: they wait for connections by then.
const requestsPerConnection = 16

// shedByPool sheds a tenant's load while its requests wait for connections of the API, and all load while tenants wait to be
// looked up.
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

// bytesInFlight is what requests may hold in memory at a time: an eighth of what the process may use, if that is limited. Requests
// to endpoints may hold half as much besides.
func (o options) bytesInFlight() int64 {
	if o.memory <= 0 || o.memory/8 > web.DefaultBudget {
		return web.DefaultBudget
	}
	return o.memory / 8
}

// pages serves the document of the API, and the pages that are not turned off.
func (o options) pages(e *echo.Echo) {
	api.Routes(e, web.Static, web.Conditional)
	if !o.noDocs {
		api.PageRoutes(e, web.Static, web.Conditional)
	}
	if !o.noConsole {
		console.Routes(e)
	}
}
