package sweep

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of the sweep.
type Metrics struct {
	swept        prometheus.Counter
	sweepSeconds prometheus.Histogram
}

// NewMetrics registers the metrics of the sweep.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		swept:        prometheus.NewCounter(prometheus.CounterOpts{Name: "carillon_swept_total", Help: "Members read by the sweep."}),
		sweepSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "carillon_sweep_seconds", Help: "Duration of sweep transactions that found members.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)}),
	}
	r.MustRegister(m.swept, m.sweepSeconds)
	return m
}
