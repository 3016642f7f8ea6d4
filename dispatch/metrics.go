package dispatch

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonhq/carillon/dispatch/expect"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/open"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/dispatch/sweep"
	"github.com/carillonhq/carillon/dispatch/upkeep"
)

// Metrics are the metrics of dispatch.
type Metrics struct {
	sweep  *sweep.Metrics
	open   *open.Metrics
	push   *push.Metrics
	lease  *lease.Metrics
	upkeep *upkeep.Metrics
	expect *expect.Metrics
}

// NewMetrics registers the metrics of dispatch.
func NewMetrics(r prometheus.Registerer) *Metrics {
	return &Metrics{sweep: sweep.NewMetrics(r), open: open.NewMetrics(r), push: push.NewMetrics(r), lease: lease.NewMetrics(r), upkeep: upkeep.NewMetrics(r), expect: expect.NewMetrics(r)}
}
