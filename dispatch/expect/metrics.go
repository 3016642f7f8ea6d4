package expect

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonhq/carillon/tenants"
)

// Metrics are the metrics of expectations.
type Metrics struct {
	unmet *prometheus.GaugeVec
}

// NewMetrics registers the metrics of expectations.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{unmet: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "carillon_workflows_unmet", Help: "Workflows that are late, silent or without workers, as of the last look of this process; one process looks at a time.",
	}, []string{"event"})}
	r.MustRegister(m.unmet)
	return m
}

func (m *Metrics) set(counts map[string]int) {
	for _, event := range []string{tenants.WorkflowLate, tenants.WorkflowSilent, tenants.WorkflowNoWorkers} {
		m.unmet.WithLabelValues(event).Set(float64(counts[event]))
	}
}
