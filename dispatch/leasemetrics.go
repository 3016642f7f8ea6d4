package dispatch

import (
	"github.com/prometheus/client_golang/prometheus"
)

// leaseMetrics are the metrics of leasing.
type leaseMetrics struct {
	leased prometheus.Counter
}

// newLeaseMetrics registers the metrics of leasing.
func newLeaseMetrics(r prometheus.Registerer) *leaseMetrics {
	m := &leaseMetrics{
		leased: prometheus.NewCounter(prometheus.CounterOpts{Name: "carillon_leased_total", Help: "Ticks leased by workers."}),
	}
	r.MustRegister(m.leased)
	return m
}
