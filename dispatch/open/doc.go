// Package open decides what becomes of the ticks of a chunk, and commits their rows.
//
// What comes in is a run of chunks: from the sweep of this process, from a notification, or from a River job. Each chunk is locked, its
// schedules and workflows are read once, and each tick is decided: fired, buffered, skipped or missed (decide.go). One
// transaction writes the rows of the ticks and marks the chunk as opened by this process (open.go). After it is committed, pushed ticks go to
// the queues of the push, and pulled ones become ready for workers.
//
// Take-over: each process looks for chunks that no job opened, and for open chunks whose process has died. It sends the ticks of those again
// under a higher epoch (takeover.go, owned.go). A crash before the commit leaves the chunk unopened; one after it leaves it to the
// take-over.
package open
