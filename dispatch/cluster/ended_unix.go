//go:build unix

package cluster

import (
	"errors"
	"syscall"
)

// ended reports whether no process of this machine has the id.
func ended(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
