// Package cluster holds the membership of the processes: which ones live, and which shards this one sweeps. It also carries
// notifications between them.
//
// Each process writes a heartbeat into its row of table process ([Member]). Others take over what a silent process owned, and the
// silent process drops it before they do. The [Notifier] carries wake-ups between processes with LISTEN and NOTIFY: a lost
// notification costs time, never a tick, because each process also looks at intervals.
//
// The [Horizon] is a moment before which all transactions have ended. A look into an index by time begins at a [Floor] that never
// passes the horizon, so that it reads no dead entries while an old snapshot is open, and misses no late commit.
package cluster
