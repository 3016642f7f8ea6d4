package dispatch

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of dispatch.
type Metrics struct {
	sweep  *sweepMetrics
	open   *openMetrics
	push   *pushMetrics
	lease  *leaseMetrics
	upkeep *upkeepMetrics
}

// NewMetrics registers the metrics of dispatch.
func NewMetrics(r prometheus.Registerer) *Metrics {
	return &Metrics{sweep: newSweepMetrics(r), open: newOpenMetrics(r), push: newPushMetrics(r), lease: newLeaseMetrics(r), upkeep: newUpkeepMetrics(r)}
}
