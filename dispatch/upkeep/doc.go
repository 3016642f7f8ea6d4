// Package upkeep deletes rows that are past their retention, repairs what a crash left, and reports what is stuck.
//
// Its tasks run at intervals ([Task]). Each runs in one process at a time under an advisory lock, in batches until nothing is left or its
// time is over. Deletions read partitions by index or by blocks of the table, never by a scan that grows with what is stored. The
// watchdog and the scan count in metrics what should not exist, such as overdue cohorts.
package upkeep
