// Package control carries out what tenants ask of their ticks: triggers, cancellations, replays of ticks and dead letters, backfills,
// and halts.
//
// Small requests change rows in one transaction. Backfills and replays of many dead letters are operations: steps that go on after a
// crash. A change that ends what parked ticks wait for wakes them (wake.go).
package control
