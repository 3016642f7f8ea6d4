// Package tail carries ticks that fire and end to the clients that follow them live.
//
// Nothing happens while nobody follows. A process with a client announces every few seconds what the client follows, on the channel that
// all processes listen to. From then on each process collects what it fires and ends of that tenant, and sends five times a second what
// each filter picks: counts, and the keys of some ticks ([Tail.Fired], [Tail.Ended]). Only processes with clients listen for these notes
// ([Tail.Follow]). A process collects before its transactions commit: a note may name a tick whose row is not visible yet.
package tail
