package lease

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of leasing.
type Metrics struct {
	leased prometheus.Counter
}

// NewMetrics registers the metrics of leasing with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		leased: prometheus.NewCounter(prometheus.CounterOpts{Name: "carillon_leased_total", Help: "Ticks leased by workers."}),
	}
	r.MustRegister(m.leased)
	return m
}
