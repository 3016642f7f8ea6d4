// Package cohorts knows when schedules fire, together.
//
// A cohort is all schedules of a tenant and workflow in one shard that fire at the same times: they share one compiled timing
// (package calendar), and the sweep reads one row for all of them. Their rows in table member say from when and until when the times
// count for each schedule. Package runs decides what one pass over the members serves, and the order of a pass with jitter.
//
// [Timings] compiles and keeps timings. A shard is a part of all cohorts under one advisory lock: the sweep takes it alone
// ([LockShard]), changes of schedules share it ([ShareShard]).
//
// Tables: cohort, cohort_timing; it reads calendar, calendar_revision, subject_profile and tzdata.
package cohorts
