package chunk

import (
	"fmt"
)

// Lanes are River queues with their own workers, so that large batches and late ticks do not delay the others.
const (
	SmallLane   = "small"
	LargeLane   = "large"
	CatchUpLane = "catchup"
	WorkLane    = "work"
)

// The maximum numbers of ticks and chunks that one job opens.
const (
	TicksOfAJob  = 2 * mostInChunk
	ChunksOfAJob = 64
)

// JobArgs are the arguments of the River job that opens a chunk, or a run of them: only their numbers.
type JobArgs struct {
	Chunk   int64 `json:"chunk"`
	Through int64 `json:"through,omitempty"` // the last chunk of the run; 0: the run has one
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

// ParseRun reads a run from a notification's payload, without its counts. ok is false for any other text.
func ParseRun(payload string) (r Run, ok bool) {
	n, err := fmt.Sscanf(payload, "%s %d %d %d", &r.Lane, &r.Priority, &r.Chunk, &r.Through)
	return r, err == nil && n == 4
}
