package dispatch

import "github.com/prometheus/client_golang/prometheus"

// Metrics are what dispatch counts and measures.
type Metrics struct {
	broken       *prometheus.GaugeVec
	swept        prometheus.Counter
	sweepSeconds prometheus.Histogram
	ticks        *prometheus.CounterVec
	ended        *prometheus.CounterVec
	lateness     prometheus.Histogram
	leased       prometheus.Counter
	breakers     prometheus.Counter
}

// NewMetrics registers the metrics of dispatch.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		broken:       newBroken(r),
		swept:        prometheus.NewCounter(prometheus.CounterOpts{Name: "carillon_swept_total", Help: "Members read by the sweep."}),
		sweepSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "carillon_sweep_seconds", Help: "Time of a sweep's transaction that found members.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)}),
		ticks:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: "carillon_ticks_total", Help: "Ticks recorded at opening, by state and reason."}, []string{"state", "reason"}),
		ended:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: "carillon_attempts_ended_total", Help: "Attempts ended, by the state that their tick is in then."}, []string{"state"}),
		lateness:     prometheus.NewHistogram(prometheus.HistogramOpts{Name: "carillon_lateness_seconds", Help: "From a tick's nominal time to its being handed out.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 20)}),
		leased:       prometheus.NewCounter(prometheus.CounterOpts{Name: "carillon_leased_total", Help: "Ticks leased by workers."}),
		breakers:     prometheus.NewCounter(prometheus.CounterOpts{Name: "carillon_breakers_opened_total", Help: "Times that an endpoint answered nothing, and its ticks were held."}),
	}
	r.MustRegister(m.breakers, m.swept, m.sweepSeconds, m.ticks, m.ended, m.lateness, m.leased)
	return m
}
