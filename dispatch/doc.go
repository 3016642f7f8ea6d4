// Package dispatch makes ticks happen. Each stage of a tick's way is a package below it:
//
//	sweep ──▶ chunk ──▶ open ──▶ push ───▶ finish
//	                         └─▶ lease ──┘
//
// A due tick is swept into a chunk under its shard's lock. A River job, or the process itself, opens the chunk: it decides what becomes
// of each tick and commits its row. Only then the tick is sent: pushed to an endpoint, or leased by a worker. Handing out is exactly
// once; delivery is at least once, under the same tick id. Nothing is sent before its nominal time by the database's clock.
//
// Package record holds ticks as they are stored, and its comment defines the words of all these packages. [New] makes the packages of a
// process, each after those that it uses; [Dispatch.Start] runs their loops.
package dispatch
