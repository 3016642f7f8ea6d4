// Package sweep makes chunks of due ticks.
//
// A process sweeps its own shards. It locks a shard, reads the due cohorts, computes the next time of
// each, and writes their members into chunks with the River jobs that open them ([Chunker]): all of this is one transaction, so a tick
// is handed out exactly once. A cohort that cannot be computed is quarantined alone.
//
// One such transaction is a pass (pass.go): it reads (due.go), begins runs (begin.go), reads members (members.go), shares out ticks
// (fairness.go), and moves the cohorts (advance.go).
//
// Fairness: a tenant with more due in a shard than its quota allows now is throttled. A row of table fair_turn says when it is served next.
// Tokens of tenants are counted in memory and settled in table allowance; tenants with many unopened chunks get a later priority.
//
// The package writes chunk, cohort, delayed, fair_turn and allowance under the lock of the shard. A crash rolls the transaction back, and the
// process that owns the shard then sweeps it again.
package sweep
