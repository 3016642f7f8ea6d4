// Package bulk stores and lists many schedules, or many profiles of subjects, in one call, as lines of JSON (NDJSON).
//
// In: an upsert of up to a million lines, and a sync, which lists all schedules of a workflow or a prefix of its keys. Out: what became
// of each line, in order, while the body is still read; and an export, whose lines an upsert takes.
// The reader makes batches of lines and checks each line; two writers store batches by schedules.PutAll. A sync first stages its lines,
// so that it changes nothing if the body is cut; it pauses or deletes schedules that are not listed by schedules.Reconcile.
//
// Tables: it writes sync and sync_line. Locks: the row of its own sync; those of schedules are taken by package schedules. A crash leaves
// the batches that were stored, and staged lines, which upkeep deletes (ClearSyncs).
package bulk
