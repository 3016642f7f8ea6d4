// Package sabotage lets the fault lab inject faults into the program. Without build tags every function does nothing, and the
// compiler removes it.
//
// With the tag fault, CARILLON_CRASH kills a process at a named point beside a commit, and CARILLON_LOOPBACK allows endpoints on this
// machine. With the tag mutant, CARILLON_MUTANT turns on one deliberate bug, which the lab must find.
package sabotage
