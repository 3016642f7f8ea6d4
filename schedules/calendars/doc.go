// Package calendars keeps what retimes many schedules at once: the named calendars of tenants, and the tz database.
//
// In: lists of days, iCalendar documents, archives of the tz database. Out: editions of calendars by revision, and cohorts that
// are marked: each learns from which moment on the new days or zones count (retime_at), and the sweep does the rest.
// An edit marks few cohorts itself; MarkStale marks the rest. A newer tz database is put in force in every process; then
// BeginRezoning compares all cohorts with it, and an operation of each tenant marks those whose zone differs.
//
// Tables: it writes calendar, calendar_revision, tzdata, and retime_at and due_at of cohort. Locks: a tenant's row of
// calendar_revision, then the shared lock of a shard. A crash leaves calendar_revision.marked behind revision, or
// tzdata.walked where the comparison stood: the next call goes on from there.
package calendars
