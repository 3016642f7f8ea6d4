// Package push sends ticks and events to the endpoints of tenants, as signed requests.
//
// Each endpoint has a queue of its own, so that a slow one does not delay the others; what does not fit waits behind it in the
// database. Requests in flight are bounded by the process, the tenant and the endpoint. An endpoint that fails rests
// (breaker.go). Results are collected and written in batches by package finish.
//
// The package writes endpoints, their secrets and pushing. What a crash leaves unsent, the take-over of package open sends again under the
// same tick id. An error of our own database or network never counts as an attempt.
package push
