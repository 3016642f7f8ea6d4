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
		broken:      prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "carillon_broken_promises", Help: "Rows that contradict a promise, as a scan each 15 s finds them; 0 is health."}, []string{"promise"}),
		overdue:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "carillon_overdue_seconds", Help: "For how long the sweep has not come to what is due longest, by what it is: a cohort, a delayed tick or a tenant's turn."}, []string{"what"}),
		unopened:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "carillon_unopened_chunk_seconds", Help: "Since when the oldest chunk that is not opened was swept."}),
		withoutNext: prometheus.NewGauge(prometheus.GaugeOpts{Name: "carillon_schedules_without_next", Help: "Active schedules that have no next time for two minutes or more, as far as they were found: there are to be none."}),
		quarantined: prometheus.NewGauge(prometheus.GaugeOpts{Name: "carillon_schedules_quarantined", Help: "Schedules put aside because they cannot be computed, up to 10,000."}),
		watched:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "carillon_watched_timestamp_seconds", Help: "When this process looked last for what is overdue, without a next time or put aside; 0 where it does not sweep."}),
	}
	r.MustRegister(m.broken, m.overdue, m.unopened, m.withoutNext, m.quarantined, m.watched)
	return m
}
