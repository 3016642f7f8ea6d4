package chunk

import (
	"fmt"
)

// Lanes are River queues, each with workers of its own, so that a herd or a catching up leaves the others on time.
const (
	SmallLane   = "small"
	LargeLane   = "large"
	CatchUpLane = "catchup"
	WorkLane    = "work"
)

// A job opens no more at once than this.
const (
	TicksOfAJob  = 2 * mostInChunk
	ChunksOfAJob = 64
)

// JobArgs are the arguments of the River job that opens a chunk, or a run of them: their numbers, and nothing else.
type JobArgs struct {
	Chunk   int64 `json:"chunk"`
	Through int64 `json:"through,omitempty"` // the last of the run; 0: there is one
}

// Kind implements river.JobArgs.
func (JobArgs) Kind() string { return "open" }

// Run is a run of chunks that one job opens.
type Run struct {
	JobArgs
	Lane          string
	Priority      int // 1 is first
	Chunks, Ticks int
}

// Text returns the run as a notification's payload.
func (r *Run) Text() string {
	return fmt.Sprintf("%s %d %d %d", r.Lane, r.Priority, r.Chunk, r.Through)
}

// ParseRun reads a run from a notification's payload.
func ParseRun(payload string) (r Run, ok bool) {
	n, err := fmt.Sscanf(payload, "%s %d %d %d", &r.Lane, &r.Priority, &r.Chunk, &r.Through)
	return r, err == nil && n == 4
}
