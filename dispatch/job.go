package dispatch

import "fmt"

// Lanes are River queues, each with workers of its own, so that a herd or a catching up leaves the others on time.
const (
	smallLane   = "small"
	largeLane   = "large"
	catchUpLane = "catchup"
	workLane    = "work"
)

// A job opens no more at once than this.
const (
	ticksOfAJob  = 2 * mostInChunk
	chunksOfAJob = 64
)

// openArgs are the arguments of the River job that opens a chunk, or a run of them: their numbers, and nothing else.
type openArgs struct {
	Chunk   int64 `json:"chunk"`
	Through int64 `json:"through,omitempty"` // the last of the run; 0: there is one
}

func (openArgs) Kind() string { return "open" }

// openRun is a run of chunks that one job opens.
type openRun struct {
	openArgs
	lane          string
	priority      int // 1 is first
	chunks, ticks int
}

// text returns the run as a notification's payload.
func (r *openRun) text() string {
	return fmt.Sprintf("%s %d %d %d", r.lane, r.priority, r.Chunk, r.Through)
}

// parseRun reads a run from a notification's payload.
func parseRun(payload string) (r openRun, ok bool) {
	n, err := fmt.Sscanf(payload, "%s %d %d %d", &r.lane, &r.priority, &r.Chunk, &r.Through)
	return r, err == nil && n == 4
}
