// Package agreement compares package carillontest with the real server: the same random schedules, over weekends on which clocks change,
// under the same operations, get the same ticks for the same reasons. It has only tests. Holds of workflows are not compared.
//
// A world is a new database whose clock the test moves, and a new server in memory. Each world has many schedules. If one differs, the
// test repeats it alone, in new worlds, and prints the shortest story that still differs. CONTRIBUTING.md has the command for a long run.
package agreement
