// Package lease gives ticks to workers that poll for them, and takes their results.
//
// A tick that is pulled waits in table ready. A long poll takes the next ones by priority and age, records a lease, and signs a token for each
// attempt. A heartbeat lengthens a lease. A worker completes or fails its ticks with their tokens; a token of an attempt that
// has ended is stale and changes nothing.
//
// The package writes ready, lease and lease_beat. A lease whose time is over ends as a failed attempt (expiry.go), so a worker that dies
// loses nothing.
package lease
