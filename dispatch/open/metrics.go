package open

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonhq/carillon/dispatch/record"
)

// Metrics are the metrics of the opening of chunks.
type Metrics struct {
	ticks    *prometheus.CounterVec
	lateness prometheus.Histogram
}

// NewMetrics registers the metrics of the opening of chunks.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		ticks:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "carillon_ticks_total", Help: "Ticks recorded at opening, by state and reason."}, []string{"state", "reason"}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "carillon_lateness_seconds", Help: "From a tick's nominal time to its being handed out.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 20)}),
	}
	r.MustRegister(m.ticks, m.lateness)
	return m
}

// count counts new ticks, and observes how late the running ones are.
func (m *Metrics) count(ticks []record.Tick) {
	type outcome struct {
		state  record.State
		reason record.Reason
	}
	outcomes := map[outcome]int{}
	for i := range ticks {
		t := &ticks[i]
		outcomes[outcome{t.State, t.Reason}]++
		if t.State == record.Running {
			m.lateness.Observe(t.FiredAt.Sub(t.NominalAt).Seconds())
		}
	}
	for one, n := range outcomes {
		m.ticks.WithLabelValues(one.state.String(), one.reason.String()).Add(float64(n))
	}
}
