// Package forecast counts what a tenant stores, and forecasts the ticks of its schedules.
//
// In: cohorts with the number of their members (tally, cohort), compiled timings, quotas. Out: the ticks due in each minute of
// the days ahead, warnings of crowded minutes and of quotas that are nearly used, and refusals of what exceeds a quota.
// A forecast is computed from the cohorts, so a million members cost the same as one. It is cached for each tenant for some
// seconds; one that takes long is computed in the background, by LookAhead.
//
// Tables: it adds to tally_delta (stored bytes) and folds tally_delta and inactive_delta into tally and inactive; it reads cohort,
// daily_use and tenant. Locks: the advisory class of tallies, for the whole installation while it folds, and for one tenant
// while schedules are counted exactly near the quota. A crash leaves deltas that are not folded yet: all counts include them.
package forecast
