package record

import "time"

// BackfillKind is the kind of the operations that make ticks of the past.
const BackfillKind = "backfill"

// BackfillParams are the stored params of such an operation: it makes a tick at each nominal time of a schedule from From on and before
// To.
type BackfillParams struct {
	ScheduleID string    `json:"schedule_id"`
	Workflow   string    `json:"workflow"`
	Key        string    `json:"key"`
	Subject    string    `json:"subject"`
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Overlap    string    `json:"overlap"`
}
