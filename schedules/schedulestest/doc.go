// Package schedulestest makes the schedules of two tenants for the tests of schedules, of the packages below it, and of operations.
//
// [New] returns a [Fixture] on a database of its own: the tenants acme and other, and every service of schedules. Nothing sweeps it: the
// fixture records the due ticks that a change hands out, and [Fixture.Backdate] makes schedules due. [NewSite] also serves the API on
// loopback, and checks each answer against the OpenAPI document. Helpers that only one package needs are functions in its tests.
package schedulestest
