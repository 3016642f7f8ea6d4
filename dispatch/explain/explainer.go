package explain

import (
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
)

// Config is what an Explainer needs. All fields are required.
type Config struct {
	API     postgres.DB
	Timings *cohorts.Timings
	History *history.Reader
}

// Explainer says why a schedule fired at a time, or did not. It is safe for concurrent use.
type Explainer struct {
	api     postgres.DB
	timings *cohorts.Timings
	history *history.Reader
}

// New returns an Explainer.
func New(c Config) *Explainer { return &Explainer{api: c.API, timings: c.Timings, history: c.History} }
