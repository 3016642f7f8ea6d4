//go:build !linux

package postgres

import "syscall"

// limitUnacknowledged does nothing: there is no TCP_USER_TIMEOUT here, and the deadlines of calls must do.
func limitUnacknowledged(string, string, syscall.RawConn) error { return nil }
