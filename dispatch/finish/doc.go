// Package finish ends attempts of ticks, and writes every consequence of an end.
//
// Push, lease and control report how attempts ended ([Ending]). In the caller's transaction the package writes the attempt and the state
// of the tick. A failed attempt is held for its retry, or becomes a dead letter. The next buffered tick of the schedule is released,
// the slot of its workflow is freed, the counters of the schedule move (package state), and a schedule with fixed_delay
// gets its next time. A schedule that fails too often in a row is paused afterwards.
package finish
