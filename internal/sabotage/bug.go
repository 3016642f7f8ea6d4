package sabotage

// Bug names a deliberate mistake that the fault lab must find. A programmer could have made each of them.
type Bug string

// The bugs. A program built with the tag mutant contains all of them, and CARILLON_MUTANT turns one on.
const (
	AnyAnswerIsSuccess Bug = "any_answer_is_success" // every answer of an endpoint counts as success
	AsyncCommit        Bug = "async_commit"          // commits do not wait for the write-ahead log
	DeletedGoesOn      Bug = "deleted_goes_on"       // a schedule that leaves a cohort stays a member of it
	ForeignEndpoint    Bug = "foreign_endpoint"      // an endpoint is found by name, in any tenant
	LastIsItself       Bug = "last_is_itself"        // last_timestamp is read after it is overwritten
	LeaseUnchecked     Bug = "lease_unchecked"       // the end and the attempt of a lease are not checked
	LeasesNeverEnd     Bug = "leases_never_end"      // the ticks of a dead worker never go to another one
	LocalClock         Bug = "local_clock"           // the sweep reads a clock that is two seconds ahead
	MissedUncounted    Bug = "missed_uncounted"      // a tick that replaces missed ones does not count them
	NewIDs             Bug = "new_ids"               // each attempt of a tick gets another id
	NextFromNow        Bug = "next_from_now"         // the next time is searched after now, not after the last time
	NoAudit            Bug = "no_audit"              // deletions leave no row
	NoRetry            Bug = "no_retry"              // a failed tick gets no other attempt
	NoTakeOver         Bug = "no_take_over"          // no process takes over the chunks of a dead one
	OrderIgnored       Bug = "order_ignored"         // chunks are opened in any order
	PayloadOfNow       Bug = "payload_of_now"        // an attempt sends the payload of the newest version
	ReadyKept          Bug = "ready_kept"            // a leased tick stays ready for other workers
	ResumeReplays      Bug = "resume_replays"        // ticks that a pause skipped run after it
	RetimeForgets      Bug = "retime_forgets"        // a change of a schedule drops its due tick
	TwoTransactions    Bug = "two_transactions"      // the advance and the chunks commit separately
	UnsignedBody       Bug = "unsigned_body"         // the signature does not cover the body
	UpcomingFromNow    Bug = "upcoming_from_now"     // upcoming times count from now, not from the tick
)

// Bugs lists all bugs.
var Bugs = []Bug{
	AnyAnswerIsSuccess, AsyncCommit, DeletedGoesOn, ForeignEndpoint, LastIsItself, LeaseUnchecked, LeasesNeverEnd, LocalClock, MissedUncounted, NewIDs, NextFromNow,
	NoAudit, NoRetry, NoTakeOver, OrderIgnored, PayloadOfNow, ReadyKept, ResumeReplays, RetimeForgets, TwoTransactions, UnsignedBody, UpcomingFromNow,
}
