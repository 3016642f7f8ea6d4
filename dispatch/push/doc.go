// Package push sends ticks and events to the endpoints of tenants, as signed requests.
//
// Each endpoint has a queue of its own, so that a slow one does not delay the others. Ticks that do not fit wait in the queue's
// overflow, by their keys (overflow.go). The process, the tenant and the endpoint limit the requests in flight. A circuit breaker holds
// the ticks of an endpoint that fails (breaker.go). Results are collected, and package finish writes them in batches.
//
// The package writes endpoints, their secrets and push_load. After a crash, the take-over of package open sends unsent ticks again with the
// same tick id. An error of our own database or network never counts as an attempt.
package push
