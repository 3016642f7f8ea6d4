// Package schedules keeps what fires, and for whom: each (workflow, key) of a tenant has one schedule, which is upserted and never
// duplicated. A schedule that fires is a member of a cohort: the schedules that share one timing share one row that says when they
// fire next. A Put that was acknowledged is armed: its next tick is committed with it.
//
// In: puts, patches, pauses, skips, moves of ticks, actions on many schedules, workflows with their defaults. Out: schedules, lists,
// previews, revisions, and due ticks (HandOut): those that were due but not swept when a change came.
// A batch writes every change: it locks rows, decides, and writes all at once. A change of one schedule is a batch of one. Puts of one
// caller that come at once are coalesced into one batch.
//
// Tables: it writes schedule, schedule_state, member, revision and workflow, and makes and wakes cohorts. Locks: a key whose profile a
// schedule follows, then the shards of the schedules, shared and in ascending order, then their rows by id, then states with
// fixed_delay. A crash leaves nothing: each change is one transaction, and an operation goes on from the position that it kept.
package schedules
