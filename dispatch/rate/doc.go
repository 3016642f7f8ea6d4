// Package rate limits how many ticks a second go out for a workflow, or to an endpoint, over all processes.
//
// A [Rate] is what a client sets. A [Bucket] counts the tokens that there are at a moment: it fills at the rate, and holds what comes in
// 100 ms. After a pause of more than a minute it fills slowly at first, where the rate has a ramp. [Take] takes tokens out of the bucket
// that all processes share, under the lock of its row.
//
// Tables: rate_allowance.
package rate
