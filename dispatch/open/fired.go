package open

import (
	"time"

	"github.com/carillonhq/carillon/tenants"
)

// Fired is a tick that was handed out.
type Fired struct {
	Tenant        tenants.ID
	Workflow, Key string
	Timestamp     time.Time
	FiredAt       time.Time
}
