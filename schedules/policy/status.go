package policy

// What a schedule's status can be.
const (
	Active      = "active"
	Paused      = "paused"
	Completed   = "completed"
	Quarantined = "quarantined"
)
