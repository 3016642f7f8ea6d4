// Package subjects keeps what belongs to a subject over all workflows: its profile, its name, and its erasure.
//
// In: profiles (time zone, quiet hours), new names, requests to erase. Out: profiles, counts of what a rename moved, and receipts
// of erasures. A change of a profile retimes the schedules that follow the subject: package schedules does that.
//
// Tables: it writes subject_profile and erasure, renames the subject in schedule, revision, dead_letter, operation and audit, and deletes
// schedule, member, schedule_state, revision and idempotency of an erased subject. Locks: the subject, then the shards of its schedules,
// then their rows. A crash leaves an erasure without erased_at: FinishErasures goes on with it.
package subjects
