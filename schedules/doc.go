// Package schedules stores, changes, lists and shows the schedules of tenants. It is the only writer of a schedule's definition.
//
//   - In: single puts, patches, pauses, skips and moves over HTTP; actions on many schedules as operations; batches of package bulk;
//     changes of keys from package subjects.
//   - Out: schedules with their next ticks and warnings, pages of lists, versions, an iCalendar of coming ticks.
//   - One way to write: a batch locks and reads rows, decides what becomes of each, and writes all of them in one round trip. A put is a
//     batch of one. A change hands out the ticks that were due and not yet swept, by the HandOut of the Config.
//   - Tables: it writes schedule, revision, member, workflow, and the first row of schedule_state. It makes cohorts by package cohorts.
//   - Locks, in this order: the key's profile, the shared lock of the shard, the calendars, the row of the schedule.
//   - Crash: a batch is one transaction, so nothing is half done. An operation continues from its last commit.
package schedules
