// Package events tells tenants what happened: paused schedules, disabled endpoints, dead letters, quotas that are nearly used.
//
// What happens is noted in table happening by the transaction that causes it. Each second the notes are added up
// in table notice, and a notice becomes an event, which is sent to the endpoint that the tenant named, signed like a tick. The package writes event and
// notice. An event that cannot be delivered is tried again for a day.
package events
