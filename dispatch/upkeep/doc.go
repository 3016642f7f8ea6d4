// Package upkeep deletes what is past its retention, mends what a crash left, and watches for what is stuck.
//
// Its tasks run at intervals, each in one process at a time under an advisory lock, with a limit of time, and until nothing is left to
// do ([Task]). Deletions read partitions by index or by blocks of the table, never by a scan that grows with what is stored. The
// watchdog and the scan report in metrics what there should be none of.
package upkeep
