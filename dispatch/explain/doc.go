// Package explain says why a schedule fired at a time, or did not.
//
// It compares the record with what the versions of the schedule, their calendars and its pauses say of that time. It writes
// nothing.
package explain
