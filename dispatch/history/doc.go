// Package history reads the record of ticks: the history of a schedule, lists of ticks, one tick with its attempts, dead letters,
// usage by day, and the overview of a tenant.
//
// It writes nothing. It shows no tick that is past the retention of its schedule or tenant, also before the upkeep deletes it
// ([Kept]). Lists of a tenant are read from the time index of the record, the newest first.
package history
