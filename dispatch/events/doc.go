// Package events sends tenants events: paused schedules, disabled endpoints, dead letters, quotas that are nearly used.
//
// A transaction that causes an event adds a row to table notice_delta. Each second the package folds these rows into table notice, and
// makes events of due notices (notice.go). It sends an event to the endpoints that the tenant named for it, signed like a tick
// (event.go), and retries it for a day. The package writes tables notice and event. A crash loses nothing: each step is one transaction.
package events
