// Package chunk holds what the sweep gives to the opening: rows of table chunk, the format of their items, and the arguments of the
// River jobs that open them.
//
// The sweep gathers due members in a [Batch] and writes them as chunks of one tenant each. The items of a chunk are packed as
// varints: groups of members that fire at one time ([Group]), or attempts that are due again ([record.Try]). A job opens a [Run]: one
// chunk, or several with consecutive numbers in one lane. A chunk is durable once the sweep's transaction is committed: if a crash loses its
// job, the take-over finds the row.
package chunk
