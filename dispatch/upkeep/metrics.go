package upkeep

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of upkeep.
type Metrics struct {
	broken      *prometheus.GaugeVec
	overdue     *prometheus.GaugeVec
	unopened    prometheus.Gauge
	withoutNext prometheus.Gauge
	quarantined prometheus.Gauge
	watched     prometheus.Gauge
}

// NewMetrics registers the metrics of upkeep with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		broken:      prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "carillon_broken_promises", Help: "Rows that break a promise, counted by a scan every 15 s; 0 is healthy."}, []string{"promise"}),
		overdue:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "carillon_overdue_seconds", Help: "Age of the oldest due time that no sweep has reached, by kind: cohort, delayed tick or tenant's turn."}, []string{"what"}),
		unopened:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "carillon_unopened_chunk_seconds", Help: "Age of the oldest unopened chunk, since its sweep."}),
		withoutNext: prometheus.NewGauge(prometheus.GaugeOpts{Name: "carillon_schedules_without_next", Help: "Active schedules found without a next time for two minutes or more; 0 is healthy."}),
		quarantined: prometheus.NewGauge(prometheus.GaugeOpts{Name: "carillon_schedules_quarantined", Help: "Quarantined schedules, whose times cannot be computed; counted up to 10,000."}),
		watched:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "carillon_watched_timestamp_seconds", Help: "Time of the last watchdog run of this process; 0 if it does not sweep."}),
	}
	r.MustRegister(m.broken, m.overdue, m.unopened, m.withoutNext, m.quarantined, m.watched)
	return m
}
