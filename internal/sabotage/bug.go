package sabotage

// Bug is a deliberate mistake that the fault lab must find. Each is what somebody might have written.
type Bug string

// The bugs. What each has the program do is said where it is asked for.
const (
	AnyAnswerIsSuccess Bug = "any_answer_is_success" // whatever an endpoint answers ends the tick well
	AsyncCommit        Bug = "async_commit"          // what is acknowledged may not be in the write-ahead log yet
	DeletedGoesOn      Bug = "deleted_goes_on"       // who leaves a cohort stays a member of it
	ForeignEndpoint    Bug = "foreign_endpoint"      // an endpoint is found by its name, whosever it is
	LastIsItself       Bug = "last_is_itself"        // last_timestamp is read after it was written
	LeaseUnchecked     Bug = "lease_unchecked"       // the end of a lease, and its attempt, are not asked for
	LeasesNeverEnd     Bug = "leases_never_end"      // the ticks of a worker that died come to no other
	LocalClock         Bug = "local_clock"           // a clock that is two seconds fast decides what is due
	MissedUncounted    Bug = "missed_uncounted"      // who stands for others does not say so
	NewIDs             Bug = "new_ids"               // each attempt has an id of its own
	NextFromNow        Bug = "next_from_now"         // the next time is looked for after now, not after the last
	NoAudit            Bug = "no_audit"              // deletions leave no row
	NoRetry            Bug = "no_retry"              // who failed is not held for another attempt
	NoTakeOver         Bug = "no_take_over"          // nobody looks after what a dead process had
	OrderIgnored       Bug = "order_ignored"         // chunks are opened as they come
	PayloadOfNow       Bug = "payload_of_now"        // an attempt bears the payload of the newest version
	ReadyKept          Bug = "ready_kept"            // leasing leaves the tick for others
	ResumeReplays      Bug = "resume_replays"        // what passed in a pause comes after it
	RetimeForgets      Bug = "retime_forgets"        // what was due when a schedule was changed is dropped
	TwoTransactions    Bug = "two_transactions"      // the advance and the chunks are committed apart
	UnsignedBody       Bug = "unsigned_body"         // the signature is not over what is sent
	UpcomingFromNow    Bug = "upcoming_from_now"     // what comes is told from now on, not from the tick on
)

// Bugs are all of them.
var Bugs = []Bug{
	AnyAnswerIsSuccess, AsyncCommit, DeletedGoesOn, ForeignEndpoint, LastIsItself, LeaseUnchecked, LeasesNeverEnd, LocalClock, MissedUncounted, NewIDs, NextFromNow,
	NoAudit, NoRetry, NoTakeOver, OrderIgnored, PayloadOfNow, ReadyKept, ResumeReplays, RetimeForgets, TwoTransactions, UnsignedBody, UpcomingFromNow,
}
