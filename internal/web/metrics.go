package web

import (
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics measures how long requests take, by method, route and status. A nil *Metrics measures nothing.
type Metrics struct {
	seconds *prometheus.HistogramVec
}

// NewMetrics registers carillon_http_request_seconds. It panics if the metric is already registered.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "carillon_http_request_seconds",
		Help:    "How long requests took to answer, by method, route and status.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 30},
	}, []string{"method", "route", "status"})}
	r.MustRegister(m.seconds)
	return m
}

// NewRegistry returns a registry that measures the process and Go's runtime.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// MetricsHandler returns a handler that serves a registry in Prometheus' text format.
func MetricsHandler(r *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// observe counts an answered request. An unknown method or path never becomes a label, because clients can invent any number of them.
func (m *Metrics) observe(c echo.Context, took time.Duration) {
	if m == nil {
		return
	}
	method, route := c.Request().Method, c.Path()
	switch method {
	case http.MethodGet, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete:
	default:
		method = "other"
	}
	if route == "" || c.Response().Status == http.StatusMethodNotAllowed {
		route = "none"
	}
	m.seconds.WithLabelValues(method, route, strconv.Itoa(c.Response().Status)).Observe(took.Seconds())
}
