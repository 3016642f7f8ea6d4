// Package open decides what becomes of the ticks of a chunk, and commits their rows.
//
// What comes in is a run of chunks: from the sweep of this process, from a notification, or from a River job. Each chunk is locked, its
// schedules and workflows are read once, and each tick is decided: fired, buffered, skipped or missed (decide.go). One
// transaction writes the rows of the ticks and marks the chunk as opened by this process (write.go). After it is committed, pushed ticks go to
// the queues of the push, and pulled ones become ready for workers (deliver.go).
//
// Take-over: each process looks for chunks that no job opened, and for open chunks whose process has died. It sends the ticks of those again
// under a higher epoch (takeover.go, owned.go). A crash before the commit leaves the chunk unopened; one after it leaves it to the
// take-over.
//
// Every transaction that sends ticks fills a plan (plan.go) and ends in write: the first opening of a chunk (open.go), the take-over, and the
// refill of an endpoint's queue (resume.go).
package open
