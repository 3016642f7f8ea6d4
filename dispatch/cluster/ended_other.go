//go:build !unix

package cluster

// ended reports nothing: a dead process is then noticed by its missing beats, a few seconds later.
func ended(int) bool { return false }
