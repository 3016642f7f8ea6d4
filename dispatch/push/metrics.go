package push

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of pushing.
type Metrics struct {
	ended    *prometheus.CounterVec
	breakers prometheus.Counter
}

// NewMetrics registers the metrics of pushing with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		ended:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "carillon_attempts_ended_total", Help: "Ended attempts, by the resulting state of the tick."}, []string{"state"}),
		breakers: prometheus.NewCounter(prometheus.CounterOpts{Name: "carillon_breakers_opened_total", Help: "Times that a circuit breaker of an endpoint opened after failed requests."}),
	}
	r.MustRegister(m.ended, m.breakers)
	return m
}
