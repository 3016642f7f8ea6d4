package history

import (
	"time"
)

// Firing tells whether a tenant's schedules fire. HaltedAt is since when they do not; null: they do.
type Firing struct {
	HaltedAt *time.Time `json:"halted_at"`
	Note     *string    `json:"note"`
}
