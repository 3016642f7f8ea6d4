// Package runs decides which ticks a schedule gets when the server comes to its due times: on time, late, or after an outage.
//
// [Begin] applies the policy for missed times and the quiet hours of a timing. [Run.For] is what one schedule gets of a run that it shares
// with others. [WalkOf] spreads the ticks of a run over the jitter of its timing.
//
// The package reads no clock and no table, and has no state: the server and the clock of package carillontest share it.
package runs
