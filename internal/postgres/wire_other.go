//go:build !linux

package postgres

import "syscall"

// limitUnacknowledged does nothing, because TCP_USER_TIMEOUT exists on Linux only. The deadlines of calls detect a dead peer.
func limitUnacknowledged(string, string, syscall.RawConn) error { return nil }
