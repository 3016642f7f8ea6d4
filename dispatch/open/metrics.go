package open

import (
	"github.com/prometheus/client_golang/prometheus"
)

// openMetrics are the metrics of the opening of chunks.
type Metrics struct {
	ticks    *prometheus.CounterVec
	lateness prometheus.Histogram
}

// newOpenMetrics registers the metrics of the opening of chunks.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		ticks:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "carillon_ticks_total", Help: "Ticks recorded at opening, by state and reason."}, []string{"state", "reason"}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "carillon_lateness_seconds", Help: "From a tick's nominal time to its being handed out.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 20)}),
	}
	r.MustRegister(m.ticks, m.lateness)
	return m
}
