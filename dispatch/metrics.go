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

	overdue     *prometheus.GaugeVec
	unopened    prometheus.Gauge
	withoutNext prometheus.Gauge
	quarantined prometheus.Gauge
	watched     prometheus.Gauge
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

		overdue:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "carillon_overdue_seconds", Help: "For how long the sweep has not come to what is due longest, by what it is: a cohort, a held tick or a tenant's turn."}, []string{"what"}),
		unopened:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "carillon_unopened_chunk_seconds", Help: "Since when the oldest chunk that is not opened was swept."}),
		withoutNext: prometheus.NewGauge(prometheus.GaugeOpts{Name: "carillon_schedules_without_next", Help: "Active schedules that have no next time for two minutes or more, as far as they were found: there are to be none."}),
		quarantined: prometheus.NewGauge(prometheus.GaugeOpts{Name: "carillon_schedules_quarantined", Help: "Schedules put aside because they cannot be computed, up to 10,000."}),
		watched:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "carillon_watched_timestamp_seconds", Help: "When this process looked last for what is overdue, without a next time or put aside; 0 where it does not sweep."}),
	}
	r.MustRegister(m.overdue, m.unopened, m.withoutNext, m.quarantined, m.watched)
	r.MustRegister(m.breakers, m.swept, m.sweepSeconds, m.ticks, m.ended, m.lateness, m.leased)
	return m
}
