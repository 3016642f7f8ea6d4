// Package policy says what happens to the ticks of a schedule: how they overlap, when they are late or missed, how they are retried
// and how long they are kept. It also holds the forms that all features share: durations and names.
//
// A schedule states some of it, its workflow states defaults, and the service has defaults of its own: what is not stated is
// inherited in this order. The package reads no table.
package policy
