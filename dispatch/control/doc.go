// Package control carries out requests of tenants: triggers, cancellations, replays of ticks and dead letters, backfills, and halts.
//
// Small requests change rows in one transaction. Backfills and replays of many dead letters are operations: their steps continue after a
// crash. When a change ends the wait of parked ticks, the package makes them due (wake.go).
package control
