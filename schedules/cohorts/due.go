package cohorts

import (
	"github.com/carillonhq/carillon/schedules/runs"
	"github.com/carillonhq/carillon/tenants"
)

// Due is one schedule whose nominal time Run.At has come.
type Due struct {
	Tenant   tenants.ID
	Shard    int16
	Cohort   int64
	Schedule int64
	Run      runs.Run
	Missed   int  // how many earlier times the tick stands for
	Forced   bool // asked for by a client: neither expired nor missed
}
