// Package trace passes traces on (W3C Trace Context) and exports spans with OpenTelemetry.
//
// A [Context] comes in with a request or begins at a sweep. It is stored with chunks and ticks as 25 bytes, so that a tick continues its
// trace in another process, and goes out as a traceparent. A nil [Tracer] exports nothing and costs nothing: contexts are passed on all the
// same. Spans wait in a queue of bounded length; if the collector is away, they are dropped and counted. A crash loses the spans
// that waited. Spans have tenants, workflows, tick ids, counts and outcomes as attributes, and never a payload, a key, an error's text,
// a URL or a token. The package uses no table and no lock.
package trace
