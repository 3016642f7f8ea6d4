// Package dispatchtest makes a whole Carillon for the tests of package dispatch and of the packages below it.
//
// [New] returns a [Carillon] on a database of its own: one tenant, its schedules, and a [Process] that does all. A test starts the process, or
// works it step by step: sweep one shard, open one chunk, run one task. [Carillon.Open] serves the API of a process on loopback, and
// holds each answer to the OpenAPI document. Helpers that only one package needs are functions in its tests.
package dispatchtest
