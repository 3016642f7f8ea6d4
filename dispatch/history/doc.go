// Package history reads the record of ticks: the history of a schedule, lists of ticks, one tick with its attempts, dead letters,
// usage by day, and the overview of a tenant.
//
// It writes nothing. It does not show ticks that are past the retention of their schedule or tenant, even before upkeep deletes them
// ([Kept]). Lists of a tenant are read from the time index of the record, the newest first.
package history
