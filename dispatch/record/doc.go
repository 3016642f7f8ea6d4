// Package record holds ticks as they are stored: the row of a tick, its states, its key, how it is written and found again.
//
// A tick is one nominal time of one schedule. Its key is the tenant, the schedule, the nominal time and a sequence number. The opening
// of a chunk writes all its ticks with one COPY ([Copy]), adds their keys to the index by time ([IndexEntries]), counts them in the use
// of the day ([UseEntries]) and keeps those that are due later ([Delayed]). All of this happens in the transaction that decides the
// ticks, so a crash leaves all of it or nothing.
//
// The states of a tick that has not ended:
//
//	buffered   it waits for another tick of its schedule to end
//	queued     it waits for a slot of its workflow
//	delayed    it is due later: between two attempts, or while its endpoint or its workflow is held
//	ready      it waits for a worker
//	running    a worker or an endpoint has it
//
// Tables: tick, tick_time (the index by time), delayed, daily_use_delta.
package record
