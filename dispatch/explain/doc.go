// Package explain says why a schedule fired at a time, or did not.
//
// It compares the record with the versions of the schedule that were in force around that time, their timings and its pauses. It
// writes nothing.
package explain
