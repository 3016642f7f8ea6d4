//go:build !fault

package sabotage

// Crash does nothing.
func Crash(string) {}

// Loopback reports whether endpoints may be on this machine: never.
func Loopback() bool { return false }
